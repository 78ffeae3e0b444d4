// SPDX-License-Identifier: Apache-2.0

package soconnect

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyAgain, callAgain)
	lab.Register(bodyFastopen, sendFast)
	lab.Register(bodyCrowd, connectOften)
	lab.Register(bodySockets, makeSockets)
	return []trial.Case{
		{Name: "uring", Hosts: lab.TwoHosts, Run: uring},
		{Name: "loopback", Run: outcomes},
		{Name: "unix", Run: unixes},
		{Name: "syscall", Hosts: lab.TwoHosts, Run: bare},
		{Name: "again", Run: again},
		{Name: "mptcp", Hosts: lab.TwoHosts, Run: mptcp},
		{Name: "fastopen", Run: fastopen},
		{Name: "given-up", Run: givenUp},
		{Name: "errors", Hosts: lab.TwoHosts, Run: failures},
		{Name: "errors-socket", Run: noSockets},
		{Name: "errors-uring", Run: noSocketsByUring},
		{Name: "errors-filters", Run: noSocketFilters},
		{Name: "errors-pending", Hosts: lab.TwoHosts, Run: pending("--errors")},
		{Name: "pending", Hosts: lab.TwoHosts, Run: pending()},
		{Name: "pending-filters", Hosts: lab.TwoHosts, Run: pendingFilters},
		{Name: "pending-ticks", Hosts: lab.TwoHosts, Run: pendingTicks},
		{Name: "preempted", Run: preempted},
		{Name: "timeout", Hosts: lab.TwoHosts, Run: timeouts, Slow: true},
	}
}

// timeouts: connects without an answer. Non-blocking connects show the timeout
// too.
func timeouts(x *trial.Trial) error {
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	slow := keep(all, func(a lab.Attempt) bool { return a.Want == unix.ETIMEDOUT })
	c, err := lab.StartConnects(x.World, "", "connects", all...)
	if err != nil {
		return err
	}
	const least = 200 * time.Millisecond
	rows, out, err := trial.RowsOf(x, len(slow), c.Run, "--min="+least.String())
	if err != nil {
		return err
	}
	quick, out := out[:len(out)-len(slow)], out[len(out)-len(slow):]
	held := 0 // if the machine stood still; the process's stopwatch runs longer
	for _, o := range quick {
		if o.NS >= int64(least) {
			held++
		}
	}
	if n := len(rows) - len(slow); n < 0 || n > held {
		return fmt.Errorf("%d rows of at least %v, want %d and at most %d more", len(rows), least, len(slow), held)
	}
	for _, r := range rows {
		if ns := r.Get("latency_us").N; ns < uint64(least) {
			x.Errorf("it took %d ns, in %s", ns, trial.Dump(r))
		}
	}
	rows = rows[len(rows)-len(slow):]
	for i, o := range out {
		ended(x, rows[i], o, unix.ETIMEDOUT, o.NS)
		// The first SYN is retransmitted after a second.
		if ns := int64(rows[i].Get("latency_us").N); ns < int64(time.Second) {
			x.Errorf("%s: latency %v, but it took %v", o.Attempt.Mode, time.Duration(ns), time.Duration(o.NS))
		}
	}
	return nil
}

// bare: --syscall shows the result and the duration of the system call alone.
func bare(x *trial.Trial) error {
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	out, rows, err := attempts(x, keep(all, func(a lab.Attempt) bool {
		return a.Mode == lab.Nonblocking && a.Want != unix.ETIMEDOUT || a.Name == "udp"
	}), "--syscall")
	if err != nil {
		return err
	}
	progress := 0
	for i, o := range out {
		ended(x, rows[i], o, o.Call, o.CallNS)
		if o.Call == unix.EINPROGRESS {
			progress++
			x.Want(rows[i], "result", "In progress")
		}
	}
	if progress != 4 {
		x.Errorf("%d connects were in progress, want 4", progress)
	}
	return nil
}

// unixes: the path is the address.
func unixes(x *trial.Trial) error {
	targets, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	abstract, err := lab.StartTargets(x.World, "", "abstract", lab.Target{Network: lab.UnixDgram, Addr: "@seine " + fmt.Sprint(targets.PID)})
	if err != nil {
		return err
	}
	list := keep(all, func(a lab.Attempt) bool { return a.Network.Family() == unix.AF_UNIX })
	list = append(list, lab.Attempt{Name: "abstract", Network: lab.UnixDgram, Addr: abstract.Addrs[0]})
	out, rows, err := attempts(x, list, "--family=unix")
	if err != nil {
		return err
	}
	if len(out) != 4 {
		x.Errorf("%d UNIX sockets were tried, want 4", len(out))
	}
	for i, o := range out {
		ended(x, rows[i], o, o.Errno, o.NS)
	}
	return nil
}

// uring: connects by io_uring have the same rows. A connect that fails before a
// packet is sent has no latency, and with IPv4 no address.
func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	_, all, err := lab.Outcomes(x.World, "targets")
	if err != nil {
		return err
	}
	list := keep(all, func(a lab.Attempt) bool {
		return a.Mode == lab.Blocking && a.Want != unix.ETIMEDOUT && a.Network.Family() != unix.AF_UNIX
	})
	for i := range list {
		list[i].Mode = lab.ByUring
	}
	out, rows, err := attempts(x, list)
	if err != nil {
		return err
	}
	for i, o := range out {
		x.Want(rows[i], "via", "uring")
		if o.Attempt.Name == "success" || o.Attempt.Name == "refused" {
			ended(x, rows[i], o, o.Errno, o.NS)
			continue
		}
		wantErrno(x, rows[i], o.Errno)
		x.Want(rows[i], "latency_us", "-")
		// IPv6 leaves the address in the socket, IPv4 does not.
		to, _ := netip.ParseAddrPort(o.Attempt.Addr)
		if c := rows[i].Get("raddr"); c.Kind != row.Null && c.IP() != to.Addr() {
			x.Errorf("raddr is %s, want %s or none", c.IP(), to.Addr())
		}
	}
	return nil
}

