// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the cases besides those of the self-test.
func Live() []trial.Case {
	lab.Register(bodyDrip, drip)
	return []trial.Case{
		{Name: "older", Hosts: lab.TwoHosts, Run: older},
		{Name: "all", Hosts: lab.TwoHosts, Run: all},
		{Name: "filters", Hosts: lab.TwoHosts, Run: filters},
		{Name: "ends", Hosts: lab.TwoHosts, Run: ends},
		{Name: "drip", Run: dripping},
		{Name: "mptcp", Run: mptcp},
		{Name: "healthy", Hosts: lab.TwoHosts, Run: healthy},
		{Name: "kinds6", Hosts: lab.TwoHosts, Run: kinds(lab.TCP6)},
	}
}

// once is the flags of a run that walks once, at the end, and shows operations
// of any age.
var once = []string{"--min=1ns", "--interval=1h"}

// older: operations that began to hang before the tool started are shown with
// their whole age.
func older(x *trial.Trial) error {
	p, err := start(x.World, lab.TCP4)
	if err != nil {
		return err
	}
	began, err := p.begin(false)
	if err != nil {
		return err
	}
	if err := x.Attach(once...); err != nil {
		return err
	}
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	p.compare(x, rows, slices.DeleteFunc(began, usual), at)
	return nil
}

// healthy: servers from Debian that have answered, and clients that keep their connections and wait for the next message,
// have no rows by default: nginx with HTTP/1.1, redis with a command and with a subscription. Guests have no such servers.
func healthy(x *trial.Trial) error {
	for _, one := range []struct {
		start func(*lab.World, string) (*lab.Server, error)
		says  map[string]string // requests, and how their answers end
	}{
		{lab.StartNginx, map[string]string{"GET /a HTTP/1.1\r\nHost: a\r\n\r\n": "hello\n"}},
		{lab.StartRedis, map[string]string{"PING\r\n": "+PONG\r\n", "SUBSCRIBE news\r\n": ":1\r\n"}},
	} {
		s, err := one.start(x.World, "server")
		if errors.Is(err, lab.ErrNotSupported) && lab.Emulated() {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		defer s.Stop()
		for request, answer := range one.says {
			for range 3 {
				c, err := s.Dial(x.World, "client")
				if err != nil {
					return err
				}
				defer c.Close()
				if err := ask(c, request, answer); err != nil {
					return err
				}
				go c.Read(make([]byte, 1)) // until it is closed
			}
		}
	}
	if err := x.Attach(); err != nil {
		return err
	}
	time.Sleep(3 * time.Second) // what hung would be old enough to be shown
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Errorf("nothing hangs: %s", trial.Dump(r))
	}
	x.NoneLost()
	return nil
}

// ask sends a request, and reads until the end of the answer.
func ask(c net.Conn, request, end string) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	for got, buf := "", make([]byte, 4096); !strings.HasSuffix(got, end); {
		n, err := c.Read(buf)
		if err != nil {
			return fmt.Errorf("%q was answered with %q: %w", request, got, err)
		}
		got += string(buf[:n])
	}
	return nil
}

// all: --all also shows calls of accept that wait, requests whose answer nobody waits
// for, and data of a peer that has gone.
func all(x *trial.Trial) error {
	p, err := start(x.World, lab.TCP4)
	if err != nil {
		return err
	}
	idle, err := lab.StartHangs(x.World, "server", "idle", lab.Hang{Network: lab.TCP4}, lab.Hang{Network: lab.TCP4})
	if err != nil {
		return err
	}
	if err := x.Attach(append(once, "--all")...); err != nil {
		return err
	}
	began, err := p.begin(true)
	if err != nil {
		return err
	}
	accepts, err := idle.Begin()
	if err != nil {
		return err
	}
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	found := 0
	rows = slices.DeleteFunc(rows, func(r *row.Row) bool {
		if trial.Value(r.Get("what")) != "accept" {
			return false
		}
		x.Want(r, "raddr", "-")
		i := slices.IndexFunc(accepts, func(h lab.Hang) bool { return h.Port == int(r.Get("lport").N) })
		if i < 0 {
			x.Want(r, "pid", p.server.PID) // its threads accept again and again
			return true
		}
		found++
		x.Want(r, "pid", idle.PID)
		x.Want(r, "comm", "idle")
		if age := int64(r.Get("age_ms").N); age < at.From-accepts[i].After || age > at.To-accepts[i].Before {
			x.Errorf("%d ns old, want %d to %d by the stopwatch, in %s", age, at.From-accepts[i].After, at.To-accepts[i].Before, trial.Dump(r))
		}
		return true
	})
	if found != len(accepts) {
		x.Fail(trial.Fewer(found, len(accepts), "%d calls of accept, want %d", found, len(accepts)))
	}
	p.compare(x, rows, began, at)
	return nil
}

