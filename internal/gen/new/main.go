// SPDX-License-Identifier: Apache-2.0

// Command new makes the folder of a tool from a template that compiles and
// shows something. Run it from the project's root, by make new tool=x.
package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed template
var template embed.FS

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "new:", err)
		os.Exit(1)
	}
}

var valid = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

func run(args []string) error {
	if len(args) != 1 || !valid.MatchString(args[0]) {
		return fmt.Errorf("name one tool, in small letters and digits: make new tool=tcpfoo")
	}
	dir := filepath.Join("tools", args[0])
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	files, err := template.ReadDir("template")
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "testdata"), 0o755); err != nil {
		return err
	}
	for _, f := range files {
		b, err := template.ReadFile("template/" + f.Name())
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.ReplaceAll(f.Name(), "TOOL", args[0]), ".txt")
		if name == "rows.jsonl" {
			name = "testdata/rows.jsonl"
		}
		text := strings.ReplaceAll(string(b), "TOOL", args[0])
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("made %s: edit it, then make generate update\n", dir)
	return nil
}
