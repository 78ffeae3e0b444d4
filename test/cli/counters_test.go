// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/lab"
)

// TestCountersOfAllNamespaces: skbdrop reads the counters of every network namespace
// after it has given up its privileges: namespaces with only a thread in them, with
// only a name, and newer ones. It reports the namespaces that it cannot read.
func TestCountersOfAllNamespaces(t *testing.T) {
	t.Parallel()
	world := func() *lab.World {
		w, err := lab.NewWorld(lab.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return w
	}
	want := map[uint32]uint64{}
	before, named := world(), nameNetns(t, "before")
	p := start(t, nil, "skbdrop", "--view=counters", "-o", "json")
	noPorts(t, before.Do, 23)
	want[before.Netns("")] = 23
	after := world()
	noPorts(t, after.Do, 13)
	want[after.Netns("")] = 13
	noPorts(t, named.do, 7)
	want[named.inode] = 7
	late := nameNetns(t, "late")
	noPorts(t, late.do, 5)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	got := map[uint32]uint64{}
	for line := range strings.Lines(p.out.String()) {
		var r struct {
			Netns   uint32
			Counter string
			Count   uint64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Counter == "UdpNoPorts" {
			got[r.Netns] += r.Count
		}
	}
	for netns, n := range want {
		if got[netns] != n {
			t.Errorf("UdpNoPorts of namespace %d grew by %d, want %d", netns, got[netns], n)
		}
	}
	if n, shown := got[late.inode]; shown {
		t.Errorf("UdpNoPorts of a namespace that nobody may enter grew by %d", n)
	}
	const said = "could not be read: no process is in it, and it was named after the start of the tool: start the tool again"
	if !strings.Contains(p.err.String(), said) {
		t.Errorf("stderr %q does not say %q", p.err.String(), said)
	}
}

// noPorts sends datagrams to a loopback port without a socket, and waits until the
// kernel has counted them.
func noPorts(t *testing.T, do func(string, func() error) error, n int) {
	t.Helper()
	err := do("", func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		before, err := host.ReadCounters("/proc/thread-self/net")
		if err != nil {
			return err
		}
		for range n {
			if err := unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				return err
			}
		}
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			c, err := host.ReadCounters("/proc/thread-self/net")
			if err != nil || c["UdpNoPorts"]-before["UdpNoPorts"] >= int64(n) {
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("of %d datagrams %d were counted", n, c["UdpNoPorts"]-before["UdpNoPorts"])
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A netns is a network namespace that only a name holds.
type netns struct {
	path  string
	inode uint32
}

func nameNetns(t *testing.T, name string) netns {
	t.Helper()
	n := netns{path: filepath.Join("/run/netns", fmt.Sprintf("seine-%s-%d", name, os.Getpid()))}
	err := os.MkdirAll("/run/netns", 0o755)
	if err == nil {
		err = os.WriteFile(n.path, nil, 0o444)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Unmount(n.path, unix.MNT_DETACH)
		os.Remove(n.path)
	})
	done := make(chan error)
	host.OnThread(func() {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp()
		}
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", n.path, "", unix.MS_BIND, "")
		}
		done <- err
	})
	if err = <-done; err == nil {
		n.inode, err = host.NetnsInode(n.path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// do runs fn on a thread that is in the namespace and ends.
func (n netns) do(_ string, fn func() error) error {
	done := make(chan error)
	host.OnThread(func() {
		ns, err := os.Open(n.path)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err == nil {
			err = fn()
		}
		done <- err
	})
	return <-done
}
