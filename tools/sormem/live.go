// SPDX-License-Identifier: Apache-2.0

package sormem

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

var addr4 = [4]byte{127, 0, 0, 1}

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyStalled, stalled)
	lab.Register(bodyPing, deafPing)
	lab.Register(bodyRaw, deafRaw)
	lab.Register(bodyPruned, pruned)
	lab.Register(bodyLeaver, leaver)
	lab.Register(bodyReader, reader)
	lab.Register(bodyGrower, grower)
	return []trial.Case{
		{Name: "fill", Run: fills},
		{Name: "outputs", Run: outputs},
		{Name: "zero-window", Run: zeroWindow},
		{Name: "ping", Run: ping},
		{Name: "raw", Run: raw},
		{Name: "reused", Run: reused},
		{Name: "few-raw", Run: fewRaw},
		{Name: "few-shut", Run: fewShut},
		{Name: "prune", Run: prune},
		{Name: "send", Run: sends},
		{Name: "tcp-rmem", Run: tcpRmem},
	}
}

// hist is the histogram of a metric, empty if there is none.
func hist(rows []*row.Row, metric string) *kern.Hist {
	for _, r := range rows {
		for _, id := range []string{"bytes", "percent"} {
			if c := r.Get(id); c != nil && trial.Value(r.Get("metric")) == metric {
				return c.Ref.(*kern.Hist)
			}
		}
	}
	return &kern.Hist{}
}

// fills: the tool reads the buffer's fill before the copy, not after it.
func fills(x *trial.Trial) error {
	o, err := lab.StartIO(x.World, "", "filler", lab.Load{Network: lab.TCP4, Count: 23, Size: 1000}, lab.Load{Network: lab.UDP6, Count: 23, Size: 1000})
	if err != nil {
		return err
	}
	rows, _, err := trial.RowsOf(x, 0, o.Run, "--by=comm,proto")
	if err != nil {
		return err
	}
	all, _ := split(rows)
	if len(all) != 6 {
		x.Errorf("%d histograms, want 3 of each of TCP and UDP", len(all))
	}
	for _, proto := range []string{"tcp", "udp"} {
		var own []*row.Row
		for _, r := range all {
			if trial.Value(r.Get("proto")) == proto {
				x.Want(r, "comm", "filler")
				own = append(own, r)
			}
		}
		alloc, limit, ratio := hist(own, "rmem_alloc"), hist(own, "rmem_limit"), hist(own, "rmem_ratio")
		if alloc.Count < 23 || alloc.Count != limit.Count || ratio.Count != limit.Count {
			x.Errorf("%s: looked %d, %d and %d times, want at least 23", proto, alloc.Count, limit.Count, ratio.Count)
		}
		// A message of 1000 bytes takes more than that in the buffer, each time.
		// The end of a connection is an arrival too, with almost no bytes.
		full := uint64(0)
		for _, b := range alloc.Buckets() {
			if b.Lo >= 1024 {
				full += b.Count
			}
		}
		if full < 23 || alloc.Max > 1<<16 || limit.Min < alloc.Max || ratio.Max > 100 {
			x.Errorf("%s: %d times full, with %d to %d bytes of %d, %d %%", proto, full, alloc.Min, alloc.Max, limit.Min, ratio.Max)
		}
	}
	return nil
}

