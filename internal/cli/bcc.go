// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"seine/internal/tool"
)

// bccFlags maps flags of BCC and libbpf-tools to flags of seine. It has the flags that
// seine lacks and the letters that mean something else in seine. Flags with the same
// meaning are not in the table.
var bccFlags = map[string]map[string]string{
	"": { // any tool that makes rows
		"T": "--columns +time", "timestamp": "--columns +time --time rel", "csv": "-o csv", "ebpf": "-vv",
		"cgroupmap": "--cgroup PATH", "mntnsmap": "--container NAME", "noclear": "--no-clear",
		"localport": "--lport LIST", "remoteport": "--rport LIST",
	},
	"bindsnoop":  {"t": "--columns +time --time rel", "P": "--lport LIST", "U": "--columns +uid", "print-uid": "--columns +uid", "count": "--by laddr,lport"},
	"funccount":  {"T": "-o json", "timestamp": "-o json"},
	"hardirqs":   {"count": "-C", "d": "--dist", "N": "-o json", "c": "--where 'cpu == N'"},
	"netqtop":    {"n": "--dev NAME", "name": "--dev NAME", "t": "-i 1", "throughput": "-i 1"},
	"profile":    {"c": "--count N", "d": "-o folded", "L": "--where 'tid == N'", "C": "--where 'cpu == N'"},
	"sofdsnoop":  {"t": "--where 'tid == N'", "n": "--comm NAME"},
	"softirqs":   {"d": "--dist", "N": "-o json", "c": "--where 'cpu == N'"},
	"solisten":   {"n": "--netns INODE", "show-netns": "--columns +netns"},
	"stackcount": {"d": "-o json", "D": "--duration TIME", "T": "-o json", "timestamp": "-o json", "f": "-o json", "folded": "-o json"},
	"tcpaccept":  {"t": "--columns +time --time rel"},
	"tcpcong":    {"L": "--lport LIST", "R": "--rport LIST", "d": "--dist", "u": "nothing (times are in milliseconds)"},
	"tcpconnect": {"s": "--columns +lport", "L": "--columns +lport", "lport": "--columns +lport", "count": "-c", "d": "--dns"},
	"tcpconnlat": {"L": "--columns +lport", "lport": "--columns +lport"},
	"tcplife":    {"t": "--columns +time --time rel", "s": "-o csv"},
	"tcppktlat":  {"t": "--events --where 'tid == N'", "l": "--lport LIST", "r": "--rport LIST"},
	"tcpretrans": {"count": "-c"},
	"tcprtt": {
		"p": "--lport LIST", "P": "--rport LIST", "a": "--laddr CIDR", "A": "--raddr CIDR", "b": "--by laddr", "B": "--by raddr",
		"byladdr": "--by laddr", "byraddr": "--by raddr", "e": "--summary", "extension": "--summary",
	},
	"tcpstates": {"t": "--columns +time --time rel", "s": "-o csv", "Y": "-o json", "journal": "-o json"},
	"tcptop":    {"C": "--no-clear", "nosummary": "-S"},
	"tcptracer": {"t": "--columns +time --time rel", "N": "--netns INODE", "v": "--columns +netns", "verbose": "--columns +netns"},
	"trace":     {"n": "a filter, as ($comm == \"NAME\")", "M": "--count N", "max-events": "--count N", "T": "-t", "u": "-o json", "unix-timestamp": "-o json"},
}

// bccArgs maps tools whose argument is not the interval in BCC and libbpf-tools to flags of
// seine, with %s for the argument.
var bccArgs = map[string]string{"tcppktlat": "--events --min %sus"}

// bccArg returns what to write for an argument of BCC's tool, empty if it means the same.
func bccArg(toolName, arg string) string {
	ours, ok := bccArgs[toolName]
	if _, err := strconv.ParseUint(arg, 10, 32); !ok || err != nil {
		return ""
	}
	return fmt.Sprintf(ours, arg)
}

// elsewhere maps names of other programs to our commands.
var elsewhere = map[string]string{"bpftrace": "seine run"}

// bccFlag returns the replacement for a flag of BCC's tool, empty if there is none.
func bccFlag(toolName, flag string) string {
	ours := bccFlags[toolName][flag]
	if t, _ := find(toolName); ours == "" && t != nil {
		return bccFlags[""][flag]
	}
	return ours
}

// checkLetters refuses flags and arguments that have another meaning in BCC's tool, if seine was
// called by that tool's name. BCC's parser does not take --flag=value for the long ones,
// so that form has seine's meaning.
func checkLetters(name string, fs *pflag.FlagSet, args []string) error {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		word, long := strings.CutPrefix(args[i], "--")
		switch {
		case long:
			f := fs.Lookup(word)
			if ours := bccFlags[name][word]; f != nil && ours != "" {
				return tool.Usagef("--%s means something else in BCC's %s: write %s, or --%s=VALUE for what it means in seine", word, name, ours, word)
			}
			if f != nil && f.NoOptDefVal == "" {
				i++ // its value
			}
			continue
		case len(args[i]) < 2 || args[i][0] != '-':
			if ours := bccArg(name, args[i]); ours != "" {
				return tool.Usagef("%s means something else in libbpf-tools' %s: write %s, or -i %s for an interval in seconds", args[i], name, ours, args[i])
			}
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

// checkCluster checks the letters after one dash. It reports whether the next
// argument is the value of the last letter.
func checkCluster(fs *pflag.FlagSet, name, letters string) (wantsValue bool, err error) {
	for i := range len(letters) {
		letter := letters[i : i+1]
		if letter[0] >= 0x80 {
			return false, nil
		}
		f := fs.ShorthandLookup(letter)
		if f == nil {
			return false, nil // pflag refuses it, and unknownFlag names the replacement
		}
		if ours := bccFlags[name][letter]; ours != "" {
			return false, tool.Usagef("-%s means something else in BCC's %s: write %s, or --%s for what it means in seine", letter, name, ours, f.Name)
		}
		if f.NoOptDefVal == "" {
			return i == len(letters)-1, nil
		}
	}
	return false, nil
}
