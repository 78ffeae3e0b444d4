// SPDX-License-Identifier: Apache-2.0

package tcplife

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// bytesLive are cases in which TCP's own counter of sent bytes is wrong, or
// bytes were never acknowledged or never sent.
func bytesLive() []trial.Case {
	return []trial.Case{
		{Name: "shaped-bbr", Hosts: lab.TwoHosts, Run: trial.Undisturbed(shaped("bbr", narrow(), true))},
		{Name: "shaped-bbr-cut", Hosts: lab.TwoHosts, Run: trial.Undisturbed(shaped("bbr", narrow(), false))},
		{Name: "shaped-reno", Hosts: lab.TwoHosts, Run: trial.Undisturbed(shaped("reno", narrow(), true))},
		{Name: "paced", Hosts: lab.TwoHosts, Run: trial.Undisturbed(shaped("bbr", lab.Qdisc{Kind: "fq", Limit: 20}, true))},
		{Name: "unacknowledged", Hosts: lab.TwoHosts, Run: unacknowledged},
		{Name: "fastopen", Hosts: lab.TwoHosts, Run: fastopen},
		{Name: "refused", Run: refused},
	}
}

// narrow is `tbf rate 8mbit burst 5k limit 20k`, which has room for less than two
// windows. An emulated machine is not always faster than that.
func narrow() lab.Qdisc {
	return lab.Qdisc{Kind: "tbf", Rate: less(1_000_000), Burst: 5_000, Limit: 20_000}
}

// less is a tenth of n on an emulated machine.
func less(n int) int {
	if lab.Emulated() {
		return n / 10
	}
	return n
}

// shaped: a segment that the client's own queueing discipline drops counts as not
// sent, because TCP sends it again as if for the first time. Everything arrives,
// so the expected bytes are those of the writes.
func shaped(cong string, q lab.Qdisc, offload bool) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := x.World
		if err := w.Sysctl("client", "net.ipv4.tcp_congestion_control", cong); errors.Is(err, fs.ErrNotExist) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		if err := w.Offload("client", true, offload); err != nil {
			return err
		}
		dev := w.Devs("client")[0]
		if err := w.SetQdisc("client", dev, q); errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		t, err := seen(x, lab.Sessions{Count: 3, Send: less(700_001), Recv: 777}, func(r *row.Row, client bool) {
			x.Want(r, "unsent_bytes", 0)
			if client {
				x.Want(r, "cong", cong)
			}
		})
		if err != nil {
			return err
		}
		c, err := w.QdiscCount("client", dev, netlink.HANDLE_ROOT)
		// An emulated machine may be too slow to fill the queue. The rows are right all the same.
		if err == nil && c.Dropped == 0 && q.Kind == narrow().Kind && !lab.Emulated() {
			err = fmt.Errorf("%s dropped nothing of what %s sent", q.Kind, t.Client.Comm)
		}
		return err
	}
}

const bodyLeave = "tcplife-leave"

// leaving is a session whose peer gets no data. The client writes as much as the
// socket takes, up to Size, and then resets or closes it.
type leaving struct {
	Addr  string
	Size  int
	Reset bool
}

// leave reports how many bytes the socket took.
func leave(c *lab.Child) error {
	var arg leaving
	if err := c.Arg(&arg); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	fd, err := lab.Connect(lab.TCP4, arg.Addr)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 300); err != nil {
		return err
	}
	n, err := unix.SendmsgN(fd, make([]byte, arg.Size), nil, nil, unix.MSG_DONTWAIT)
	if err != nil {
		return err
	}
	if arg.Reset {
		err = lab.Reset(fd)
	} else {
		err = lab.Close(fd)
	}
	return errors.Join(err, c.Report(n))
}