// filters: filters apply to all kinds.
func filters(x *trial.Trial) error {
	p, err := start(x.World, lab.TCP4)
	if err != nil {
		return err
	}
	began, err := p.begin(false)
	if err != nil {
		return err
	}
	began = slices.DeleteFunc(began, usual)
	server := func(b hanging) bool { return slices.Contains([]string{"queued", "silent", "unread"}, b.What) }
	firewall := began[slices.IndexFunc(began, func(b hanging) bool { return b.What == "connect" })].Rport
	for _, f := range []struct {
		flag string
		want func(hanging) bool
	}{
		{fmt.Sprint("--pid=", p.server.PID), server},
		{"--comm=bro*", func(b hanging) bool { return !server(b) }},
		{fmt.Sprint("--rport=", firewall), func(b hanging) bool { return b.Rport == firewall }},
		{fmt.Sprint("--lport=", firewall), func(b hanging) bool { return b.Lport == firewall }},
		{fmt.Sprint("--raddr=", x.World.Addr4("client")), server},
		{"--proto=tcp", func(hanging) bool { return true }},
		{"--proto=udp", func(hanging) bool { return false }},
		{"-6", func(hanging) bool { return false }},
		{"--min=10m", func(hanging) bool { return false }},
		{"--max=1us", func(hanging) bool { return false }},
	} {
		want := 0
		for _, b := range began {
			if f.want(b) {
				want++
			}
		}
		if err := x.Attach(append(once, f.flag)...); err != nil {
			return err
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		if len(rows) != want {
			x.Errorf("%s: %d rows, want %d", f.flag, len(rows), want)
		}
	}
	return nil
}

// hanging is another name of began, for functions with a variable of that name.
type hanging = began

// ends: operations that have ended are no longer shown. This includes a lookup
// whose program has gone.
func ends(x *trial.Trial) error {
	p, err := start(x.World, lab.TCP4)
	if err != nil {
		return err
	}
	if err := x.Attach("--min=1ns", "--interval=200ms"); err != nil {
		return err
	}
	began, err := p.begin(true)
	if err != nil {
		return err
	}
	want := len(slices.DeleteFunc(began, usual))
	most := 0 // rows of an output; the last outputs may come while the processes end
	x.Until(func(rows []*row.Row) bool { most = max(most, len(latest(rows))); return most >= want })
	for _, one := range []*lab.Proc{p.client, p.server, p.asker} {
		one.Kill()
	}
	over := uint64(time.Now().UnixNano())
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if most < want {
		x.Fail(trial.Fewer(most, want, "%d rows before the end, want %d", most, want))
	}
	for _, r := range rows {
		if r.Get("time").N > over {
			x.Errorf("it has ended: %s", trial.Dump(r))
		}
	}
	return nil
}

const (
	bodyDrip = "pending-drip"
	every    = 100 * time.Millisecond
)

// drip connects to itself, sends a byte now and then, and does not read.
func drip(c *lab.Child) error {
	if err := c.Report(true); err != nil {
		return err
	}
	// No connection before that: while the tool is attached, it would be silent.
	if err := c.Await("go"); err != nil {
		return err
	}
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 1)
	if err != nil {
		return err
	}
	fd, err := lab.Connect(lab.TCP4, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String())
	if err != nil {
		return err
	}
	if _, err := lab.Accept(l); err != nil {
		return err
	}
	first := int64(kern.MonoNow())
	if err := lab.SendAll(fd, make([]byte, 1)); err != nil {
		return err
	}
	if err := c.Report(first); err != nil {
		return err
	}
	for !c.Told() {
		time.Sleep(every)
		if err := lab.SendAll(fd, make([]byte, 1)); err != nil {
			return err
		}
	}
	return nil
}

// dripping: a reader that does not read is shown when the first byte is a second old,
// though more bytes keep coming. The age may be too small by at most one interval.
func dripping(x *trial.Trial) error {
	p, err := x.World.StartReady("", "drip", bodyDrip, nil)
	if err != nil {
		return err
	}
	if err := x.Attach("--interval=50ms"); err != nil {
		return err
	}
	var first int64
	if err := p.Call("go", &first); err != nil {
		return err
	}
	x.Await(1)
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return trial.RowCount(0, 1)
	}
	for _, r := range rows {
		x.Want(r, "what", "unread")
		x.Want(r, "pid", p.PID)
	}
	if age, most := int64(rows[len(rows)-1].Get("age_ms").N), at.To-first; age > most+int64(kern.Jiffy()) {
		x.Errorf("%d ns old, want %d at most", age, most)
	}
	return nil
}

// mptcp: connects by MPTCP, and connections that nobody accepts.
func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	t, err := lab.StartTargets(x.World, "", "targets", lab.Target{Network: lab.TCP4, Kind: lab.Silent}, lab.Target{Network: lab.MPTCP4})
	if err != nil {
		return err
	}
	h, err := lab.StartHangs(x.World, "", "hanging", lab.Hang{Network: lab.MPTCP4, Addr: t.Addrs[0]}, lab.Hang{Network: lab.MPTCP4, Addr: t.Addrs[1]})
	if err != nil {
		return err
	}
	begun, err := h.Begin()
	if err != nil {
		return err
	}
	if err := x.Attach(once...); err != nil {
		return err
	}
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 2); err != nil {
		return err
	}
	for _, r := range rows {
		b, owner, port := begun[0], h.Proc, "lport"
		if trial.Value(r.Get("what")) == "queued" {
			b, owner, port = begun[1], t.Proc, "rport"
			x.Want(r, "count", 1)
		} else {
			x.Want(r, "what", "connect")
		}
		x.Want(r, port, b.Port)
		x.Want(r, "pid", owner.PID)
		slack := int64(time.Millisecond)
		if age := int64(r.Get("age_ms").N); age < at.From-b.After-slack || age > at.To-b.Before+slack {
			x.Errorf("%d ns old, want %d to %d by the stopwatch, in %s", age, at.From-b.After, at.To-b.Before, trial.Dump(r))
		}
	}
	return nil
}
