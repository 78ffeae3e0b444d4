// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/internal/lab"
	"seine/test/pcapng"
)

// need skips a test if programs that make test installs are missing.
func need(t *testing.T, programs ...string) {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s: make test installs it", p)
		}
	}
}

// tcpdump captures a device of a host until stop is called, which returns the packets.
func tcpdump(t *testing.T, w *lab.World, host, dev string) (stop func() []pcapng.Frame) {
	name := filepath.Join(t.TempDir(), "tcpdump.pcap")
	cmd := exec.Command("tcpdump", "-i", dev, "-w", name, "-U", "--immediate-mode", "-B", "65536", "-Z", "root")
	said := &text{new: make(chan struct{}, 1)}
	cmd.Stderr = said
	if err := w.Do(host, cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for begin := time.Now(); !strings.Contains(said.String(), "listening on"); {
		select {
		case <-said.new:
		case <-time.After(time.Second):
		}
		if time.Since(begin) > patience {
			t.Fatalf("tcpdump says %s", said)
		}
	}
	return func() []pcapng.Frame {
		cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("tcpdump: %v: %s", err, said)
		}
		if !strings.Contains(said.String(), "\n0 packets dropped by kernel") {
			t.Fatalf("tcpdump says %s", said)
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pcapng.Frames(b)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
}

// blocks reads a file that seine has written.
func blocks(t *testing.T, name string) []pcapng.Block {
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pcapng.Read(b)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return all
}

// ports are the ports of an IPv4 packet in an Ethernet frame, which may have a
// VLAN tag.
func ports(frame []byte) (src, dst int) {
	if len(frame) > 18 && frame[12] == 0x81 && frame[13] == 0 {
		frame = append(slices.Clone(frame[:12]), frame[16:]...)
	}
	if len(frame) < 38 || frame[12] != 8 || frame[13] != 0 {
		return 0, 0
	}
	l4 := frame[14+4*int(frame[14]&15):]
	return int(binary.BigEndian.Uint16(l4)), int(binary.BigEndian.Uint16(l4[2:]))
}

// TestCapture: the file has the packets that tcpdump has, byte by byte, each with its process; tshark
// reads the same out of it.
func TestCapture(t *testing.T) { captures(t, 0) }

// TestCaptureVLAN: the same if all packets have a VLAN tag on the wire.
func TestCaptureVLAN(t *testing.T) { captures(t, 3<<13|1234) }

func captures(t *testing.T, tag uint16) {
	need(t, "tcpdump", "tshark")
	t.Parallel()
	w, err := lab.NewWorld(lab.Options{Hosts: lab.TwoHosts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	for _, host := range lab.TwoHosts {
		if tag == 0 {
			break
		}
		if _, err := w.TagVLAN(host, "eth0", tag); errors.Is(err, lab.ErrNotSupported) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	s, err := lab.StartTCP(w, lab.Sessions{Count: 13, Send: 101, Recv: 20011})
	if err != nil {
		t.Fatal(err)
	}
	f, err := lab.StartFlood(w, lab.Flood{Count: 101, Size: 73})
	if err != nil {
		t.Fatal(err)
	}
	procs := map[int]*lab.Proc{s.Port: s.Server, f.Port: f.Server}
	others := map[int]*lab.Proc{s.Port: s.Client, f.Port: f.Client}
	name := filepath.Join(t.TempDir(), "a.pcapng")
	// Round by round: see lab.Undisturbed. Children serve one round only.
	stop := tcpdump(t, w, "client", "eth0")
	p := start(t, nil, "capture", "-w", name, fmt.Sprintf("--netns=%d", w.Netns("client")), "--dev=eth0")
	if _, err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(); err != nil {
		t.Fatal(err)
	}
	if err := w.Closed(); err != nil {
		t.Fatal(err)
	}
	theirs := stop()
	p.signal(syscall.SIGINT)
	p.wantEnd(0)

	want := map[string]int{}
	packets := 0
	for _, one := range theirs {
		frame := one.Data
		if src, dst := ports(frame); procs[src] != nil || procs[dst] != nil {
			want[string(frame)]++
			packets++
		}
	}
	if packets < 13*7+101 {
		t.Fatalf("tcpdump has %d packets, want %d at least", packets, 13*7+101)
	}
	all := blocks(t, name)
	var lines []string
	for _, b := range all {
		switch b.Type {
		case pcapng.Interface:
			if string(b.Options[2]) != "eth0" || string(b.Options[3]) != fmt.Sprintf("network namespace %d", w.Netns("client")) {
				t.Errorf("interface %q, %q", b.Options[2], b.Options[3])
			}
		case pcapng.Packet:
			src, dst := ports(b.Data)
			owner, out := others[dst], true
			if owner == nil {
				owner, out = others[src], false
			}
			if owner == nil {
				lines = append(lines, fmt.Sprint(len(b.Data)))
				continue
			}
			if has := binary.BigEndian.Uint16(b.Data[14:]) == tag && b.Data[12] == 0x81; has != (tag != 0) {
				t.Errorf("%d to %d: the tag is not %#x: %x", src, dst, tag, b.Data[:20])
			}
			if want[string(b.Data)]--; want[string(b.Data)] < 0 {
				t.Errorf("tcpdump has not seen %x", b.Data[:54])
			}
			pid, tid, ok := b.Process()
			if !ok || int(pid) != owner.PID || tid == 0 {
				t.Errorf("%d to %d: process %d, thread %d, want %d", src, dst, pid, tid, owner.PID)
			}
			if flags := b.Options[2]; len(flags) != 4 || flags[0] != map[bool]byte{false: 1, true: 2}[out] {
				t.Errorf("%d to %d: flags %v", src, dst, flags)
			}
			lines = append(lines, fmt.Sprintf("%d\teth0\tpid %d %s", b.Len, owner.PID, owner.Comm))
		}
	}
	for frame, n := range want {
		if n > 0 {
			t.Errorf("%d times missing: %x", n, frame[:54])
		}
	}
	last := all[len(all)-1]
	if last.Type != pcapng.Stats || binary.LittleEndian.Uint64(last.Options[4]) != uint64(len(lines)) || binary.LittleEndian.Uint64(last.Options[5]) != 0 {
		t.Errorf("the last block is %+v, want statistics of %d packets", last, len(lines))
	}
	out, err := exec.Command("tshark", "-r", name, "-T", "fields", "-e", "frame.len", "-e", "frame.interface_name", "-e", "frame.comment").Output()
	if err != nil {
		t.Fatal(err)
	}
	read := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(read) != len(lines) {
		t.Fatalf("tshark reads %d packets, want %d", len(read), len(lines))
	}
	for i := range lines {
		if strings.Contains(lines[i], "pid") && read[i] != lines[i] {
			t.Errorf("packet %d: tshark reads %q, want %q", i, read[i], lines[i])
		}
	}
}

// TestCaptureRing: files keep within their size, each is complete, and together
// they have the last packets.
func TestCaptureRing(t *testing.T) {
	t.Parallel()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	const count = 4001
	f, err := lab.StartFlood(w, lab.Flood{Count: count, Size: 1200})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := start(t, nil, "capture", "-w", filepath.Join(dir, "a.pcapng"), "--ring", "3x1M", fmt.Sprintf("--netns=%d", w.Netns("")), fmt.Sprintf("--port=%d", f.Port), "--buffer=16M")
	r, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	if !strings.Contains(p.err.String(), ", 0 lost") {
		t.Fatalf("seine says %s", p.err.String())
	}
	var packets, first int
	latest := uint64(0)
	for i := range 3 {
		name := filepath.Join(dir, fmt.Sprintf("a-%d.pcapng", i))
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > 1<<20 || st.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes, mode %v", name, st.Size(), st.Mode())
		}
		all := blocks(t, name)
		if all[0].Type != pcapng.Section || all[len(all)-1].Type != pcapng.Stats {
			t.Errorf("%s is not whole", name)
		}
		for _, b := range all {
			if b.Type == pcapng.Packet {
				packets++
				if b.Time > latest {
					latest, first = b.Time, i
				}
			}
		}
	}
	// 4001 packets of 1.3 KB are 5.2 MB: files were overwritten, and two of
	// them are full.
	if least := 2 * (1 << 20) / 1400; packets < least || packets >= r.Sent {
		t.Errorf("%d packets of %d in 3 files, want %d at least", packets, r.Sent, least)
	}
	t.Logf("%d of %d packets, the latest in file %d", packets, r.Sent, first)
}

// TestCaptureRate: of 100,000 packets a second all are in the file, or are counted as lost.
func TestCaptureRate(t *testing.T) {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	f, err := lab.StartFlood(w, lab.Flood{Count: 200003, Size: 100})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "a.pcapng")
	p := start(t, nil, "capture", "-w", name, fmt.Sprintf("--netns=%d", w.Netns("")), fmt.Sprintf("--port=%d", f.Port), "--stats")
	r, err := f.Run()
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	packets, dropped := 0, uint64(0)
	for _, b := range blocks(t, name) {
		switch b.Type {
		case pcapng.Packet:
			packets++
		case pcapng.Stats:
			dropped = binary.LittleEndian.Uint64(b.Options[5])
			var more uint64
			fmt.Sscanf(string(b.Options[1]), "%d more packets", &more)
			dropped += more
		}
	}
	if packets+int(dropped) != r.Sent {
		t.Errorf("%d packets and %d lost, want %d", packets, dropped, r.Sent)
	}
	t.Logf("%d packets at %.0f a second, %d lost; %s", r.Sent, float64(r.Sent)/time.Duration(r.NS).Seconds(), dropped, p.err.String())
}