// unacknowledged: bytes that were sent at least once count, as a capture shows
// them. Bytes that were written and never sent have a column of their own. The
// FIN counts in neither, whether it was sent or waits behind the data.
func unacknowledged(x *trial.Trial) error {
	w := x.World
	for _, l := range []leaving{{Size: 200_000, Reset: true}, {Size: 200_000}, {Size: 1000, Reset: true}, {Size: 1000}} {
		if err := x.Timed(func() error { // a timer ends those that do not reset
			to, err := lab.StartTargets(w, "server", "sink", lab.Target{Network: lab.TCP4})
			if err != nil {
				return err
			}
			l.Addr = to.Addrs[0]
			p, err := w.Start("client", "leaver", bodyLeave, l)
			if err != nil {
				return err
			}
			return errors.Join(leaveOne(x, p, to.Port(0), l), to.End())
		}); err != nil {
			return err
		}
	}
	return nil
}

func leaveOne(x *trial.Trial, p *lab.Proc, port int, l leaving) error {
	loss, err := lab.StartLoss(lab.Loss{To: port, Data: 1, Count: 1 << 30})
	if err != nil {
		return err
	}
	defer loss.Close()
	capture, err := x.World.Capture("client", x.World.Devs("client")[0], port)
	if err != nil {
		return err
	}
	if err := x.Attach(fmt.Sprintf("--pid=%d", p.PID)); err != nil {
		return err
	}
	var written int
	if err := p.Call("go", &written); err != nil {
		return err
	}
	rows, err := x.Exactly(1)
	if err != nil {
		return err
	}
	sent, err := capture.Sent()
	if err != nil {
		return err
	}
	if sent == 0 || (sent < written) != (l.Size > 100_000) {
		return fmt.Errorf("%d of %d bytes were sent", sent, written)
	}
	x.Want(rows[0], "tx_bytes", sent)
	x.Want(rows[0], "unsent_bytes", written-sent)
	x.Want(rows[0], "rx_bytes", 0)
	if l.Reset {
		x.Want(rows[0], "reset_by", "local")
		x.Want(rows[0], "end", "reset")
	} else {
		x.Want(rows[0], "errno", "ETIMEDOUT")
		x.Want(rows[0], "end", "timeout")
		x.Want(rows[0], "state_close", "FIN_WAIT1")
	}
	return p.Wait()
}

// fastopen: data goes with the SYN. The server accepts it or not.
func fastopen(x *trial.Trial) error {
	const client, server = 1 | 4, 2 | 0x200 | 0x400 // without cookies, for all listeners
	for _, takes := range []bool{true, false} {
		at := 0
		if takes {
			at = server
		}
		if err := errors.Join(
			x.World.Sysctl("client", "net.ipv4.tcp_fastopen", fmt.Sprint(client)),
			x.World.Sysctl("server", "net.ipv4.tcp_fastopen", fmt.Sprint(at)),
		); err != nil {
			return err
		}
		counted, err := x.World.Counted("server", func() error {
			_, err := seen(x, lab.Sessions{Count: 13, Send: 333, Recv: 777, Fast: true}, nil)
			return err
		})
		if err != nil {
			return err
		}
		want := int64(0)
		if takes {
			want = 13
		}
		if n := counted["TcpExtTCPFastOpenPassive"]; n != want {
			return fmt.Errorf("the server took the data of %d SYNs, want %d", n, want)
		}
	}
	return nil
}

// refused: the row of a connect that never became a session says so.
func refused(x *trial.Trial) error {
	to, err := lab.StartTargets(x.World, "", "targets", lab.Target{Network: lab.TCP4, Kind: lab.BoundOnly})
	if err != nil {
		return err
	}
	c, err := lab.StartConnects(x.World, "", "caller", lab.Attempt{Network: lab.TCP4, Addr: to.Addrs[0], Want: unix.ECONNREFUSED})
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if _, err := c.Run(); err != nil {
		return err
	}
	rows, err := x.Exactly(1)
	if err != nil {
		return err
	}
	for id, want := range map[string]any{
		"pid": c.PID, "comm": c.Comm, "tx_bytes": 0, "rx_bytes": 0, "unsent_bytes": 0, "errno": "ECONNREFUSED", "state_close": "SYN_SENT", "established_ms": "-", "end": "refused",
	} {
		x.Want(rows[0], id, want)
	}
	return to.End()
}