// outputs: each output has what has come since the one before, in both views, which show the same map.
func outputs(x *trial.Trial) error {
	if err := x.Attach("--interval=100ms", "--proto=udp", "--by=comm"); err != nil {
		return err
	}
	comms := []string{"filler1", "filler2"}
	for i, comm := range comms {
		o, err := lab.StartIO(x.World, "", comm, lab.Load{Network: lab.UDP4, Count: 23, Size: 1000})
		if err != nil {
			return err
		}
		if _, err := o.Run(); err != nil {
			return err
		}
		x.Await(3 * (i + 1))
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	for _, comm := range comms {
		counts := map[string]uint64{}
		for _, r := range rows {
			if trial.Value(r.Get("comm")) == comm {
				metric := trial.Value(r.Get("metric"))
				counts[metric] += hist([]*row.Row{r}, metric).Count
			}
		}
		alloc, limit, ratio := counts["rmem_alloc"], counts["rmem_limit"], counts["rmem_ratio"]
		if alloc < 23 || alloc >= 2*23 || limit != alloc || ratio != alloc {
			x.Errorf("%s: looked %d, %d and %d times in all outputs, want 23 or a few more", comm, alloc, limit, ratio)
		}
	}
	return nil
}

const (
	bodyStalled = "sormem-stalled"
	bodyPing    = "sormem-ping"
	bodyRaw     = "sormem-raw"
	bodyPruned  = "sormem-pruned"
	bodyLeaver  = "sormem-leaver"
	bodyReader  = "sormem-reader"
	bodyGrower  = "sormem-grower"
)

// stalled connects to itself, and writes until the socket takes no more. Its
// argument is the size of the send buffer; without one it is the system's default.
func stalled(c *lab.Child) error {
	var buffer int
	if err := c.Arg(&buffer); err != nil {
		return err
	}
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 1)
	if err != nil {
		return err
	}
	if err := c.Report(port); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	w, err := lab.Connect(lab.TCP4, lab.TCP4.At(netip.AddrFrom4(addr4), port))
	if err != nil {
		return err
	}
	if _, err := lab.Accept(l); err != nil {
		return err
	}
	if buffer > 0 {
		if err := unix.SetsockoptInt(w, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, buffer); err != nil {
			return err
		}
	}
	if _, err := fillUp(w); err != nil {
		return err
	}
	return c.Await("end")
}

// shut reports whether r is a row of a receiver that has closed its window.
func shut(r *row.Row) bool {
	return r.Schema.View == "overflow" && trial.Value(r.Get("reason")) == "zero window"
}

// zeroWindow: a TCP receiver that does not read does not overflow, and gives
// one row.
func zeroWindow(x *trial.Trial) error {
	p, err := x.World.Start("", "stalled", bodyStalled, nil)
	if err != nil {
		return err
	}
	var port int
	if err := p.Expect(&port); err != nil {
		return err
	}
	if err := x.Attach("--by=comm"); err != nil {
		return err
	}
	if err := p.Tell("go"); err != nil {
		return err
	}
	x.Until(func(rows []*row.Row) bool { return slices.ContainsFunc(rows, shut) })
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
	n := 0
	for _, r := range rows {
		if shut(r) {
			n++
			x.Want(r, "pid", p.PID)
			x.Want(r, "proto", "tcp")
			x.Want(r, "lport", port)
		}
	}
	if n != 1 {
		x.Errorf("%d rows of a zero window, want 1", n)
	}
	return nil
}

// deafPing pings itself through a datagram socket with a small buffer, and
// reads no answer.
func deafPing(c *lab.Child) error {
	fd, err := lab.Socket(lab.Ping4)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096); err != nil {
		return err
	}
	to := &unix.SockaddrInet4{Addr: addr4}
	if err := unix.Bind(fd, to); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	echo := append([]byte{8, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 56)...)
	for range 101 {
		if err := unix.Sendto(fd, echo, 0, to); err != nil {
			return err
		}
	}
	drops, err := settled(fd, 101)
	if err != nil {
		return err
	}
	return c.Report(drops)
}

// settled reads from a socket until n packets were read or dropped, and returns the
// number of drops. A busy processor may still have some packets in its queue.
func settled(fd, n int) (drops int, err error) {
	for range 20000 {
		_, _, err = unix.Recvfrom(fd, make([]byte, 200), unix.MSG_DONTWAIT)
		switch {
		case err == nil:
			n--
			continue
		case !errors.Is(err, unix.EAGAIN):
			return 0, err
		}
		if drops, err = lab.Drops(fd); err != nil || drops >= n {
			return drops, err
		}
		time.Sleep(time.Millisecond)
	}
	return 0, fmt.Errorf("%d packets came neither in nor were dropped", n-drops)
}

