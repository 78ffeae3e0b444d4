// SPDX-License-Identifier: Apache-2.0

package pcapng

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	reader "seine/test/pcapng"
)

// file is one of each block.
func file() []byte {
	b := AppendSection(nil, &Section{OS: "Linux", App: "test"})
	b = AppendInterface(b, &Interface{Link: Ethernet, Name: "eth0", Description: "here"})
	b = AppendInterface(b, &Interface{Link: IP, Snaplen: 100, Name: "tun0"})
	b = AppendPacket(b, &Packet{Interface: 1, Time: 1794905439938381445, Data: []byte{0x45, 0, 0}, Len: 1500, Direction: Out, PID: 4711, TID: 4712, Dropped: 3, Comment: []byte("pid 4711 curl")})
	b = AppendPacket(b, &Packet{Data: make([]byte, 60), Len: 60})
	return AppendStats(b, &Stats{Interface: 1, Time: 1794905439938381446, Received: 1, Dropped: 3, Comment: "end"})
}

// TestBlocks: a reader that knows nothing of the writer finds what was written.
func TestBlocks(t *testing.T) {
	all, err := reader.Read(file())
	if err != nil {
		t.Fatal(err)
	}
	var kinds []uint32
	for _, b := range all {
		kinds = append(kinds, b.Type)
	}
	if len(kinds) != 6 || kinds[0] != reader.Section || kinds[1] != reader.Interface || kinds[3] != reader.Packet || kinds[5] != reader.Stats {
		t.Fatalf("blocks of types %v", kinds)
	}
	if got := all[2]; got.Link != 101 || string(got.Options[2]) != "tun0" || !bytes.Equal(got.Options[9], []byte{9}) {
		t.Errorf("second interface: %+v", got)
	}
	p := all[3]
	pid, tid, ok := p.Process()
	if !ok || pid != 4711 || tid != 4712 {
		t.Errorf("process %d, thread %d", pid, tid)
	}
	if p.Interface != 1 || p.Time != 1794905439938381445 || p.Len != 1500 || !bytes.Equal(p.Data, []byte{0x45, 0, 0}) {
		t.Errorf("packet: %+v", p)
	}
	if string(p.Options[1]) != "pid 4711 curl" || binary.LittleEndian.Uint32(p.Options[2]) != 2 || binary.LittleEndian.Uint64(p.Options[4]) != 3 {
		t.Errorf("options: %v", p.Options)
	}
	if _, _, ok := all[4].Process(); ok || len(all[4].Options) != 0 {
		t.Errorf("a packet without a process has options %v", all[4].Options)
	}
	if s := all[5]; binary.LittleEndian.Uint64(s.Options[4]) != 1 || binary.LittleEndian.Uint64(s.Options[5]) != 3 || string(s.Options[1]) != "end" {
		t.Errorf("statistics: %v", s.Options)
	}
}

// TestLong: a text does not outgrow its option, and a block is no longer than PacketMost says.
func TestLong(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 4, 5000, 70000} {
		p := &Packet{Data: make([]byte, n), Direction: In, PID: 1, Dropped: 1, Comment: []byte(strings.Repeat("x", n))}
		b := AppendPacket(nil, p)
		if len(b) > PacketMost(n, n) {
			t.Errorf("%d bytes of data and comment make a block of %d, more than %d", n, len(b), PacketMost(n, n))
		}
		whole := append(AppendInterface(AppendSection(nil, &Section{}), &Interface{}), b...)
		if _, err := reader.Read(whole); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestTshark: tshark reads the file, with the comment and the interface of each packet.
func TestTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("no tshark: make test installs it")
	}
	name := filepath.Join(t.TempDir(), "a.pcapng")
	if err := os.WriteFile(name, file(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tshark", "-r", name, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.cap_len", "-e", "frame.interface_name", "-e", "frame.comment").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "1794905439.938381445\t1500\t3\ttun0\tpid 4711 curl\n0.000000000\t60\t60\teth0\t\n"
	if string(out) != want {
		t.Errorf("tshark says\n%swant\n%s", out, want)
	}
}
