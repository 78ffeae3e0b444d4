// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestAllNetns(t *testing.T) {
	own, err := netnsFile("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	all := AllNetns()
	i := slices.IndexFunc(all, func(n Netns) bool { return n.Inode == own })
	if i < 0 {
		t.Fatalf("our own namespace %d is not among %v", own, all)
	}
	c, err := countersOf(all[i])
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c["IpInReceives"]; !ok {
		t.Errorf("no counter IpInReceives among %d", len(c))
	}
}

func TestCountersByName(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("entering a namespace needs root")
	}
	n := Netns{path: t.TempDir() + "/blue"} // as ip-netns has it: not under /proc
	if err := os.Symlink("/proc/self/ns/net", n.path); err != nil {
		t.Fatal(err)
	}
	c, err := countersOf(n)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c["TcpExtListenDrops"]; !ok {
		t.Errorf("no counter TcpExtListenDrops among %d", len(c))
	}
}

func countersOf(n Netns) (Counters, error) {
	files, err := n.Open()
	if err != nil {
		return nil, err
	}
	defer files.Close()
	return files.Read()
}

// TestCountersChanged: only files that have changed are parsed, and together they say what Read says.
func TestCountersChanged(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("snmp", "Tcp: InSegs OutSegs\nTcp: 7 8\n")
	write("netstat", "TcpExt: ListenDrops\nTcpExt: 9\n")
	files, err := OpenCounters(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	r := CounterReader{CounterFiles: files}
	var buf []byte // too small at first
	want := func(when string, want Counters) {
		t.Helper()
		var got Counters
		if got, buf, err = r.Changed(buf); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v (%v), want %v", when, got, err, want)
		}
	}
	want("first", Counters{"TcpInSegs": 7, "TcpOutSegs": 8, "TcpExtListenDrops": 9})
	want("nothing changed", Counters{})
	write("netstat", "TcpExt: ListenDrops\nTcpExt: 10\n")
	want("one changed", Counters{"TcpExtListenDrops": 10})
	write("snmp", "Tcp: InSegs OutSegs\nTcp: 6 8\n")
	want("shorter or equal", Counters{"TcpInSegs": 6, "TcpOutSegs": 8})
	long := "TcpExt:" + strings.Repeat(" A", 5000) + "\nTcpExt:" + strings.Repeat(" 1", 5000) + "\n"
	write("netstat", long)
	want("larger than the buffer", Counters{"TcpExtA": 1})
	if got, err := files.Read(); err != nil || !maps.Equal(got, Counters{"TcpInSegs": 6, "TcpOutSegs": 8, "TcpExtA": 1}) {
		t.Errorf("Read says %v (%v)", got, err)
	}
	write("netstat", "TcpExt: ListenDrops\n")
	if _, _, err := r.Changed(buf); err == nil {
		t.Error("a line of names without values is accepted")
	}
}
