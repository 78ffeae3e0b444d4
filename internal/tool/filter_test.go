// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"path"
	"strings"
	"testing"
)

// TestGlob: the automaton agrees with path.Match, which has the same patterns
// for names without slashes.
func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"nginx", "nginx", true}, {"nginx", "nginx2", false}, {"nginx", "ngin", false},
		{"py*", "python3", true}, {"*", "", true}, {"*", "anything", true}, {"*thon*", "python3", true},
		{"p?thon", "python", true}, {"p?thon", "pthon", false}, {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false},
		{"[]]", "]", true}, {`\*`, "*", true}, {`\*`, "x", false}, {"a*b*c", "aXbYc", true}, {"a*b*c", "aXcYb", false},
		{"", "", true}, {"", "x", false}, {"fifteen-letters", "fifteen-letters", true},
		{"curl,ngin*", "curl", true}, {"curl,ngin*", "nginx", true}, {"curl,ngin*", "curlnginx", false}, {"curl,ngin*", "curl2", false},
		{"*l,x", "curl", true}, {"*l,x", "lx", false}, {"a,b", "", false}, {`a\,b`, "a,b", true}, {"[,]", ",", true},
		// The kernel keeps 15 characters of a name.
		{"systemd-resolved", "systemd-resolve", true}, {"systemd-resolved", "systemd-resolv", false}, {"systemd-resolved", "systemd-network", false},
		{"systemd-resolve*d", "systemd-resolve", true}, {"systemd-res?lved*", "systemd-resolve", true}, {"*-resolve", "systemd-resolve", true},
		{strings.Repeat("x", 99) + ",curl", strings.Repeat("x", 15), true}, {strings.Repeat("x", 99) + ",curl", "curl", true},
	} {
		g, err := ParseGlob(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		if got := g.Match(c.name); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
	for _, bad := range []string{"[", "[a", `a\`, "[z-a]", ",", "a,", ",a", "a,,b", "*" + strings.Repeat("x", 16), "x*" + strings.Repeat("x", 15), strings.Repeat("x,", 31) + "x"} {
		if _, err := ParseGlob(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// FuzzGlob: no pattern panics, and plain ones agree with path.Match.
func FuzzGlob(f *testing.F) {
	f.Add("a*[b-d]?", "axbcd")
	f.Add("[!x]", "y")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := ParseGlob(pattern)
		if err != nil || len(name) > 15 || len(name) == 15 && len(pattern) > 15 {
			return // a name of 15 may be part of one that such a pattern is for
		}
		for _, c := range []byte(pattern + name) {
			if c >= 0x80 || c == '/' || c == '[' || c == '\\' || c == ',' || c == 0 {
				return // bytes here, runes there; sets differ in their corners
			}
		}
		if want, err := path.Match(pattern, name); err == nil && g.Match(name) != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, name, !want, want)
		}
	})
}
