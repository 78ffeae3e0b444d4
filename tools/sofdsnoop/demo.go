// SPDX-License-Identifier: Apache-2.0

package sofdsnoop

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		for _, name := range []string{"three", "kinds"} {
			t, err := start(w, name, roomFor(253))
			if err != nil {
				return err
			}
			if err := t.run(); err != nil {
				return err
			}
		}
		return nil
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "three-in-one", Run: pass("three", 3)},
	{Name: "two-control-messages", Run: pass("parts", 3)},
}

// roomFor is the size of a control buffer for n descriptors and credentials.
func roomFor(fds int) int {
	return unix.CmsgSpace(4*fds) + unix.CmsgSpace(unix.SizeofUcred)
}

// passing is a process that sends descriptors and one that receives them.
type passing struct {
	from, to *lab.Proc
	sent     sent
	received received
}

// start starts both processes and connects them.
func start(w *lab.World, name string, room int) (*passing, error) {
	dir, err := w.Dir()
	if err != nil {
		return nil, err
	}
	t := &passing{}
	var ready bool
	if t.to, err = w.Start("", "worker", bodyRecv, map[string]any{"Case": name, "Room": room}); err != nil {
		return nil, err
	}
	if err := t.to.Expect(&ready); err != nil {
		return nil, err
	}
	if t.from, err = w.Start("", "broker", bodySend, map[string]any{"Case": name, "Dir": dir}); err != nil {
		return nil, err
	}
	return t, errors.Join(t.from.Expect(&ready), t.to.Expect(&ready))
}

// run passes the descriptors and waits for both processes to end.
func (t *passing) run() error {
	if err := t.from.Call("go", &t.sent); err != nil {
		return err
	}
	if err := t.to.Call("go", &t.received); err != nil {
		return err
	}
	return errors.Join(t.from.Wait(), t.to.Wait())
}

// pass makes a case of n descriptors. Each has a row at both ends.
func pass(name string, n int) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		t, rows, err := seen(x, name, roomFor(253), 2*n)
		if err != nil {
			return err
		}
		if len(t.sent.Items) != n || len(t.received.FDs) != n {
			return fmt.Errorf("%d sent and %d received, want %d of each", len(t.sent.Items), len(t.received.FDs), n)
		}
		t.compare(x, rows)
		return nil
	}
}

func seen(x *trial.Trial, name string, room, rows int, flags ...string) (*passing, []*row.Row, error) {
	t, err := start(x.World, name, room)
	if err != nil {
		return nil, nil, err
	}
	for i, f := range flags {
		flags[i] = fmt.Sprintf(f, t.from.PID)
	}
	if err := x.Attach(flags...); err != nil {
		return nil, nil, err
	}
	if err := t.run(); err != nil {
		return nil, nil, err
	}
	x.Await(rows)
	got, err := x.Detach()
	x.Fail(trial.RowCount(len(got), rows))
	x.NoneLost()
	return t, got, err
}

// compare checks the rows of the sender, then those of the receiver.
func (t *passing) compare(x *trial.Trial, rows []*row.Row) {
	var out, in int
	for _, r := range rows {
		p, socket, fd, i := t.to, t.received.Socket, -1, in
		if trial.Value(r.Get("action")) == "SEND" {
			p, socket, i = t.from, t.sent.Socket, out
			if out++; i < len(t.sent.Items) {
				fd = t.sent.Items[i].FD
			}
		} else if in++; i < len(t.received.FDs) {
			fd = t.received.FDs[i]
		}
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", p.Comm)
		x.Want(r, "socket", socket)
		x.Want(r, "address", busPath)
		x.Want(r, "fd", fd)
		if i < len(t.sent.Items) {
			x.Want(r, "type", t.sent.Items[i].Type)
			x.Want(r, "name", t.sent.Items[i].Name)
		}
	}
	if out != len(t.sent.Items) || in != len(t.received.FDs) {
		x.Errorf("%d rows of %d sent, %d of %d received", out, len(t.sent.Items), in, len(t.received.FDs))
	}
}

func init() {
	lab.Register(bodySend, send)
	lab.Register(bodyRecv, receive)
}
