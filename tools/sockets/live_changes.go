// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

const comerBody = "sockets-comer"

// came is the inodes of a comer's sockets (0: not open yet), and the time when it opened the first one.
type came struct {
	Listener, UDP, Client, Peer uint64
	Begin                       int64
}

// comer listens. At the first command it binds a UDP socket and connects a TCP socket to its listener. At the
// second one it closes the UDP socket and the accepted end.
func comer(c *lab.Child) error {
	s := came{Begin: int64(kern.MonoNow())}
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 7)
	if err != nil {
		return err
	}
	if err := errors.Join(inodeOf(l, &s.Listener), c.Report(s), c.Await("open")); err != nil {
		return err
	}
	udp, _, err := lab.Bind(lab.UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	client, err := lab.Connect(lab.TCP4, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String())
	if err != nil {
		return err
	}
	peer, err := lab.Accept(l)
	if err != nil {
		return err
	}
	err = errors.Join(inodeOf(udp, &s.UDP), inodeOf(client, &s.Client), inodeOf(peer, &s.Peer), c.Report(s), c.Await("close"))
	return errors.Join(err, lab.Close(udp), lab.Close(peer), c.Report(s), c.Await("end"))
}

func inodeOf(fd int, to *uint64) (err error) {
	*to, err = inode(fd)
	return err
}

func startComer(x *trial.Trial, flags ...string) (*lab.Proc, came, error) {
	var s came
	p, err := x.World.Start("", "comer", comerBody, nil)
	if err != nil {
		return nil, s, err
	}
	if err := p.Expect(&s); err != nil {
		return nil, s, err
	}
	return p, s, x.Attach(append(flags, "--interval=100ms", fmt.Sprintf("--pid=%d", p.PID), "--family=inet")...)
}

// some waits for a row of the socket with the given change, and with the given state if there is one.
func some(x *trial.Trial, inode uint64, change, state string) {
	x.Until(func(rows []*row.Row) bool {
		return slices.ContainsFunc(rows, func(r *row.Row) bool {
			return r.Get("inode").N == inode && r.Get("change").S == change && (state == "" || r.Get("state").S == state)
		})
	})
}

// ages: the age of a socket is the time since the first output that showed it. It is not more than the age that the
// process reports.
func ages(x *trial.Trial) error {
	p, s, err := startComer(x)
	if err != nil {
		return err
	}
	const enough = 300 // ms
	x.Until(func(rows []*row.Row) bool {
		return slices.ContainsFunc(rows, func(r *row.Row) bool { return r.Get("age_ms").N >= enough })
	})
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	most := (int64(kern.MonoNow()) - s.Begin) / 1e6
	if n := len(rows); n < 3 || rows[n-1].Get("age_ms").N < enough {
		return fmt.Errorf("%d outputs, the last one with an age of %d ms", n, rows[n-1].Get("age_ms").N)
	}
	for i, r := range rows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "inode", s.Listener)
		x.Want(r, "change", "-")
		if i == 0 {
			x.Want(r, "age_ms", "-")
			continue
		}
		age, want := int64(r.Get("age_ms").N), int64(r.Get("time").N-rows[0].Get("time").N)/1e6
		if age < want-1 || age > want+1 || age > most {
			x.Errorf("output %d, %d ms after the first: the age is %d ms, and it was opened %d ms ago", i, want, age, most)
		}
	}
	x.NoneLost()
	return nil
}

// changes: after the first output there is a row for each socket that is new, has gone, or has another state. An
// output may see a socket before it is bound or connected.
func changes(x *trial.Trial) error {
	p, s, err := startComer(x, "--changes")
	if err != nil {
		return err
	}
	some(x, s.Listener, "", "LISTEN")
	if err := p.Call("open", &s); err != nil {
		return err
	}
	some(x, s.UDP, "new", "")
	some(x, s.Client, "new", "")
	some(x, s.Peer, "new", "")
	if err := p.Call("close", &s); err != nil {
		return err
	}
	some(x, s.UDP, "gone", "")
	some(x, s.Client, "state", "CLOSE_WAIT")
	some(x, s.Peer, "gone", "")
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	got, last := map[uint64][]string{}, map[uint64]string{}
	for _, r := range rows {
		inode, change := r.Get("inode").N, trial.Value(r.Get("change"))
		if change == "state" && last[inode] == r.Get("state").S {
			x.Errorf("it has the same state: %s", trial.Dump(r))
		}
		last[inode] = r.Get("state").S
		if all := got[inode]; len(all) == 0 || change != "state" || all[len(all)-1] != "state" {
			got[inode] = append(got[inode], change)
		}
	}
	want := map[uint64][]string{s.Listener: {"-"}, s.UDP: {"new", "gone"}, s.Client: {"new", "state"}, s.Peer: {"new", "gone"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		x.Errorf("the changes of each socket are %v, want %v", got, want)
	}
	if last[s.Client] != "CLOSE_WAIT" {
		x.Errorf("the last state is %s, want CLOSE_WAIT", last[s.Client])
	}
	x.NoneLost()
	return nil
}
