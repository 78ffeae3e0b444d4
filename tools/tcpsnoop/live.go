// SPDX-License-Identifier: Apache-2.0

package tcpsnoop

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live returns the live cases that are not in the self-test. Only tests call it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "large", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 1, Send: 300007, Recv: 53})},
		{Name: "big-ipv4", Hosts: lab.TwoHosts, Run: big(lab.TCP4)},
		{Name: "big-ipv6", Hosts: lab.TwoHosts, Run: big(lab.TCP6)},
		{Name: "reset", Hosts: lab.TwoHosts, Run: sessions(lab.Sessions{Count: 7, Send: 101, Recv: 53, Close: lab.ByReset})},
		{Name: "closed-apart", Hosts: lab.TwoHosts, Run: closedApart},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "older", Hosts: lab.TwoHosts, Run: older},
		{Name: "refused", Hosts: lab.TwoHosts, Run: refused(lab.TCP4)},
		{Name: "refused-ipv6", Hosts: lab.TwoHosts, Run: refused(lab.TCP6)},
		{Name: "same-ports", Hosts: lab.TwoHosts, Run: samePorts},
	}
}

// big: packets of more than 64 KB. The IP header has no room for their length.
func big(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if err := x.World.BigTCP(n); errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		// TCP does not always build such packets: a stall of the machine prevents it.
		for range 20 {
			rows, err := snoop(x, lab.Sessions{Count: 1, Send: 3000017, Recv: 53, Network: n}, true)
			if err != nil || lab.Emulated() || slices.ContainsFunc(rows, func(r *row.Row) bool { return r.Get("bytes").N > 1<<16 }) {
				return err
			}
		}
		return errors.New("no packet of more than 64 KB")
	}
}

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, err := snoop(x, lab.Sessions{Count: 7, Send: 101, Recv: 53, Network: lab.MPTCP4}, false)
	return err
}

// older: connections that are older than the tool have their process, and no
// relative numbers.
func older(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 3, Send: 101, Recv: 53, Hold: true})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	rows, err := packets(x, t, false)
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "seq_rel", "-")
	}
	return nil
}

// closedApart: the last FIN arrives in TIME_WAIT. A socket of the kernel sends the ACK.
// The row of the ACK has the process that had the connection.
func closedApart(x *trial.Trial) error {
	before, err := counters(x.World)
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error {
		c, err := x.World.Dial("client", "server")
		if err != nil {
			return err
		}
		return errors.Join(c.CloseApart(), x.World.Closed())
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "pid", os.Getpid())
	}
	after, err := counters(x.World)
	if err != nil {
		return err
	}
	packets := int64(0)
	for i := range after {
		c := after[i].Since(before[i])
		packets += c["TcpInSegs"] + c["TcpOutSegs"] + c["TcpRetransSegs"]
	}
	// At least SYN, SYN-ACK, ACK; FIN, ACK, FIN, ACK: one host sends and the other one receives each.
	if packets < 14 {
		x.Errorf("%d packets in and out, want 14 and more", packets)
	}
	x.Fail(trial.RowCount(len(rows), int(packets)))
	return nil
}

// refused: the host that refuses has sent no SYN, so it has no relative numbers. Over IPv6
// the reset has no socket at all.
func refused(n lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		const closed = 9
		c, err := lab.StartConnects(x.World, "client", "caller", lab.Attempt{
			Name: "refused", Network: n, Addr: n.At(x.World.Addr("server", n), closed), Want: unix.ECONNREFUSED})
		if err != nil {
			return err
		}
		rows, err := x.Rows(func() error { _, err := c.Run(); return err }, fmt.Sprint("--port=", closed))
		if err != nil {
			return err
		}
		var seen []string
		for _, r := range rows {
			seen = append(seen, trial.Values(r, "dir", "flags"))
			if strings.Contains(trial.Value(r.Get("flags")), "R") {
				x.Want(r, "seq_rel", "-")
				x.Want(r, "ack_rel", 1)
			} else {
				x.Want(r, "seq_rel", 0)
			}
		}
		if want := []string{"out S", "in S", "out R.", "in R."}; !slices.Equal(seen, want) {
			x.Errorf("packets %q, want %q", seen, want)
		}
		return nil
	}
}

// samePorts: two connections, one after the other, have the same addresses and ports,
// but different processes.
func samePorts(x *trial.Trial) error {
	s := lab.Sessions{Send: 101, Recv: 53, Close: lab.ByReset, Port: 7001, From: lab.TCP4.At(x.World.Addr4("client"), 7003)}
	var all [2]*lab.TCP
	rows, err := x.Rows(func() (err error) {
		for i := range all {
			if all[i], err = lab.StartTCP(x.World, s); err != nil {
				return err
			}
			if _, err := all[i].Run(); err != nil {
				return err
			}
		}
		return nil
	}, "--port=7001")
	if err != nil {
		return err
	}
	var begins []int
	for i, r := range rows {
		if r.Get("flags").S == "S" && r.Get("dir").S == "out" {
			begins = append(begins, i)
		}
	}
	if len(begins) != 2 {
		return fmt.Errorf("%d SYNs went out, want 2", len(begins))
	}
	split(x, all[0], rows[:begins[1]])
	split(x, all[1], rows[begins[1]:])
	return nil
}
