// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	seinehost "seine/internal/host"
)

// Options describes a world. The zero value is one host with only loopback.
type Options struct {
	// Hosts are names of network namespaces. Each pair of them is joined by a
	// veth pair, and each host has one IPv4 and one IPv6 address on all its
	// links. Default: one host, "host".
	Hosts []string
	// Timeout is how long to wait for a child's report, and for a child's end,
	// before giving up on it. Default: one minute, ten where the machine is
	// emulated.
	Timeout time.Duration
	// Thread, if set, makes children run their bodies on a thread of this
	// name, which is not their first one.
	Thread string
}

// TwoHosts are the hosts of most worlds: StartTCP and its like put the client on
// the first one and the server on the last.
var TwoHosts = []string{"client", "server"}

// World is one or more private network namespaces, called hosts. It vanishes
// with Close, and with the process in any case.
//
// Neighbours are known from the start and duplicate address detection is off,
// so that the only packets are those of the workload and, within the first
// seconds, IPv6's multicast listener reports. Ephemeral ports are 10000 to
// 65535: 55,000 sessions fit between two addresses before TIME_WAIT ends, and a
// workload that wants a fixed port takes one below.
type World struct {
	hosts   []*host
	timeout time.Duration
	thread  string

	serial atomic.Int64 // for names in dir

	mu      sync.Mutex
	procs   []*Proc
	stopped bool
	dir     string
}

// host is one network namespace. A thread lives in it as long as the world
// does: children are forked there, since the death signal of a child is tied
// to the thread, not to the process, that made it.
type host struct {
	name  string
	ns    *os.File
	inode uint32
	jobs  chan func()
	gone  chan struct{} // closed when the thread has left its loop
	addr4 netip.Addr
	addr6 netip.Addr // not valid where IPv6 is switched off
	devs  []string
}

// NewWorld makes the namespaces and returns when every link is up and every
// address can be used.
func NewWorld(opts Options) (*World, error) {
	if seinehost.Elevated() {
		return nil, errors.New("this binary has capabilities of its own (setcap): it makes no traffic: run a copy without them as root")
	}
	if len(opts.Hosts) == 0 {
		opts.Hosts = []string{"host"}
	}
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
		if Emulated() {
			opts.Timeout *= 10
		}
	}
	w := &World{timeout: opts.Timeout, thread: opts.Thread}
	for i, name := range opts.Hosts {
		if slices.Contains(opts.Hosts[:i], name) {
			w.Close()
			return nil, fmt.Errorf("lab: two hosts are called %q", name)
		}
		h, err := newHost(name)
		if err == nil {
			w.hosts = append(w.hosts, h)
			err = h.do(h.loopback)
		}
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("lab: host %s: %w", name, err)
		}
	}
	if err := w.join(); err != nil {
		w.Close()
		return nil, fmt.Errorf("lab: %w", err)
	}
	return w, nil
}

// newHost makes a network namespace and the thread that stays in it.
func newHost(name string) (*host, error) {
	h := &host{
		name:  name,
		jobs:  make(chan func()),
		gone:  make(chan struct{}),
		addr4: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	}
	made := make(chan error)
	seinehost.OnThread(func() {
		defer close(h.gone)
		if err := h.unshare(); err != nil {
			made <- err
			return
		}
		made <- nil
		for job := range h.jobs {
			job()
		}
	})
	return h, <-made
}

// unshare moves the calling thread into a new namespace and keeps it open.
func (h *host) unshare() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("new network namespace: %w: it needs CAP_SYS_ADMIN: run as root", err)
		}
		return fmt.Errorf("new network namespace: %w", err)
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		ns.Close()
		return err
	}
	h.ns, h.inode = ns, uint32(st.Ino)
	return nil
}

// do runs fn on the host's own thread and waits for it.
func (h *host) do(fn func() error) error {
	done := make(chan error, 1)
	h.jobs <- func() { done <- fn() }
	return <-done
}

// host finds a host by name; "" is the first one.
func (w *World) host(name string) (*host, error) {
	for _, h := range w.hosts {
		if h.name == name || name == "" {
			return h, nil
		}
	}
	return nil, fmt.Errorf("lab: no host %q in this world", name)
}

// must finds a host for the getters, where a wrong name is a mistake in the
// program.
func (w *World) must(name string) *host {
	h, err := w.host(name)
	if err != nil {
		panic(err)
	}
	return h
}

// Hosts lists the hosts by name.
func (w *World) Hosts() []string {
	names := make([]string, len(w.hosts))
	for i, h := range w.hosts {
		names[i] = h.name
	}
	return names
}

// Netns is the inode number of a host's namespace, as --netns takes it. Here
// and below "" means the first host; a name that is not a host's panics.
func (w *World) Netns(host string) uint32 { return w.must(host).inode }

// Addr4 is the host's IPv4 address: 127.0.0.1 in a world of one host, else one
// of 192.0.2.0/24.
func (w *World) Addr4(host string) netip.Addr { return w.must(host).addr4 }

// Addr6 is the host's IPv6 address: ::1 in a world of one host, else one of
// 2001:db8::/64. It is not valid where the kernel has IPv6 switched off.
func (w *World) Addr6(host string) netip.Addr { return w.must(host).addr6 }

// Devs lists the host's veth devices, one for each other host, in their order.
func (w *World) Devs(host string) []string { return slices.Clone(w.must(host).devs) }

// Do runs fn on a thread inside the host's namespace and waits for it: sockets
// made by fn belong to the host, and so do /proc/thread-self/net and
// /proc/sys/net while fn runs. fn must not start goroutines that need to be
// there too. The thread is thrown away afterwards.
func (w *World) Do(host string, fn func() error) error {
	h, err := w.host(host)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	seinehost.OnThread(func() {
		if err := unix.Setns(int(h.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("lab: enter host %s: %w", h.name, err)
			return
		}
		done <- fn()
	})
	return <-done
}

// Dir is a directory of the world's own, for UNIX sockets and files. It is made
// at the first call and removed by Close.
func (w *World) Dir() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dir == "" {
		dir, err := os.MkdirTemp("", "lab")
		if err != nil {
			return "", fmt.Errorf("lab: %w", err)
		}
		w.dir = dir
	}
	return w.dir, nil
}

// path is a new path in the world's directory.
func (w *World) path(name string) (string, error) {
	dir, err := w.Dir()
	return fmt.Sprintf("%s/%s%d", dir, name, w.serial.Add(1)), err
}

// Stop kills the children and prevents new ones, so that a workload in another
// goroutine ends with an error.
func (w *World) Stop() {
	w.mu.Lock()
	procs := w.procs
	w.procs, w.stopped = nil, true
	w.mu.Unlock()
	for _, p := range procs {
		p.Kill()
	}
}

// Procs lists the children that were ever started.
func (w *World) Procs() []*Proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.procs)
}

// add takes a child into the world, unless that has been stopped.
func (w *World) add(p *Proc) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return errors.New("the world has been stopped")
	}
	w.procs = append(w.procs, p)
	return nil
}

// Close kills the remaining children and releases the namespaces. No workload
// may be running: see Stop.
func (w *World) Close() error {
	w.Stop()
	w.mu.Lock()
	dir := w.dir
	w.dir = ""
	w.mu.Unlock()
	for _, h := range w.hosts {
		close(h.jobs)
		<-h.gone
		h.ns.Close()
	}
	w.hosts = nil
	if dir != "" {
		return os.RemoveAll(dir)
	}
	return nil
}
