// SPDX-License-Identifier: Apache-2.0

package tcptop

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyHalf, half)
	return []trial.Case{
		{Name: "older", Hosts: lab.TwoHosts, Run: older},
		{Name: "ticks", Hosts: lab.TwoHosts, Run: sums("--interval=" + tick())},
		{Name: "half-closed", Run: halfClosed},
		{Name: "uring", Run: uring},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "lossy", Hosts: lab.TwoHosts, Run: lossy},
		{Name: "shaped", Hosts: lab.TwoHosts, Run: trial.Undisturbed(shaped)}, // the queue's timer sends
		{Name: "filters", Hosts: lab.TwoHosts, Run: filters},
		{Name: "flood", Hosts: lab.TwoHosts, Run: trial.Undisturbed(flood), Slow: true}, // sockets end in softirq
	}
}

// tick is short, but not so short that an emulated machine does nothing else.
func tick() string {
	if lab.Emulated() {
		return "500ms"
	}
	return "20ms"
}

// older: connections that are older than the tool are shown from the first tick
// on, with the bytes that they move from then on.
func older(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 17, Send: 1000, Recv: 777, Hold: true})
	if err != nil {
		return err
	}
	if err := t.Open(); err != nil {
		return err
	}
	p, err := lab.StartPingPong(x.World, lab.PingPong{Network: lab.TCP6, Requests: 211, Size: 100, Answer: 300})
	if err != nil {
		return err
	}
	var res lab.TCPResult
	rows, err := x.Rows(func() (err error) {
		if _, err := p.Run(); err != nil {
			return err
		}
		res, err = t.Run()
		return err
	}, "--interval=1m")
	if err != nil {
		return err
	}
	got, want := add(x, rows), map[end]moved{}
	ends(x, t, res, want)
	for e, m := range got { // the ping-pong's own port is not known
		switch {
		case e.pid == p.Client.PID && e.remote == p.Addr && m == moved{21100, 63300},
			e.pid == p.Server.PID && e.local == p.Addr && m == moved{63300, 21100}:
			delete(got, e)
		}
	}
	compare(x, got, want)
	return nil
}

const bodyHalf = "tcptop-half"

// halfPorts is the port of either end.
type halfPorts struct{ Client, Server int }

// half connects to itself, moves 5000 and 3000 bytes, and closes one end. It
// closes the other end when it is told to.
func half(c *lab.Child) error {
	var addr string
	if err := c.Arg(&addr); err != nil {
		return err
	}
	l, port, err := lab.Listen(lab.TCP4, addr+":0", 1)
	if err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	client, err := lab.Connect(lab.TCP4, fmt.Sprint(addr, ":", port))
	if err != nil {
		return err
	}
	local, err := lab.LocalPort(client)
	if err != nil {
		return err
	}
	server, err := lab.Accept(l)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return lab.SendAll(client, make([]byte, 5000)) },
		func() error { return lab.RecvAll(server, make([]byte, 5000)) },
		func() error { return lab.SendAll(server, make([]byte, 3000)) },
		func() error { return lab.RecvAll(client, make([]byte, 3000)) },
		func() error { return lab.Close(client) },
		func() error { return lab.RecvEnd(server) },
		func() error { return c.Report(halfPorts{local, port}) },
		func() error { return c.Await("end") },
		func() error { return lab.Close(server) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// halfClosed: the walk does not find a socket that its program has closed while
// the peer is still open. Its bytes are not counted again at its end.
func halfClosed(x *trial.Trial) error {
	addr := x.World.Addr4(x.World.Hosts()[0])
	p, err := x.World.Start("", "half", bodyHalf, addr)
	if err != nil {
		return err
	}
	if err := x.Attach("--interval=" + tick()); err != nil {
		return err
	}
	var ports halfPorts
	if err := p.Call("go", &ports); err != nil {
		return err
	}
	x.Await(2)
	pause, _ := time.ParseDuration(tick())
	time.Sleep(3 * pause) // ticks at which nothing moves give no rows to await
	if err := p.Tell("end"); err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	c := netip.AddrPortFrom(addr, uint16(ports.Client)).String()
	v := netip.AddrPortFrom(addr, uint16(ports.Server)).String()
	compare(x, add(x, rows), map[end]moved{{p.PID, c, v}: {5000, 3000}, {p.PID, v, c}: {3000, 5000}})
	return nil
}

// plain makes sessions and compares all ends.
func plain(x *trial.Trial, s lab.Sessions, flags ...string) (*lab.TCP, []*row.Row, map[end]moved, error) {
	t, err := lab.StartTCP(x.World, s)
	if err != nil {
		return nil, nil, nil, err
	}
	var res lab.TCPResult
	traffic := func() (err error) {
		if res, err = t.Run(); err == nil && s.Network == lab.MPTCP4 {
			x.Await(2 * s.Count) // until 6.2 a kernel worker closes it after the process has ended
		}
		return err
	}
	rows, err := x.Rows(traffic, flags...)
	if err != nil {
		return nil, nil, nil, err
	}
	want := map[end]moved{}
	ends(x, t, res, want)
	return t, rows, want, nil
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, rows, want, err := plain(x, lab.Sessions{Count: 13, Send: 1000, Recv: 777, Uring: true}, "--interval=1m")
	if err != nil {
		return err
	}
	compare(x, add(x, rows), want)
	return nil
}

// mptcp: a connection and its subflow are one session.
func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, rows, want, err := plain(x, lab.Sessions{Count: 13, Send: 1000, Recv: 777, Network: lab.MPTCP4}, "--interval=250ms")
	if err != nil {
		return err
	}
	compare(x, add(x, rows), want)
	return nil
}

