// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"seine/internal/tool"
	"seine/tools/tcplife"
)

// Letters are found wherever pflag would take them, and nowhere else.
func TestCheckLetters(t *testing.T) {
	bccFlags["tcplife"]["d"] = "--dns" // a letter that seine has too
	defer delete(bccFlags["tcplife"], "d")
	for args, refused := range map[string]bool{
		"-d":                  true,
		"-d5":                 true,
		"-w -d 5":             true,
		"-wd 5":               true,
		"-w4d":                true,
		"--pid 5 -d":          true,
		"--duration 5":        false,
		"-p -d":               false, // -d is a value here
		"--comm -d":           false,
		"--comm=x -p5 -w":     false,
		"-pd":                 false,
		"-- -d":               false,
		"-t -d":               true,
		"-\xff\xfe":           false,
		"":                    false,
		"- 1":                 false,
		"-L 80 -D 90 -v -v 1": false,
	} {
		err := checkLetters(tcplife.Tool, strings.Fields(args))
		if (err != nil) != refused {
			t.Errorf("tcplife %s: got %v, want refused: %t", args, err, refused)
		}
		if err != nil && (code(err) != exitUsage || !strings.Contains(err.Error(), "--dns")) {
			t.Errorf("tcplife %s: got %v, want a usage error that names --dns", args, err)
		}
	}
}

// What is suggested must be there: every hint for a tool that exists parses.
func TestHintsParse(t *testing.T) {
	for name, hints := range bccFlags {
		tl, _ := find(name)
		if tl == nil {
			continue
		}
		for flag, ours := range hints {
			if err := parses(tl, ours); err != nil {
				t.Errorf("%s -%s: the hint %q: %v", name, flag, ours, err)
			}
		}
	}
}

func parses(tl *tool.Tool, flags string) error {
	flags = strings.NewReplacer("NAME", "x", "LIST", "1", " == N", "==1", "'", "", " N", " 1").Replace(flags)
	_, _, err := Parse(tl, strings.Fields(flags))
	return err
}
