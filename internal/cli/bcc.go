// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"seine/internal/tool"
)

// bccFlags is what those who know BCC or libbpf-tools may type, and what serves
// in its place: flags that are not here, and letters that mean something else
// here. What means the same is not in the table.
var bccFlags = map[string]map[string]string{
	"": { // any tool that makes rows
		"T": "--columns +time", "timestamp": "--columns +time --time rel", "csv": "-o csv", "ebpf": "-vv",
		"cgroupmap": "--cgroup PATH", "mntnsmap": "--container NAME", "noclear": "--no-clear",
		"localport": "--lport LIST", "remoteport": "--rport LIST",
	},
	"funccount":  {"T": "-o json", "timestamp": "-o json"},
	"hardirqs":   {"d": "--dist", "N": "-o json", "c": "--where 'cpu == N'"},
	"profile":    {"c": "--count N", "d": "-o folded", "L": "--where 'tid == N'", "C": "--where 'cpu == N'"},
	"sofdsnoop":  {"t": "--where 'tid == N'", "n": "--comm NAME"},
	"softirqs":   {"d": "--dist", "N": "-o json"},
	"solisten":   {"show-netns": "--columns +netns"},
	"stackcount": {"d": "-o json", "D": "--duration TIME", "T": "-o json", "timestamp": "-o json", "f": "-o json", "folded": "-o json"},
	"tcpaccept":  {"t": "--columns +time --time rel"},
	"tcpconnect": {"s": "--columns +lport"},
	"tcplife":    {"t": "--columns +time --time rel", "s": "-o csv"},
	"tcpretrans": {"sequence": "-s", "lossprobe": "-l"},
	"tcpstates":  {"t": "--columns +time --time rel", "s": "-o csv", "Y": "-o json", "journal": "-o json"},
	"tcptop":     {"C": "--no-clear", "nosummary": "-S"},
	"trace":      {"n": "a filter, as ($comm == \"NAME\")", "M": "--count N", "max-events": "--count N", "T": "-t", "u": "-o json", "unix-timestamp": "-o json"},
}

// elsewhere is the names that other tools for the same have, and ours.
var elsewhere = map[string]string{"bpftrace": "seine run"}

// bccFlag is what to write here for a flag of BCC's tool; empty: no idea.
func bccFlag(toolName, flag string) string {
	ours := bccFlags[toolName][flag]
	if t, _ := find(toolName); ours == "" && t != nil {
		return bccFlags[""][flag]
	}
	return ours
}

// checkLetters refuses, where seine goes by a tool's own name, letters to which
// that tool gives another meaning in BCC, though they would be taken here.
func checkLetters(name string, fs *pflag.FlagSet, args []string) error {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		word, long := strings.CutPrefix(args[i], "--")
		switch {
		case long:
			if f := fs.Lookup(word); f != nil && f.NoOptDefVal == "" {
				i++ // its value
			}
			continue
		case len(args[i]) < 2 || args[i][0] != '-':
			continue
		}
		wants, err := checkCluster(fs, name, args[i][1:])
		if err != nil {
			return err
		}
		if wants {
			i++
		}
	}
	return nil
}

// checkCluster looks at the letters after one dash, and says whether the next
// argument is the last one's value.
func checkCluster(fs *pflag.FlagSet, name, letters string) (wantsValue bool, err error) {
	for i := range len(letters) {
		letter := letters[i : i+1]
		if letter[0] >= 0x80 {
			return false, nil
		}
		f := fs.ShorthandLookup(letter)
		if f == nil {
			return false, nil // pflag says so, and unknownFlag what to write instead
		}
		if ours := bccFlags[name][letter]; ours != "" {
			return false, tool.Usagef("-%s of BCC's %s is not that of seine: write %s, or --%s for what seine means by it", letter, name, ours, f.Name)
		}
		if f.NoOptDefVal == "" {
			return i == len(letters)-1, nil
		}
	}
	return false, nil
}
