// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

const mapsText = `00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/dbus-daemon
35b1800000-35b1820000 r-xp 00001000 08:02 135522  /usr/lib64/ld 2.15.so
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00000000 00:00 0 
7f0000004000-7f0000005000 r-xs 00000000 fd:103 18446744073709551615  /tmp/a\012b (deleted)
7f0000006000-7f0000007000 r-xp 00000000 00:00 0   [anon:jit]
7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0   [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]
`

func TestMaps(t *testing.T) {
	got, err := parseMaps(strings.NewReader(mapsText))
	if err != nil {
		t.Fatal(err)
	}
	want := []mapping{
		{start: 0x400000, end: 0x452000, name: "/usr/bin/dbus-daemon", dev: 8<<32 | 2, ino: 173521},
		{start: 0x35b1800000, end: 0x35b1820000, off: 0x1000, name: "/usr/lib64/ld 2.15.so", dev: 8<<32 | 2, ino: 135522},
		{start: 0x7f0000000000, end: 0x7f0000001000, name: Anon},
		{start: 0x7f0000002000, end: 0x7f0000003000, name: Anon},
		{start: 0x7f0000004000, end: 0x7f0000005000, name: `/tmp/a\012b`, dev: 0xfd<<32 | 0x103, ino: ^uint64(0), deleted: true},
		{start: 0x7f0000006000, end: 0x7f0000007000, name: "[anon:jit]"},
		{start: 0x7ffff7fc1000, end: 0x7ffff7fc3000, name: VDSO},
		{start: 0xffffffffff600000, end: 0xffffffffff601000, name: "[vsyscall]"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	for addr, want := range map[uint64]string{
		0x3fffff:           "",
		0x400000:           "/usr/bin/dbus-daemon",
		0x451fff:           "/usr/bin/dbus-daemon",
		0x452000:           "",
		0x651000:           "", // not executable
		0x35b1810000:       "/usr/lib64/ld 2.15.so",
		0xffffffffff600fff: "[vsyscall]",
		0xffffffffff601000: "",
		^uint64(0):         "",
	} {
		name := ""
		if m := findMapping(got, addr); m != nil {
			name = m.name
		}
		if name != want {
			t.Errorf("%#x is in %q, want %q", addr, name, want)
		}
	}
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte(mapsText))
	f.Add([]byte("0-1 --x- 0 0: 0"))
	f.Add([]byte("ffffffffffffffff-0 r-xp 0 0:0 1 /"))
	f.Add([]byte("1-2 r-xp 0 0:0 99999999999999999999999 " + strings.Repeat("/x", 40000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		maps, err := parseMaps(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for i := range maps {
			m := &maps[i]
			if m.start >= m.end || m.name == "" {
				t.Fatalf("got %+v", m)
			}
			if i > 0 && m.start < maps[i-1].start {
				t.Fatalf("not in order: %+v", maps)
			}
			m.jit()
		}
		for _, m := range maps {
			if got := findMapping(maps, m.start); got != nil && (got.start > m.start || got.end <= m.start) {
				t.Fatalf("%#x found in %+v", m.start, got)
			}
		}
	})
}
