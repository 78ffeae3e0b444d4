// SPDX-License-Identifier: Apache-2.0

package qdisclat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/probe"
)

// TestUnused: each reason why no device uses a queueing discipline has its own
// message.
func TestUnused(t *testing.T) {
	for _, c := range []struct {
		kind   string
		p      presence
		note   string
		refuse string
	}{
		{"tbf", loaded, "no device uses tbf: there is nothing to see until 'tc qdisc add dev DEV root tbf …'", ""},
		{"fq", onDisk, "fq is not loaded: 'modprobe sch_fq', or let tc do it: 'tc qdisc add dev DEV root fq …'", ""},
		{"cbq", absent, "", "CBQ no longer exists"},
		{"fq", absent, "", "there is no queueing discipline fq, built in or as a module sch_fq"},
		{"tbff", absent, "", "did you mean tbf?"},
	} {
		notes, err := unused(c.kind, c.p)
		if got := strings.Join(notes, "\n"); got != c.note {
			t.Errorf("%s, %d: %q, want %q", c.kind, c.p, got, c.note)
		}
		if c.refuse == "" && err != nil || c.refuse != "" && (!errors.Is(err, probe.ErrNotSupported) || !strings.Contains(fmt.Sprint(err), c.refuse)) {
			t.Errorf("%s, %d: error %v, want %q", c.kind, c.p, err, c.refuse)
		}
	}
}

// TestHidden: a queue below another one needs kprobes.
func TestHidden(t *testing.T) {
	below := instance{kind: "fq_codel", dev: "eth0", child: true, under: "htb"}
	own := instance{kind: "fq_codel", dev: "eth1"}
	none := errors.New("no kprobes")
	for _, c := range []struct {
		all       []instance
		functions error
		notes     int
		refused   bool
	}{
		{[]instance{below}, nil, 0, false},
		{[]instance{own}, none, 0, false},
		{[]instance{own, below}, none, 1, false},
		{[]instance{below}, none, 0, true},
	} {
		notes, err := hidden("fq_codel", c.all, c.functions)
		if len(notes) != c.notes || (err != nil) != c.refused {
			t.Errorf("%v, %v: %q, %v", c.all, c.functions, notes, err)
		}
		if err != nil && !strings.Contains(err.Error(), "fq_codel of eth0 is below htb: without kprobes") {
			t.Errorf("%v", err)
		}
	}
}

// TestFamily: a child of mq is the root of a transmit queue.
func TestFamily(t *testing.T) {
	one := netlink.MakeHandle(1, 0)
	got := family([]qdisc{
		{"mq", 2, 0, netlink.HANDLE_ROOT}, {"fq_codel", 2, 0, 1},
		{"htb", 3, one, netlink.HANDLE_ROOT}, {"fq_codel", 3, netlink.MakeHandle(0x8001, 0), one | 10},
	}, map[int]string{2: "eth0", 3: "eth1"})
	want := []instance{
		{"mq", "eth0", false, ""}, {"fq_codel", "eth0", false, "mq"}, {"htb", "eth1", false, ""}, {"fq_codel", "eth1", true, "htb"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestFind: functions are found by name, even with a suffix of the compiler;
// modules by file.
func TestFind(t *testing.T) {
	symbols := []byte("0000000000000000 t tbf_enqueue\n0000000000000000 t codel_qdisc_enqueue.cold\t[sch_codel]\n0000000000000000 t etf_enqueue_timesortedlist [sch_etf]\n")
	for kind, want := range map[string]bool{"tbf": true, "codel": true, "etf": true, "fq": false, "bf": false, "tb": false} {
		if got := hasFunction(symbols, kind); got != want {
			t.Errorf("%s: %v, want %v", kind, got, want)
		}
	}
	dep := []byte("kernel/net/sched/sch_fq.ko.xz:\nkernel/net/sched/sch_fq_codel.ko.xz:\n")
	for kind, want := range map[string]bool{"fq": true, "fq_codel": true, "codel": false} {
		if got := hasModule(dep, kind); got != want {
			t.Errorf("module of %s: %v, want %v", kind, got, want)
		}
	}
}

// TestInstances: queues of a namespace without a process, which only
// ip-netns(8) holds, are found. Namespaces that cannot be read are reported.
func TestInstances(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a namespace needs root")
	}
	const name = "seine-qdisclat-test"
	path := "/run/netns/" + name
	made := make(chan error)
	host.OnThread(func() { made <- makeNamed(path) })
	t.Cleanup(func() {
		unix.Unmount(path, unix.MNT_DETACH)
		os.Remove(path)
	})
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	ino, err := host.NetnsInode(name)
	if err != nil {
		t.Fatal(err)
	}
	all, whole := instances([]uint32{ino})
	if !whole || len(all) != 1 || all[0].kind != "noqueue" || all[0].dev != "lo" {
		t.Errorf("%v, %v, want noqueue of lo, and that this is all", all, whole)
	}
	if all, whole := instances([]uint32{ino, 1}); whole {
		t.Errorf("%v are all of two namespaces, want a doubt: one does not exist", all)
	}
}

// makeNamed makes a namespace and leaves it, as ip-netns(8) does.
func makeNamed(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}
