// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/tools/tcplife"
)

// Letters are found wherever pflag would take them, and nowhere else.
func TestCheckLetters(t *testing.T) {
	for _, f := range []string{"d", "count"} { // flags that seine has too
		bccFlags["tcplife"][f] = "--dns"
		defer delete(bccFlags["tcplife"], f)
	}
	fs := pflag.NewFlagSet("tcplife", pflag.ContinueOnError)
	declare(fs, tcplife.Tool, tcplife.Tool.NewConfig())
	for args, refused := range map[string]bool{
		"-d":                  true,
		"-d5":                 true,
		"-w -d 5":             true,
		"-wd 5":               true,
		"-w4d":                true,
		"--pid 5 -d":          true,
		"--count 5":           true,
		"--pid 5 --count":     true,
		"--count=5":           false,
		"--comm --count":      false, // a value
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
		err := checkLetters("tcplife", fs, strings.Fields(args))
		if (err != nil) != refused {
			t.Errorf("tcplife %s: got %v, want refused: %t", args, err, refused)
		}
		if err != nil && (code(err) != exitUsage || !strings.Contains(err.Error(), "--dns")) {
			t.Errorf("tcplife %s: got %v, want a usage error that names --dns", args, err)
		}
	}
}

// TestArgument: the argument of libbpf-tools' tcppktlat is a least latency, and ours is an interval.
func TestArgument(t *testing.T) {
	cmd, _, err := New(io.Discard, io.Discard).Find([]string{"tcppktlat"})
	if err != nil {
		t.Fatal(err)
	}
	for args, refused := range map[string]bool{"1000": true, "5": true, "--pid 7 1000": true, "--pid 7": false, "-i 5": false, "5s": false, "": false} {
		err := checkLetters("tcppktlat", cmd.Flags(), strings.Fields(args))
		if (err != nil) != refused || err != nil && code(err) != exitUsage {
			t.Errorf("tcppktlat %s: got %v, want refused: %t", args, err, refused)
		}
		if err == nil {
			continue
		}
		_, ours, _ := strings.Cut(err.Error(), "write ")
		ours, _, _ = strings.Cut(ours, ",")
		if err := parses(cmd, ours); err != nil {
			t.Errorf("tcppktlat %s: the hint %q: %v", args, ours, err)
		}
	}
	fs := New(io.Discard, io.Discard).Flags()
	if err := checkLetters("tcplife", fs, []string{"1000"}); err != nil {
		t.Errorf("tcplife 1000: %v", err)
	}
}

// What is suggested must be there: every hint for a tool that exists parses.
func TestHintsParse(t *testing.T) {
	for name, hints := range bccFlags {
		cmd, _, err := New(io.Discard, io.Discard).Find([]string{name})
		if err != nil || cmd.Name() != name {
			continue
		}
		for flag, ours := range hints {
			if !strings.HasPrefix(ours, "-") { // words
				continue
			}
			if err := parses(cmd, ours); err != nil {
				t.Errorf("%s -%s: the hint %q: %v", name, flag, ours, err)
			}
		}
	}
}

func parses(cmd *cobra.Command, flags string) error {
	flags = strings.NewReplacer("NAME", "x", "INODE", "1", "LIST", "1", "CIDR", "::1", "TIME", "1s", " == N", "==1", "'", "", " N", " 1").Replace(flags)
	return cmd.ParseFlags(strings.Fields(flags))
}
