// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/elf"
	"fmt"
	"testing"
)

// TestUserAddress has a uprobe at an address. Go's linker makes binaries whose
// addresses are no offsets in the file.
func TestUserAddress(t *testing.T) {
	f := must(elf.Open("/proc/self/exe"))
	defer f.Close()
	var addr uint64
	for _, s := range must(f.Symbols()) {
		if s.Name == "seine/internal/bt.traced" {
			addr = s.Value
		}
	}
	if off := must(fileOffset("/proc/self/exe", addr)); off == addr {
		t.Fatalf("the address %#x is an offset: this test tests nothing", addr)
	}
	out, _ := live(t, script(fmt.Sprintf("u:/proc/self/exe:%#x { @ = count(); }", addr)), Options{PIDs: self()}, func() {
		for i := range 7 {
			sink += traced(i)
		}
	})
	want(t, out, "@: 7\n")
}

// TestAllFiles looks for a function in all files of a process, of which only the
// program has it.
func TestAllFiles(t *testing.T) {
	needRoot(t)
	if files := must(mappedFiles(self()[0])); len(files) == 0 {
		t.Fatal("this process has no files")
	}
	for _, point := range []string{"u:*:seine/internal/bt.traced", "u:*.test:seine/internal/bt.tra*d", "u:/proc/self/ex*:seine/internal/bt.traced"} {
		out, _ := live(t, script(point+" { @ = count(); }"), Options{PIDs: self()}, func() {
			for i := range 7 {
				sink += traced(i)
			}
		})
		want(t, out, "@: 7\n")
	}
}
