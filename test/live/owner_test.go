// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/cli"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

const (
	bodyShares     = "live-shares"
	bodyTakes      = "live-takes"
	bodyLeaderless = "live-leaderless"
)

func init() {
	lab.Register(bodyShares, shares)
	lab.Register(bodyTakes, takes)
	lab.Register(bodyLeaderless, leaderless)
}

// pair is the two ends of a connection of a process with itself.
func pair(n lab.Network) ([]int, error) {
	l, port, err := lab.Listen(n, "127.0.0.1:0", 1)
	if err != nil {
		return nil, err
	}
	defer lab.Close(l)
	w, err := lab.Connect(n, fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return nil, err
	}
	r, err := lab.Accept(l)
	return []int{w, r}, err
}

// shared is sockets that two processes use.
type shared struct {
	PID int
	FDs []int
}

// shares opens connections and uses them all the time.
func shares(c *lab.Child) error {
	s := shared{PID: os.Getpid()}
	for range 4 {
		ends, err := pair(lab.TCP4)
		if err != nil {
			return err
		}
		s.FDs = append(s.FDs, ends...)
	}
	if err := c.Report(s); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	return use(c, s.FDs)
}

// takes takes the sockets of another process and uses them all the time.
func takes(c *lab.Child) error {
	var s shared
	if err := c.Arg(&s); err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return err
	}
	for i := range s.FDs {
		if s.FDs[i], err = unix.PidfdGetfd(pidfd, s.FDs[i], 0); err != nil {
			return err
		}
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	return use(c, s.FDs)
}

// use sends and receives on sockets until it is told to end.
func use(c *lab.Child, fds []int) error {
	b := make([]byte, 1<<16)
	for !c.Told() {
		for _, fd := range fds {
			err := unix.Sendto(fd, b[:1], unix.MSG_DONTWAIT, nil)
			if err == nil || errors.Is(err, unix.EAGAIN) {
				_, _, err = unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
			}
			if err != nil && !errors.Is(err, unix.EAGAIN) {
				return err
			}
		}
	}
	return nil
}