// ping: the rows count each packet that the socket counts as dropped.
func ping(x *trial.Trial) error {
	if err := x.World.Sysctl("", "net.ipv4.ping_group_range", "0 2147483647"); err != nil {
		return err
	}
	start := time.Now()
	p, drops, overflows, err := child(x, bodyPing)
	if err != nil {
		return err
	}
	if n := dropped(x, overflows, time.Since(start)); drops == 0 || n != drops {
		x.Errorf("%d overflows, want %d", n, drops)
	}
	for _, r := range overflows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "reason", "queue full")
		x.Want(r, "proto", "icmp")
	}
	return nil
}

// deafRaw sends pings through raw sockets with small buffers, which receive the
// pings and the answers. It reads a few of each, and sends again. Its argument is
// the number of sockets, one by default.
func deafRaw(c *lab.Child) error {
	var n int
	if err := c.Arg(&n); err != nil {
		return err
	}
	var fds []int
	for range max(n, 1) {
		fd, err := lab.Socket(lab.Raw4)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096); err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	echo := append([]byte{8, 0, 0xf7, 0xfe, 0, 0, 0, 1}, make([]byte, 56)...)
	for i := range 101 {
		if i == 53 {
			if err := dropping(fds); err != nil {
				return err
			}
			for range 3 * len(fds) {
				if _, err := unix.Read(fds[i%len(fds)], make([]byte, 200)); err != nil {
					return err
				}
				i++
			}
		}
		if err := unix.Sendto(fds[0], echo, 0, &unix.SockaddrInet4{Addr: addr4}); err != nil {
			return err
		}
	}
	sum := 0
	for _, fd := range fds {
		drops, err := settled(fd, 2*101-3)
		if err != nil {
			return err
		}
		sum += drops
		lab.Close(fd)
	}
	return c.Report(sum)
}

