// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"slices"
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