// mptcp: a connection and its subflow are one connect.
func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	targets, err := lab.StartTargets(x.World, "server", "targets",
		lab.Target{Network: lab.MPTCP4}, lab.Target{Network: lab.MPTCP4, Kind: lab.BoundOnly})
	if err != nil {
		return err
	}
	var list []lab.Attempt
	for _, mode := range []lab.Mode{lab.Blocking, lab.Nonblocking} {
		list = append(list,
			lab.Attempt{Name: "success", Network: lab.MPTCP4, Addr: targets.Addrs[0], Mode: mode},
			lab.Attempt{Name: "refused", Network: lab.MPTCP4, Addr: targets.Addrs[1], Mode: mode, Want: unix.ECONNREFUSED})
	}
	out, rows, err := attempts(x, list)
	if err != nil {
		return err
	}
	for i, o := range out {
		ended(x, rows[i], o, o.Errno, o.NS)
	}
	return nil
}

// givenUp: sockets that are closed before an answer comes.
func givenUp(x *trial.Trial) error {
	silent, err := lab.StartTargets(x.World, "", "targets", lab.Target{Network: lab.TCP4, Kind: lab.Silent})
	if err != nil {
		return err
	}
	list := make([]lab.Attempt, 7)
	for i := range list {
		list[i] = lab.Attempt{Network: lab.TCP4, Addr: silent.Addrs[0], Mode: lab.Unfollowed, Want: unix.EINPROGRESS}
	}
	_, rows, err := attempts(x, list)
	if err != nil {
		return err
	}
	for _, r := range rows {
		wantErrno(x, r, unix.ECANCELED)
		x.Want(r, "result", "Given up")
	}
	return nil
}

const bodyAgain, bodyFastopen = "soconnect-again", "soconnect-fastopen"

// again: a second call that asks for the result is not another connect.
// Connecting a connected socket is another one, and fails.
func again(x *trial.Trial) error {
	targets, err := lab.StartTargets(x.World, "", "targets",
		lab.Target{Network: lab.TCP4}, lab.Target{Network: lab.TCP4, Kind: lab.BoundOnly})
	if err != nil {
		return err
	}
	rows, err := body(x, bodyAgain, targets.Addrs, 3)
	if err != nil {
		return err
	}
	wantErrno(x, rows[0], 0)
	wantErrno(x, rows[1], unix.EISCONN)
	wantErrno(x, rows[2], unix.ECONNREFUSED)
	return nil
}

// callAgain connects a socket three times: once without waiting, once to get
// the result, and once more. The second address refuses; there it connects
// once, and once to get the result.
func callAgain(c *lab.Child) error {
	var addrs []string
	if err := c.Arg(&addrs); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	for i, want := range [][]error{
		{unix.EINPROGRESS, nil, unix.EISCONN},
		{unix.EINPROGRESS, unix.ECONNREFUSED},
	} {
		fd, err := lab.Socket(lab.TCP4)
		if err != nil {
			return err
		}
		defer lab.Close(fd)
		sa, err := lab.TCP4.Sockaddr(addrs[i])
		if err != nil {
			return err
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
		for n, want := range want {
			if err := unix.Connect(fd, sa); err != want {
				return fmt.Errorf("connect %d to %s: %v, want %v", n, addrs[i], err, want)
			}
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1); err != nil {
				return err
			}
		}
	}
	return c.Report(0)
}

// fastopen: the send is the connect.
func fastopen(x *trial.Trial) error {
	targets, err := lab.StartTargets(x.World, "", "targets", lab.Target{Network: lab.TCP4})
	if err != nil {
		return err
	}
	rows, err := body(x, bodyFastopen, targets.Addrs, 5)
	if err != nil {
		return err
	}
	for _, r := range rows {
		wantErrno(x, r, 0)
		x.Want(r, "via", "send")
		x.Want(r, "rport", targets.Port(0))
	}
	return nil
}

func sendFast(c *lab.Child) error {
	var addrs []string
	if err := c.Arg(&addrs); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	sa, err := lab.TCP4.Sockaddr(addrs[0])
	if err != nil {
		return err
	}
	for range 5 {
		fd, err := lab.Socket(lab.TCP4)
		if err != nil {
			return err
		}
		defer lab.Close(fd)
		if err := unix.Sendto(fd, []byte("fast"), unix.MSG_FASTOPEN, sa); err != nil {
			return fmt.Errorf("sendto: %w", err)
		}
	}
	return c.Report(0)
}

// body runs one of the bodies above and returns its process's rows.
func body(x *trial.Trial, name string, addrs []string, n int) ([]*row.Row, error) {
	p, err := x.World.Start("", "connects", name, addrs)
	if err != nil {
		return nil, err
	}
	if err := x.Attach(); err != nil {
		return nil, err
	}
	var done int
	if err := p.Call("go", &done); err != nil {
		return nil, err
	}
	x.Await(n)
	rows, err := x.Detach()
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		x.Want(r, "pid", p.PID)
	}
	if len(rows) != n {
		all := ""
		for _, r := range rows {
			all += "\n" + trial.Dump(r)
		}
		return nil, fmt.Errorf("%w:%s", trial.RowCount(len(rows), n), all)
	}
	return rows, p.Wait()
}
