// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
)

func TestMain(m *testing.M) {
	if tool := os.Getenv(asPreparing); tool != "" {
		exit(prepare(tool))
	}
	lab.Main() // does not return in the processes of a load
	os.Exit(m.Run())
}

// An event of a least program, as far as a test looks at it.
type told struct {
	bytes       int
	netns, pid  uint32
	name        string // of the process
	local, peer uint16 // ports
	family      uint16
}

// eventsOf runs some sessions beside least programs, and returns the events.
func eventsOf(t *testing.T, sessions int, hooks []*empty) (all []told) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loading BPF programs needs root")
	}
	var mu sync.Mutex
	for _, h := range hooks {
		h.heard = func(e []byte) {
			mu.Lock()
			defer mu.Unlock()
			port := func(at int) uint16 { return binary.BigEndian.Uint16(e[at:]) }
			all = append(all, told{
				bytes: len(e), netns: binary.NativeEndian.Uint32(e[eventNetns:]),
				pid: binary.NativeEndian.Uint32(e[eventWho+whoPID:]), name: unix.ByteSliceToString(e[eventWho+whoComm : eventWho+whoComm+16]),
				local: port(eventTuple + 32), peer: port(eventTuple + 34),
				family: binary.NativeEndian.Uint16(e[eventTuple+36:]),
			})
		}
		defer func() { h.heard = nil }()
	}
	mountTracefs(t)
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	o := &options{sessions: sessions}
	ran := false
	err = o.onHooks(hooks, func() error {
		if err := o.sessionsIn(w); err != nil {
			return err
		}
		return drained(hooks)
	}, func(cost) { ran = true })
	if err != nil {
		t.Fatal(err)
	}
	if !ran {
		if k, err := probe.Running(); err != nil || k.HasFunc("bpf_rdonly_cast") { // the newest thing that they need
			t.Fatalf("a tracepoint or a type is missing, %v", err)
		}
		t.Skip("the kernel lacks a tracepoint or a type")
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.DeleteFunc(all, func(e told) bool { return e.netns != w.Netns("host") }) // of others on this machine
}

// mountTracefs mounts tracefs where cilium/ebpf looks for it, for this test alone: its thread ends with it.
func mountTracefs(t *testing.T) {
	t.Helper()
	const at = "/sys/kernel/tracing"
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if _, e := os.Stat(at + "/events"); err == nil && e != nil {
		err = unix.Mount("tracefs", at, "tracefs", 0, "")
	}
	if err != nil {
		t.Fatalf("mount tracefs: %v", err)
	}
}

// drained waits until the events of all programs are read.
func drained(hooks []*empty) error {
	end := time.Now().Add(10 * time.Second)
	for _, h := range hooks {
		for h.read != nil && h.read.AvailableBytes() > 0 {
			if time.Now().After(end) {
				return errors.New("events are left in a ring")
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// The least programs of a tool send as many events as the tool shows rows, each with a process and ports. So they find what
// they look up, and their floor is not one of programs that leave early.
func TestLeastEvents(t *testing.T) {
	const sessions = 101
	for name, want := range map[string]map[string]int{
		"tcplife":   {"lab-client": 1, "lab-server": 1},
		"tcpstates": {"lab-client": 5, "lab-server": 5}, // the listener's when it is not accepted yet
		"tcpaccept": {"lab-server": 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]int{}
			pids := map[uint32]bool{}
			for _, e := range eventsOf(t, sessions, leasts[name]) {
				got[e.name]++
				pids[e.pid] = true
				if e.pid == 0 || e.peer == 0 {
					t.Errorf("an event has no process or no port of the peer: %+v", e)
				}
			}
			for process, n := range want {
				if got[process] != n*sessions {
					t.Errorf("got %d events of %s, want %d", got[process], process, n*sessions)
				}
			}
			if len(got) != len(want) || len(pids) != len(want) {
				t.Errorf("got events of %v, with %d processes; want %d", got, len(pids), len(want))
			}
		})
	}
}

// At each send, the least programs of owners find the process: in the socket's storage, and in the table that connect(2) and accept(2)
// fill.
func TestLeastOwners(t *testing.T) {
	const sessions = 101
	says := says(changeBytes, heads, owner, tuple)
	for name, hooks := range map[string][]*empty{
		"storage": {{tracepoint: "sock_send_length", does: does(stores, compares, clock, says)}},
		"table":   append([]*empty{{tracepoint: "sock_send_length", does: does(looksUp, clock, says)}}, calls[:len(calls)-len(follow)]...),
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]int{}
			for _, e := range eventsOf(t, sessions, hooks) {
				if e.family == unix.AF_INET {
					got[e.name]++
				}
			}
			for _, process := range []string{"lab-client", "lab-server"} {
				if got[process] != sessions {
					t.Errorf("got %d sends of %s, want %d", got[process], process, sessions)
				}
			}
		})
	}
}

// Those of ten tools send all events of tcpstates, tcplife and tcpaccept, in one program at each hook or in several.
func TestLeastTogether(t *testing.T) {
	const sessions = 101
	for name, hooks := range map[string][]*empty{"together": leastTogether, "apart": leastApart} {
		t.Run(name, func(t *testing.T) {
			got := map[int]int{}
			for _, e := range eventsOf(t, sessions, hooks) {
				if got[e.bytes]++; e.pid == 0 || e.peer == 0 {
					t.Errorf("an event has no process or no port of the peer: %+v", e)
				}
			}
			for bytes, want := range map[int]int{changeBytes: 10, lifeBytes: 2, acceptBytes: 1} {
				if got[bytes] != want*sessions {
					t.Errorf("got %d events of %d bytes, want %d", got[bytes], bytes, want*sessions)
				}
			}
		})
	}
}