// dropping waits until each socket has dropped a packet.
func dropping(fds []int) error {
	for _, fd := range fds {
		for {
			if n, err := lab.Drops(fd); err != nil {
				return err
			} else if n > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// raw: the rows add up to what the socket counts as dropped.
func raw(x *trial.Trial) error {
	p, drops, rows, err := child(x, bodyRaw)
	if err != nil {
		return err
	}
	sum := 0
	for _, r := range rows {
		sum += int(r.Get("drops").N)
		x.Want(r, "pid", p.PID)
		x.Want(r, "reason", "queue full")
		x.Want(r, "proto", "icmp")
	}
	if drops == 0 || sum != drops {
		x.Errorf("rows of %d packets, want %d", sum, drops)
	}
	return nil
}

// child runs a body that counts, and returns its count and the rows of
// overflows.
func child(x *trial.Trial, body string) (*lab.Proc, int, []*row.Row, error) {
	p, err := x.World.StartReady("", "deaf", body, nil)
	if err != nil {
		return nil, 0, nil, err
	}
	if err := x.Attach("--by=comm"); err != nil {
		return nil, 0, nil, err
	}
	var n int
	if err := p.Call("go", &n); err != nil {
		return nil, 0, nil, err
	}
	if err := p.Wait(); err != nil {
		return nil, 0, nil, err
	}
	rows, err := x.Detach()
	_, overflows := split(rows)
	return p, n, overflows, err
}

// pruned shrinks its receive buffer and then writes to itself as much as the
// window still allows.
func pruned(c *lab.Child) error {
	w, r, port, err := bothEnds()
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(w, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(r, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	for range 7 {
		if _, err := unix.Write(w, make([]byte, 3000)); err != nil {
			return err
		}
	}
	for {
		n, err := host.ReadCounters("/proc/thread-self/net")
		if err != nil {
			return err
		}
		if n["TcpExtTCPRcvQDrop"] > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	lab.Reset(w) // nothing is retransmitted after this
	return c.Report(port)
}

// prune: the rows count each pruning of TCP, and each segment that it drops because the
// buffer is full, as the kernel counts them.
func prune(x *trial.Trial) error {
	before, err := x.World.Counters("")
	if err != nil {
		return err
	}
	p, port, rows, err := child(x, bodyPruned)
	if err != nil {
		return err
	}
	after, err := x.World.Counters("")
	if err != nil {
		return err
	}
	got := map[string]int64{}
	for _, r := range rows {
		x.Want(r, "pid", p.PID)
		x.Want(r, "lport", port)
		x.Want(r, "limit_bytes", 2304)
		got[trial.Value(r.Get("reason"))] += int64(r.Get("drops").N)
	}
	n := after.Since(before)
	if n["TcpExtPruneCalled"] == 0 || n["TcpExtTCPRcvQDrop"] == 0 {
		return fmt.Errorf("nothing was pruned: %v", n)
	}
	seen := 0
	for _, c := range x.Choices {
		switch {
		case c.Point == "prune" && c.Way != "":
			seen++
			if got["prune"] != n["TcpExtPruneCalled"] {
				x.Errorf("pruned %d times, want %d", got["prune"], n["TcpExtPruneCalled"])
			}
		case c.Point == "drop" && c.Way != "":
			seen++
			if want := n["TcpExtTCPRcvQDrop"] + n["TcpExtTCPOFODrop"]; got["drop"] != want {
				x.Errorf("%d segments dropped, want %d", got["drop"], want)
			}
		}
	}
	if seen == 0 {
		return trial.Skip("neither functions nor dropped packets' sockets can be seen here")
	}
	return nil
}

const (
	tcpMem     = "/proc/sys/net/ipv4/tcp_mem"
	sendBuffer = 16 << 20
)

// sends: with --send, a sender for which TCP has no memory. The limit is that of
// the whole machine, so the case lowers it only on a machine for tests.
func sends(x *trial.Trial) error {
	if !lab.Emulated() {
		return trial.Skip("tcp_mem is the whole machine's")
	}
	old, err := os.ReadFile(tcpMem)
	if err != nil {
		return err
	}
	for _, flag := range []string{"--send", "--send=false"} {
		// The kernel silently shrinks a buffer of default size. It applies the
		// limit only beyond its reserve of 1 MB.
		p, err := x.World.Start("", "stalled", bodyStalled, sendBuffer)
		if err != nil {
			return err
		}
		var port int
		if err := p.Expect(&port); err != nil {
			return err
		}
		if err := x.Attach("--by=comm", flag); err != nil {
			return err
		}
		if err := os.WriteFile(tcpMem, []byte("1 1 1"), 0o644); err != nil {
			return err
		}
		err = p.Tell("go")
		if flag == "--send" {
			x.Await(1)
		}
		if err := errors.Join(err, p.Tell("end"), p.Wait(), os.WriteFile(tcpMem, old, 0o644)); err != nil {
			return err
		}
		rows, err := x.Detach()
		if err != nil {
			return err
		}
		n := 0
		_, overflows := split(rows)
		for _, r := range overflows {
			if trial.Value(r.Get("kind")) == "send" {
				n++
				x.Want(r, "pid", p.PID)
				x.Want(r, "reason", "protocol memory")
				x.Want(r, "rport", port)
				x.Want(r, "limit_bytes", 2*sendBuffer) // as the kernel doubles it
				if used := r.Get("used_bytes").N; used == 0 || used > 2*sendBuffer {
					x.Errorf("%d bytes in the buffer, want some of %d", used, 2*sendBuffer)
				}
			}
		}
		if (n > 0) != (flag == "--send") {
			x.Errorf("%s: %d rows of a sender", flag, n)
		}
	}
	return nil
}

// grower connects to itself, and fills and empties the receiver's buffer again
// and again. It reports the buffer's size when a last byte arrives and is read.
func grower(c *lab.Child) error {
	w, r, _, err := bothEnds()
	if err != nil {
		return err
	}
	chunk := make([]byte, 1<<16)
	for moved := 0; moved < 64<<20; {
		n, err := fillUp(w)
		if err != nil {
			return err
		}
		for left := n; left > 0; {
			got, err := unix.Read(r, chunk[:min(left, len(chunk))])
			if err != nil {
				return err
			}
			left -= got
		}
		moved += n
	}
	size, err := unix.GetsockoptInt(r, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err == nil {
		_, err = unix.Write(w, chunk[:1])
	}
	// The tool reads the size when the byte arrives, or just before it is read. After
	// that the buffer may grow once more, so nothing else may arrive.
	if err == nil {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(r), Events: unix.POLLIN}}, -1)
	}
	if err == nil {
		_, err = unix.Read(r, chunk[:1])
	}
	return errors.Join(err, unix.Close(r), c.Report(size))
}

// bothEnds is a TCP connection within the process, and the port of the end that
// accepted.
func bothEnds() (w, r, port int, err error) {
	l, port, err := lab.Listen(lab.TCP4, "127.0.0.1:0", 1)
	if err == nil {
		w, err = lab.Connect(lab.TCP4, lab.TCP4.At(netip.AddrFrom4(addr4), port))
	}
	if err == nil {
		r, err = lab.Accept(l)
	}
	return w, r, port, err
}

// fillUp writes until the socket takes no more, and returns the number of
// bytes.
func fillUp(fd int) (total int, err error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return 0, err
	}
	chunk := make([]byte, 1<<16)
	for {
		n, err := unix.Write(fd, chunk)
		if errors.Is(err, unix.EAGAIN) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		total += n
	}
}

// tcpRmem is the book's experiment: the system's maximum buffer size moves the
// histogram of limits.
func tcpRmem(x *trial.Trial) error {
	for _, largest := range []uint64{10485760, 100000} {
		if err := x.World.Sysctl("", "net.ipv4.tcp_rmem", fmt.Sprint("4096 32768 ", largest)); err != nil {
			return err
		}
		var size uint64
		rows, err := x.Rows(func() error {
			p, err := x.World.Start("", "grower", bodyGrower, nil)
			if err != nil {
				return err
			}
			return errors.Join(p.Expect(&size), p.Wait())
		}, "--by=comm")
		if err != nil {
			return err
		}
		all, _ := split(rows)
		var own []*row.Row
		for _, r := range all {
			if trial.Value(r.Get("comm")) == "grower" {
				own = append(own, r)
			}
		}
		limit := hist(own, "rmem_limit")
		if limit.Max != size || size > largest {
			x.Errorf("limits up to %d, want the socket's %d, of %d that are allowed", limit.Max, size, largest)
		}
		if largest > 1<<20 && size <= 100000 {
			x.Errorf("the buffer has grown to %d, want more than the 100000 that are allowed next", size)
		}
		if largest == 100000 && limit.Quantile(0.5) < 65536 {
			x.Errorf("half of the limits are below %.0f, want them in [64K, 128K)", limit.Quantile(0.5))
		}
	}
	return nil
}

const reusing = 211 // sockets

// leaver binds sockets and ends.
func leaver(*lab.Child) error {
	for range reusing {
		if _, _, err := lab.Bind(lab.UDP4, lab.UDP4.At(netip.AddrFrom4(addr4), 0)); err != nil {
			return err
		}
	}
	return nil
}

// reader connects sockets, which binds them, and each receives a datagram.
func reader(*lab.Child) error {
	w, port, err := lab.Bind(lab.UDP4, lab.UDP4.At(netip.AddrFrom4(addr4), 0))
	if err != nil {
		return err
	}
	for range reusing {
		fd, err := lab.Connect(lab.UDP4, lab.UDP4.At(netip.AddrFrom4(addr4), port))
		if err != nil {
			return err
		}
		to, err := unix.Getsockname(fd)
		if err == nil {
			err = unix.Sendto(w, []byte("x"), 0, to)
		}
		if err == nil {
			_, err = unix.Read(fd, make([]byte, 8))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reused: sockets at kernel addresses of an ended process's sockets do not
// belong to that process.
func reused(x *trial.Trial) error {
	rows, err := x.Rows(func() error {
		for _, body := range []string{bodyLeaver, bodyReader} {
			p, err := x.World.Start("", body[len("sormem-"):], body, nil)
			if err == nil {
				err = errors.Join(p.Wait(), x.World.Grace()) // sockets are freed after it
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, "--by=comm")
	fills, _ := split(rows)
	for _, r := range fills {
		x.Want(r, "comm", "reader")
	}
	if n := hist(fills, "rmem_alloc").Count; n != reusing {
		x.Errorf("%d arrivals, want %d", n, reusing)
	}
	return err
}

// fewRaw: more raw sockets than the map has room for. No row shows more than the
// socket dropped, and sockets without rows are counted.
func fewRaw(x *trial.Trial) error {
	flag, err := x.Few()
	if err != nil {
		return err
	}
	p, err := x.World.Start("", "deaf", bodyRaw, 13)
	if err != nil {
		return err
	}
	var ready bool
	if err := p.Expect(&ready); err != nil {
		return err
	}
	if err := x.Attach(flag); err != nil {
		return err
	}
	var happened int
	if err := p.Call("go", &happened); err != nil {
		return err
	}
	if err := p.Wait(); err != nil {
		return err
	}
	all, err := x.Detach()
	if err != nil {
		return err
	}
	_, rows := split(all)
	sum := 0
	for _, r := range rows {
		sum += int(r.Get("drops").N)
	}
	lost := x.Report.Losses[tool.LossSpan]
	if happened == 0 || sum > happened || sum < happened && lost == 0 {
		x.Errorf("%d packets in %d rows, %d lost, and the sockets dropped %d", sum, len(rows), lost, happened)
	}
	return nil
}

// probed waits until all receivers have closed their windows and senders have probed them
// n times. The time between probes doubles.
func probed(w *lab.World, n int) error {
	for range 3000 {
		c, err := w.Counters("")
		if err != nil || c["TcpExtTCPToZeroWindowAdv"] >= 3 && c["TcpExtTCPWinProbe"] >= int64(n) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("senders have not asked %d times: %w", n, lab.ErrLate)
}

// fewShut: more receivers with a zero window than the map has room for. Each gives
// one row or is counted.
func fewShut(x *trial.Trial) error {
	flag, err := x.Few()
	if err != nil {
		return err
	}
	var procs []*lab.Proc
	ports := map[int]int{}
	for range 3 {
		p, err := x.World.Start("", "stalled", bodyStalled, nil)
		if err != nil {
			return err
		}
		var port int
		if err := p.Expect(&port); err != nil {
			return err
		}
		procs, ports[port] = append(procs, p), 0
	}
	if err := x.Attach(flag); err != nil {
		return err
	}
	for _, p := range procs {
		if err := p.Tell("go"); err != nil {
			return err
		}
	}
	if err := probed(x.World, 3*len(procs)); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	told := 0
	for _, r := range rows {
		if shut(r) {
			told++
			ports[int(r.Get("lport").N)]++
		}
	}
	for port, n := range ports {
		if n > 1 {
			x.Errorf("port %d was told %d times", port, n)
		}
	}
	if lost := x.Report.Losses[tool.LossSpan]; told == 0 || told < len(ports) && lost == 0 {
		x.Errorf("%d of %d told, and %d lost", told, len(ports), lost)
	}
	for _, p := range procs {
		if err := errors.Join(p.Tell("end"), p.Wait()); err != nil {
			return err
		}
	}
	return nil
}
