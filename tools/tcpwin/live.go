// SPDX-License-Identifier: Apache-2.0

package tcpwin

import (
	"errors"
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "retrans", Hosts: lab.TwoHosts, Run: trial.Undisturbed(retrans)},
		{Name: "summary", Hosts: lab.TwoHosts, Run: trial.Undisturbed(summary)},
		{Name: "one-socket", Hosts: lab.TwoHosts, Run: oneSocket},
	}
}

// lost runs the tool over a session whose only segment is lost once. It returns the
// retransmissions of client and server: one and none, unless the machine stands still.
func lost(x *trial.Trial, flags ...string) (t *lab.TCP, rows []*row.Row, again [2]int64, err error) {
	if t, err = lab.StartTCP(x.World, lab.Sessions{Send: 333, Recv: 1}); err != nil {
		return
	}
	var counted [2]lab.Counters
	counted[0], err = x.World.Counted("client", func() (err error) {
		counted[1], err = x.World.Counted("server", func() (err error) {
			rows, err = x.Rows(func() error {
				return errors.Join(t.RunLossy(lab.Loss{To: t.Port, Data: 1, Count: 1}), x.World.Closed())
			}, flags...)
			return err
		})
		return err
	})
	return t, rows, [2]int64{counted[0]["TcpRetransSegs"], counted[1]["TcpRetransSegs"]}, err
}

// retrans: the client retransmits one segment.
func retrans(x *trial.Trial) error {
	t, rows, again, err := lost(x)
	if err != nil {
		return err
	}
	var n [2]int64
	for _, r := range rows {
		if r.Get("event").S != "retrans" {
			continue
		}
		if r.Get("rport").N != uint64(t.Port) {
			n[1]++
			x.Want(r, "pid", t.Server.PID)
			continue
		}
		n[0]++
		x.Want(r, "pid", t.Client.PID)
		if n[0] == 1 {
			x.Want(r, "inflight", 1)
		}
	}
	if n != again || n[0] == 0 {
		x.Errorf("%d retransmissions, and the kernel counts %d; want one of the client at least", n, again)
	}
	return nil
}

// summary: events by socket.
func summary(x *trial.Trial) error {
	t, rows, again, err := lost(x, "--summary")
	if err != nil {
		return err
	}
	if len(rows) != 2 {
		return fmt.Errorf("%d sockets, want 2", len(rows))
	}
	for _, r := range rows {
		n := again[1]
		if r.Get("rport").N == uint64(t.Port) {
			if n = again[0]; n == 0 {
				x.Errorf("the kernel counts nothing that was sent again")
			}
		}
		x.Want(r, "retrans", n)
		x.Want(r, "new", 1)
		x.Want(r, "count", r.Get("rcv").N+r.Get("retrans").N+1)
	}
	return nil
}

// oneSocket: --sock shows only one socket, by the address that an earlier run
// has shown.
func oneSocket(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 2, Send: 100, Recv: 100, Hold: true})
	if err != nil {
		return err
	}
	var rows []*row.Row
	if rows, err = x.Rows(func() error { return t.Open() }); err != nil {
		return err
	}
	var sock, port string
	for _, r := range rows {
		if r.Get("event").S == "new" && r.Get("rport").N == uint64(t.Port) {
			sock, port = r.Get("skaddr").S, trial.Value(r.Get("lport"))
		}
	}
	if rows, err = x.Rows(func() error { _, err := t.Run(); return err }, "--sock=0x"+sock); err != nil {
		return err
	}
	if len(rows) == 0 {
		x.Errorf("no rows of socket %s", sock)
	}
	for _, r := range rows {
		x.Want(r, "skaddr", sock)
		x.Want(r, "lport", port)
	}
	return nil
}
