// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

const someStatus = `Package: libc6
Priority: required
Installed-Size: 100
Version: 2
Depends: libgcc-s1

Package: libgcc-s1
Installed-Size: 50
Version: 3

Package: python3.13
Provides: python3-abi (= 1), python3-any
Installed-Size: 7
Version: 3.13
Depends: libc6 (>= 2.38)

Package: both
Installed-Size: 11
Version: 1.2-3
Pre-Depends: libc6
Depends: python3-any:any, libllvm | libold
Description: a tool
 Depends: is a word of this text too

Package: libold
Installed-Size: 13
Version: 1
Depends: both
`

// A package counts with its dependencies, each once, and without packages that
// every Debian has.
func TestInstalledSize(t *testing.T) {
	all := parseStatus([]byte(someStatus))
	for name, want := range map[string]float64{
		"both":       11 + 7 + 13, // libllvm is not there; libold needs it in turn
		"python3.13": 7,
		"libgcc-s1":  0, // since libc6 needs it
		"nothing":    0,
	} {
		if got := all.size(name) / 1024; got != want {
			t.Errorf("%s: got %.0f KB, want %.0f", name, got, want)
		}
	}
	if got := all["both"].version; got != "1.2-3" {
		t.Errorf("version: got %s, want 1.2-3", got)
	}
}