// lossy: retransmitted bytes do not count as payload; retransmissions have a
// column of their own. Rates refer to the time in which the session existed.
func lossy(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Send: 33333, Recv: 1})
	if err != nil {
		return err
	}
	var rows []*row.Row
	began := time.Now()
	// If the machine stands still, the server may retransmit segments too.
	var again [2]int64
	counted, err := x.World.Counted("server", func() error {
		counted, err := x.World.Counted("client", func() (err error) {
			rows, err = x.Rows(func() error {
				return errors.Join(t.RunLossy(lab.Loss{To: t.Port, Data: 1, Count: 1}), x.World.Closed())
			}, oneOutput)
			return err
		})
		again[0] = counted["TcpRetransSegs"]
		return err
	})
	if err != nil {
		return err
	}
	again[1] = counted["TcpRetransSegs"]
	most := time.Since(began)
	if err := trial.RowCount(len(rows), 2); err != nil {
		return err
	}
	for _, r := range rows {
		want := map[bool][3]int64{true: {again[0], 33333, 1}, false: {again[1], 1, 33333}}[r.Get("pid").N == uint64(t.Client.PID)]
		x.Want(r, "retrans", want[0])
		x.Want(r, "tx_bytes", want[1])
		x.Want(r, "rx_bytes", want[2])
		if us := r.Get("srtt_us").N; us == 0 || us > uint64(most.Microseconds()) {
			x.Errorf("a round trip of %d us, within %v", us, most)
		}
		tx, rx := r.Get("tx_bytes_s").N, r.Get("rx_bytes_s").N
		if least := uint64(33333 / most.Seconds()); max(tx, rx) < least || (tx > rx) != (want[1] > want[2]) {
			x.Errorf("%d and %d bytes a second, want %d or more one way", tx, rx, least)
		}
	}
	if again[0] == 0 {
		x.Errorf("nothing was lost")
	}
	return nil
}

// filters: by the remote port only the client's rows are left.
func filters(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 13, Send: 1000, Recv: 777})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := t.Run(); return err }, "--interval=1m", fmt.Sprintf("--rport=%d", t.Port), fmt.Sprintf("--pid=%d", t.Client.PID))
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "comm", t.Client.Comm)
		x.Want(r, "tx_bytes", 1000)
	}
	x.Fail(trial.RowCount(len(rows), 13))
	return nil
}

// flood: the bytes of many short sessions over many ticks add up.
func flood(x *trial.Trial) error {
	n := 10007
	if lab.Emulated() {
		n = 1009
	}
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: n, Send: 1000, Recv: 777, Parallel: 4, Brief: true})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := t.Run(); return err }, "--interval=50ms")
	if err != nil {
		return err
	}
	sum := map[int]moved{}
	for e, m := range add(x, rows) {
		sum[e.pid] = moved{sum[e.pid].tx + m.tx, sum[e.pid].rx + m.rx}
	}
	for pid, want := range map[int]moved{t.Client.PID: {1000 * n, 777 * n}, t.Server.PID: {777 * n, 1000 * n}} {
		if sum[pid] != want {
			x.Errorf("process %d moved %v, want %v", pid, sum[pid], want)
		}
	}
	if len(sum) != 2 {
		x.Errorf("rows of %d processes, want 2", len(sum))
	}
	return nil
}

// shaped: a segment that the client's own queueing discipline drops counts as not
// sent. TCP sends it again as if for the first time, and it counts once.
func shaped(x *trial.Trial) error {
	w := x.World
	if err := w.Sysctl("client", "net.ipv4.tcp_congestion_control", "bbr"); errors.Is(err, fs.ErrNotExist) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	dev := w.Devs("client")[0]
	rate, size := 1_000_000, 700_001
	if lab.Emulated() { // it is not always faster than that
		rate, size = rate/10, size/10
	}
	if err := w.SetQdisc("client", dev, lab.Qdisc{Kind: "tbf", Rate: rate, Burst: 5_000, Limit: 20_000}); err != nil {
		return err
	}
	_, rows, want, err := plain(x, lab.Sessions{Count: 3, Send: size, Recv: 777}, "--interval="+tick())
	if err != nil {
		return err
	}
	compare(x, add(x, rows), want)
	c, err := w.QdiscCount("client", dev, netlink.HANDLE_ROOT)
	if err == nil && c.Dropped == 0 && !lab.Emulated() { // which may be too slow to fill the queue
		err = errors.New("tbf dropped nothing")
	}
	return err
}