// TestOwnerWhole: two processes use the same sockets at the same time, so their owner
// changes all the time. Each row shows one of them, never a mixture.
func TestOwnerWhole(t *testing.T) {
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	if k.Args("sock_recv_length") == nil {
		t.Skip("this kernel tells of no send")
	}
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var s shared
	var ready bool
	a, err := w.Start("", "aaaaaaaaaaaaaaa", bodyShares, nil)
	if err == nil {
		err = a.Expect(&s)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.Start("", "bbbbbbbbbbbbbbb", bodyTakes, s)
	if err == nil {
		err = b.Expect(&ready)
	}
	if err != nil {
		t.Fatal(err)
	}
	tl := named(t, "tcptop")
	c := trial.Case{Name: "whole", Run: func(x *trial.Trial) error {
		x.World = w
		if err := x.Attach("--interval=1ms"); err != nil {
			return err
		}
		if err := errors.Join(a.Tell("go"), b.Tell("go")); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		x.Until(func(rows []*row.Row) bool { return both(byProcess(rows), a, b) })
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		return onlyThey(byProcess(rows), a, b)
	}}
	if _, err := trial.RunCase(t.Context(), tl, c, ""); err != nil {
		t.Error(err)
	}
	seen, broken := hammer(t, tl, a, b)
	t.Logf("read: %v; broken copies: %d", seen, broken)
	if err := errors.Join(onlyThey(seen, a, b), a.Tell("end"), b.Tell("end"), a.Wait(), b.Wait()); err != nil {
		t.Error(err)
	}
}

// byProcess counts rows by PID and name.
func byProcess(rows []*row.Row) map[string]int {
	seen := map[string]int{}
	for _, r := range rows {
		seen[trial.Values(r, "pid", "comm")]++
	}
	return seen
}

// often is how often each of two processes must be seen.
const often = 50

func both(seen map[string]int, ps ...*lab.Proc) bool {
	return !slices.ContainsFunc(ps, func(p *lab.Proc) bool { return seen[fmt.Sprint(p.PID, " ", p.Comm)] < often })
}

// onlyThey checks that only these processes were seen, by PID and name, and
// each often.
func onlyThey(seen map[string]int, ps ...*lab.Proc) error {
	var errs []error
	for _, p := range ps {
		who := fmt.Sprint(p.PID, " ", p.Comm)
		if seen[who] < often {
			errs = append(errs, fmt.Errorf("%d times %s, want hundreds", seen[who], p.Comm))
		}
		delete(seen, who)
	}
	if len(seen) > 0 {
		errs = append(errs, fmt.Errorf("neither one nor the other: %v", seen))
	}
	return errors.Join(errs...)
}

// keptCopy is struct kept_copy of kept.h.
type keptCopy struct {
	Before uint64
	Who    [7]uint64
	Sum    uint64
	Behind uint64
}

// whole is kept_copy of kept.h.
func (c *keptCopy) whole(key uint64) bool {
	sum := uint64(0x9e3779b97f4a7c15)
	for i, w := range c.Who {
		sum += w * (0xbf58476d1ce4e5b9 + 0x94d049bb133111ea*uint64(i))
	}
	return sum == c.Sum && c.Before == key && c.Behind == key
}

// hammer reads the owners of all sockets as fast as it can, by the rule of kept.h. It
// returns the owners, and how often a copy was not valid.
func hammer(t *testing.T, tl *tool.Tool, ps ...*lab.Proc) (seen map[string]int, broken int) {
	t.Helper()
	cfg, o, err := cli.Parse(tl, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tool.Prepare(tl, cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Attach()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	owners := s.Maps["owners"]
	time.Sleep(100 * time.Millisecond) // by now both have used all of them
	var key uint64
	var keys []uint64
	value := make([]byte, owners.ValueSize())
	copies := func() [2]keptCopy { return *(*[2]keptCopy)(unsafe.Pointer(&value[0])) }
	for it := owners.Iterate(); it.Next(&key, &value); {
		if c := copies(); strings.HasPrefix(nameIn(c[0].Who), "aaa") || strings.HasPrefix(nameIn(c[1].Who), "aaa") {
			keys = append(keys, key)
		}
	}
	seen = map[string]int{}
	begin := time.Now()
	for time.Since(begin) < 4*time.Second || !both(seen, ps...) && time.Since(begin) < 20*time.Second {
		for _, key := range keys {
			if err := owners.Lookup(key, &value); err != nil {
				t.Fatal(err)
			}
			for _, c := range copies() {
				if c.whole(key) {
					seen[fmt.Sprint(uint32(c.Who[1]), " ", nameIn(c.Who))]++
				} else {
					broken++
				}
			}
		}
	}
	return seen, broken
}

// nameIn is comm of a struct who.
func nameIn(who [7]uint64) string {
	b := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, who[3]), who[4])
	return unix.ByteSliceToString(b)
}

// leaderless has sockets of all kinds, and its first thread exits. It closes them when
// it is told to.
func leaderless(c *lab.Child) error {
	ends, err := pair(lab.TCP4)
	if err != nil {
		return err
	}
	udp, err := lab.Connect(lab.UDP4, "127.0.0.1:9")
	if err != nil {
		return err
	}
	go func() {
		if c.Report(true) != nil || c.Await("go") != nil {
			os.Exit(1)
		}
		for _, fd := range append(ends, udp) {
			lab.Close(fd)
		}
		c.Report(true)
		c.Next() // until it is killed: nothing is used again meanwhile
	}()
	_, _, e := unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // of this thread alone
	return e
}

// TestLeaderless: a process whose first thread has exited still owns its
// sockets.
func TestLeaderless(t *testing.T) {
	for name, n := range map[string]int{"tcplife": 2, "tcpstates": 2, "udplife": 1, "solife": 3} {
		t.Run(name, func(t *testing.T) {
			c := trial.Case{Name: "leaderless", Run: func(x *trial.Trial) error {
				p, err := x.World.Start("", "leaderless", bodyLeaderless, nil)
				if err != nil {
					return err
				}
				defer p.Kill() // it cannot end as others do
				var ready bool
				if err := errors.Join(p.Expect(&ready), gone(p.PID)); err != nil {
					return err
				}
				if err := x.Attach(); err != nil {
					return err
				}
				if err := p.Call("go", &ready); err != nil {
					return err
				}
				x.Await(n)
				rows, err := x.Detach()
				if err != nil {
					return err
				}
				if len(rows) < n {
					x.Errorf("%d rows, want %d", len(rows), n)
				}
				for _, r := range rows {
					if is("proto", "unix")(r) {
						continue
					}
					x.Want(r, "pid", p.PID)
					x.Want(r, "comm", p.Comm)
				}
				return nil
			}}
			if _, err := trial.RunCase(t.Context(), named(t, name), c, ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// gone waits until the first thread of a process has exited.
func gone(pid int) error {
	for range 1000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, pid))
		if err != nil {
			return err
		}
		if strings.Contains(string(stat), ") Z ") {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("the first thread does not exit")
}
