// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
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

// A function whose instructions have known lengths: those of one byte, on amd64.
const offsetProgram = `
__attribute__((naked, noipa)) void f(void) { __asm__("nop\n\tnop\n\tnop\n\tret"); }
int main(void) { for (int i = 0; i < 9; i++) f(); return 0; }
`

// TestOffset has probes inside a function.
func TestOffset(t *testing.T) {
	needRoot(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the instructions are those of amd64")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	file, source := filepath.Join(dir, "prog"), filepath.Join(dir, "prog.c")
	check(os.WriteFile(source, []byte(offsetProgram), 0o600))
	if out, err := exec.Command(cc, "-fcf-protection=none", "-o", file, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, _ := live(t, script(fmt.Sprintf(`u:%[1]s:f { @at[tid] = reg("ip"); @n = count(); } u:%[1]s:f+2 { @[reg("ip") - @at[tid]] = count(); } u:%[1]s:f+0x3 { @[reg("ip") - @at[tid]] = count(); } END { clear(@at); }`, file)), Options{}, func() {
		check(exec.Command(file).Run())
	})
	want(t, out, "@n: 9\n", "@[2]: 9\n", "@[3]: 9\n")
	if _, err := script("u:" + file + ":f+x { }")(Options{}); err == nil || !strings.Contains(err.Error(), "an offset is a number") {
		t.Errorf("got %v", err)
	}
}

// A program whose functions have names of C++.
const cppProgram = `#include <unistd.h>
namespace ns { struct C { __attribute__((noipa)) int add(int n) { return n + 1; } __attribute__((noipa)) int add(int n, char c) { return n + c; } }; }
int main() { ns::C c; int s = 0; for (int i = 0; i < 6; i++) s += c.add(i); s += c.add(1, 'a'); write(1, "\n", 1); char b; return read(0, &b, 1) < 0 || s == 0; }
`

// staying runs a program until it has written a line. It stays until the test ends, so that
// its stacks can be named.
func staying(t *testing.T, file string) {
	t.Helper()
	cmd := exec.Command(file)
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	check(cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	must(out.Read(make([]byte, 1)))
}

// TestCPP finds functions of C++ by the names that its programmers write.
func TestCPP(t *testing.T) {
	needRoot(t)
	cc, err := exec.LookPath("g++")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	file, source := filepath.Join(dir, "prog"), filepath.Join(dir, "prog.cc")
	check(os.WriteFile(source, []byte(cppProgram), 0o600))
	if out, err := exec.Command(cc, "-O1", "-o", file, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, _ := live(t, script(fmt.Sprintf(`u:%[1]s:cpp:"ns::C::add" { @all = count(); @[usym(reg("ip"))] = count(); } u:%[1]s:cpp:"ns::C::add(int, char)" { @two = sum(arg1); }`, file)), Options{}, func() { staying(t, file) })
	want(t, out, "@all: 7\n", "@two: 1\n")
	// Names in stacks are as programmers write them, or with cpp_demangle = false as the symbol table has them.
	for set, name := range map[string]string{"true": "ns::C::add", "false": "_ZN2ns1C3addEi"} {
		out, _ = live(t, script(fmt.Sprintf(`config = { cpp_demangle = %s } u:%s:cpp:"ns::C::add(int)" { @[ustack(1)] = count(); @name[usym(reg("ip"))] = count(); }`, set, file)), Options{}, func() { staying(t, file) })
		want(t, out, "@[\n    "+name+"+0\n]: 6\n", "@name["+name+"]: 6\n")
	}
	if _, err := script("u:" + file + `:cpp:"ns::C::sub" { }`)(Options{}); err == nil || !strings.Contains(err.Error(), "has no function ns::C::sub") {
		t.Errorf("got %v", err)
	}
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
