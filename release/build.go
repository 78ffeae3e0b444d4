// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// build makes the static binary and returns its name. Nothing of the folder,
// the user or the settings gets into it.
func build(s *src, arch, tmp string) (string, error) {
	bin := filepath.Join(tmp, "seine-"+arch)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid= -X seine/internal/cli.Version="+s.version, "-o", bin, "./cmd/seine")
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	cmd.Stderr = os.Stderr
	return bin, cmd.Run()
}

// pages are the man pages and completions. They are the same for every
// architecture, and written by the one that runs here.
func pages(s *src, tmp string) ([]part, error) {
	bin, err := build(s, runtime.GOARCH, tmp)
	if err != nil {
		return nil, err
	}
	man := filepath.Join(tmp, "man")
	if err := os.Mkdir(man, 0o755); err != nil {
		return nil, err
	}
	if out, err := exec.Command(bin, "man", man+"/").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("seine man: %w: %s", err, out)
	}
	names, err := filepath.Glob(man + "/*.8")
	if err != nil {
		return nil, err
	}
	var all []part
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, part{kind: manual, name: filepath.Base(name) + ".gz", data: compress(text)})
	}
	for shell, name := range map[kind]string{bash: "seine", zsh: "_seine", fish: "seine.fish"} {
		text, err := exec.Command(bin, "completion", string(shell)).Output()
		if err != nil {
			return nil, fmt.Errorf("seine completion %s: %w", shell, err)
		}
		all = append(all, part{kind: shell, name: name, data: text})
	}
	return all, nil
}

// compress is gzip without name and time.
func compress(data []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is one
	z.Write(data)                                         // a buffer takes all
	z.Close()
	return b.Bytes()
}
