// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// linesProgram has its functions on known lines: called on 3, the call of its caller on 7.
const linesProgram = `#include <unistd.h>
int called(int n)
{ __asm__ volatile(""); return n + 1; }
__attribute__((noipa)) int caller(int n) {
	return called(n) + 1;
}
int main(void) { int s = 0; for (int i = 0; i < 3; i++) s += caller(i); write(1, "\n", 1); char b; return read(0, &b, 1) < 0 || s == 0; }
`

// TestLines has the lines of the source in stacks of a program.
func TestLines(t *testing.T) {
	needRoot(t)
	cc, err := exec.LookPath("cc")
	if err != nil {
		lack(t, err)
	}
	dir := t.TempDir()
	file, source := filepath.Join(dir, "prog"), filepath.Join(dir, "prog.c")
	check(os.WriteFile(source, []byte(linesProgram), 0o600))
	build := func(flag string) {
		if out, err := exec.Command(cc, flag, "-O0", "-fno-omit-frame-pointer", "-fno-inline", "-o", file, source).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	stack := func(set, mode string) string {
		out, _ := live(t, script(fmt.Sprintf(`%s u:%s:called { @[ustack(%s3)] = count(); }`, set, file, mode)), Options{}, func() { staying(t, file) })
		return out
	}
	build("-g")
	out := stack("config = { show_debug_info = true }", "")
	at := "@" + source + ":"
	// At a function's first instruction its frame is not there yet: the caller is left out, as by every walk along frame pointers.
	wantMatch(t, out, `(?m)^    called\+0`+at+`3$`)
	wantMatch(t, out, `(?m)^    main\+\d+`+at+`7$`)
	wantMatch(t, stack("config = { show_debug_info = true }", "perf, "), `(?m)^\t[0-9a-f]+ called\+0`+at+`3 \(`+file+`\)$`)
	if out := stack("", ""); strings.Contains(out, at) || !strings.Contains(out, "    called+0\n") {
		t.Errorf("lines that nobody asked for: %s", out)
	}
	build("-g0")
	if out := stack("config = { show_debug_info = true }", ""); !strings.Contains(out, "    called+0\n") {
		t.Errorf("without DWARF: %s", out)
	}
}
