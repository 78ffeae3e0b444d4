// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestParseStat(t *testing.T) {
	const line = "4711 (a) 1 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 23 24 25 400000 500000 7ff\n"
	if _, ok := parseStat([]byte(line)); ok {
		t.Error("a number that is none was taken")
	}
	const good = "4711 (a) 1 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 23 24 25 400000 500000 7000 0\n"
	got, ok := parseStat([]byte(good))
	want := program{start: 4242, code: 400000, end: 500000, stack: 7000}
	if !ok || got != want {
		t.Errorf("got %+v, %v; want %+v", got, ok, want)
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1 2 3"} {
		if _, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A made-up /proc, where a PID is used again.
func TestReused(t *testing.T) {
	dir := t.TempDir()
	p := Processes{proc: dir}
	defer p.Close()
	write := func(start, code int, maps string) {
		t.Helper()
		stat := fmt.Sprintf("7 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 23 24 25 %d 2 3\n", start, code)
		for name, text := range map[string]string{"stat": stat, "maps": maps} {
			if err := os.MkdirAll(filepath.Join(dir, "7"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "7", name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if pr := p.get(7); pr != nil {
			pr.checked.Store(now() - int64(checkEvery))
			pr.again.Store(now() + 1<<40) // only Seen is to notice
		}
	}
	want := func(addr uint64, module string) {
		t.Helper()
		if f := p.Frame(7, addr); f.Module != module {
			t.Errorf("%#x is in %q, want %q", addr, f.Module, module)
		}
	}
	write(100, 1, "1000-2000 r-xp 0 0:0 0 [first]\n8000-9000 r-xp 0 0:0 0 [gone]\n")
	p.Seen(7)
	want(0x1000, "[first]")

	// Mapped later: not known until an unknown address asks.
	write(100, 1, "1000-2000 r-xp 0 0:0 0 [first]\n3000-4000 r-xp 0 0:0 0 [later]\n8000-9000 r-xp 0 0:0 0 [gone]\n")
	p.Seen(7)
	want(0x3000, "")
	wait(t, &p, 7)
	want(0x3000, "[later]")

	// Another process with the same PID; then another program in that.
	write(200, 1, "1000-2000 r-xp 0 0:0 0 [second]\n")
	p.Seen(7)
	want(0x1000, "[second]")
	want(0x8000, "[gone]") // only the one before had it
	write(200, 5, "1000-2000 r-xp 0 0:0 0 [third]\n")
	p.Seen(7)
	want(0x1000, "[third]")
	want(0x8000, "") // two before is forgotten

	// A process that is exiting has no memory any more.
	stat := "7 (x) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 200 23 24 25 0 0 0\n"
	if err := os.WriteFile(filepath.Join(dir, "7", "stat"), []byte(stat), 0o644); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(dir, "7", "maps"), nil, 0o644)
	p.get(7).checked.Store(now() - int64(checkEvery))
	p.Seen(7)
	wait(t, &p, 7)
	want(0x5000, "")
	want(0x1000, "[third]")
	if p.mappings != 2 {
		t.Errorf("%d mappings are counted, want 2", p.mappings)
	}
}
