// SPDX-License-Identifier: Apache-2.0

package socketio

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyAlike, receiveAlike)
	return []trial.Case{
		{Name: "failures", Run: failures},
		{Name: "refused", Run: refused},
		{Name: "uring", Run: uring},
		{Name: "mptcp", Run: mptcp},
		{Name: "by", Run: by},
		{Name: "lport", Run: lport},
		{Name: "service", Run: service(lab.TCP4, lab.TCP6)},
		{Name: "proto", Run: proto},
		{Name: "parallel", Run: parallel, Hosts: lab.TwoHosts},
		{Name: "intervals", Run: intervals},
		{Name: "one-process", Run: oneProcess},
		{Name: "small-map", Run: smallMap},
		{Name: "large-batches", Run: largeBatches},
		{Name: "uring-alike", Run: alike},
	}
}

// oneProcess: without a socket filter, a splice from a pipe does not count as a
// read of a socket.
func oneProcess(x *trial.Trial) error {
	l := lab.Load{Network: lab.TCP4, Write: lab.Splice, Read: lab.Read, Count: 21, Size: 333}
	o, err := lab.StartIO(x.World, "", "io", l)
	if err != nil {
		return err
	}
	if err := x.AttachAll("--by=dir,proto", fmt.Sprint("--pid=", o.PID)); err != nil {
		return err
	}
	res, err := o.Run()
	if err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	w := want{}
	sent, got := l.Moved(res[0])
	w.add("write tcp ", sent)
	w.add("read tcp ", got)
	w.check(x, rows, "dir", "proto")
	return nil
}

// uring: io_uring requests, which make no system call of their own.
func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	var loads []lab.Load
	for _, n := range []lab.Network{lab.TCP4, lab.TCP6, lab.UDP4, lab.Unix} {
		loads = append(loads,
			lab.Load{Network: n, Write: lab.UringSend, Read: lab.UringRecv, Count: 23, Size: 777},
			lab.Load{Network: n, Write: lab.UringWrite, Read: lab.UringRead, Count: 29, Size: 555})
	}
	rows, w, err := run(x, loads)
	if err != nil {
		return err
	}
	w.check(x, rows, "dir", "proto", "port")
	return nil
}

// counts is the number of messages that the rows count.
func counts(rows []*row.Row) (sent, received int) {
	for _, r := range rows {
		if trial.Value(r.Get("dir")) == "write" {
			sent += int(r.Get("count").N)
		} else {
			received += int(r.Get("count").N)
		}
	}
	return sent, received
}

// largeBatches: by system calls, the first 64 messages of one call are counted, and
// the others are counted as lost.
func largeBatches(x *trial.Trial) error {
	const batch, n = 71, 3 * 71
	o, err := lab.StartIO(x.World, "", "io", lab.Load{Network: lab.UDP4, Count: n, Size: 70, Batch: batch, Write: lab.Sendmmsg, Read: lab.Recvmmsg})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := o.Run(); return err }, "--by=dir")
	if err != nil {
		return err
	}
	way := x.Choices[0].Way
	if way == "fexit" || way == "kprobe" {
		return trial.Skip("functions tell of the first message of a batch, as -v says")
	}
	sent, received := counts(rows)
	lost := int(x.Report.Losses[tool.LossBatch])
	if sent+received+lost != 2*n || sent > n || received > n {
		x.Errorf("%d sent, %d received, %d lost, want %d of both together", sent, received, lost, n)
	}
	if most := n / batch * (batch - 64); (way == "tp" || way == "sys") != (sent == n-most) {
		x.Errorf("by %s %d of %d sends were counted", way, sent, n)
	}
	return nil
}

const bodyAlike, alikes = "socketio-alike", 7

// receiveAlike has receive and send requests under way at the same time, all with the
// same user_data.
func receiveAlike(c *lab.Child) error {
	ring, err := lab.NewRing(2 * alikes)
	if err != nil {
		return err
	}
	defer ring.Close()
	ring.Alike = true
	var receive, send []lab.RingOp
	for range alikes {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		receive = append(receive, lab.RingOp{Code: lab.RingRecv, FD: fds[0], Addr: make([]byte, 100)})
		send = append(send, lab.RingOp{Code: lab.RingSend, FD: fds[1], Addr: make([]byte, 10)})
	}
	if err := errors.Join(c.Report(true), c.Await("go")); err != nil {
		return err
	}
	_, err = ring.Do(append(receive, send...)...)
	return err
}

// alike: before 5.19 the kernel identifies an io_uring request only by its user_data.
// Requests with the same user_data are counted as lost.
func alike(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	p, err := x.World.StartReady("", "alike", bodyAlike, nil)
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { return errors.Join(p.Tell("go"), p.Wait()) }, "--by=dir", "--comm=alike", "--family=unix")
	if err != nil {
		return err
	}
	sent, received := counts(rows)
	lost := int(x.Report.Losses[tool.LossSame])
	if sent+received+lost != 2*alikes || sent > alikes || received > alikes {
		x.Errorf("%d sent, %d received, %d lost, want %d of both together", sent, received, lost, alikes)
	}
	k, err := probe.Running()
	if err != nil {
		return err
	}
	way := x.Choices[0].Way
	if old := (way == "tp" || way == "sys") && probe.UringLayout("old")(k) == nil; old != (lost > 0) {
		x.Errorf("by %s %d were lost, and completions name requests: %v", way, lost, !old)
	}
	return nil
}

func mptcp(x *trial.Trial) error {
	if err := lab.MPTCPSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	rows, w, err := run(x, []lab.Load{{Network: lab.MPTCP4, Count: 23, Size: 777}})
	if err != nil {
		return err
	}
	w.check(x, rows, "dir", "proto", "port")
	return nil
}

// failures: failed calls are counted as errors, EAGAIN is not counted, and
// peeks count without bytes.
func failures(x *trial.Trial) error {
	var loads []lab.Load
	for _, n := range []lab.Network{lab.TCP4, lab.TCP6, lab.Unix, lab.UnixDgram} {
		loads = append(loads, lab.Load{Network: n, Count: 5, Size: 100, Peek: 2, Again: 3, Broken: 7})
	}
	rows, w, err := run(x, loads)
	if err != nil {
		return err
	}
	if n := w["write unix - "]; n != (count{24, 1000, 14}) {
		x.Errorf("the workload is not what it should be: %+v", n)
	}
	w.check(x, rows, "dir", "proto", "port")
	return nil
}

// refused: a read of the error queue is a call without bytes.
func refused(x *trial.Trial) error {
	f, err := lab.StartRefused(x.World, "io", 3, 101)
	if err != nil {
		return err
	}
	rows, err := x.Rows(f.Run, "--by=dir,proto")
	if err != nil {
		return err
	}
	want{"write udp ": {count: 3, bytes: 303}, "read udp ": {count: 3}}.check(x, rows, "dir", "proto")
	return nil
}

var mixed = []lab.Load{
	{Network: lab.TCP4, Count: 13, Size: 100},
	{Network: lab.TCP6, Count: 17, Size: 50},
	{Network: lab.UDP4, Count: 19, Size: 30},
	{Network: lab.Unix, Count: 23, Size: 10},
}

// by: rows with fewer key fields are sums.
func by(x *trial.Trial) error {
	rows, _, err := run(x, mixed, "--by=dir")
	if err != nil {
		return err
	}
	both := count{count: 72, bytes: 1300 + 850 + 570 + 230}
	want{"write - ": both, "read - ": both}.check(x, rows, "dir", "pid")
	if _, _, err := run(x, mixed, "--by=color"); !errors.Is(err, tool.ErrUsage) {
		x.Errorf("--by color: %v, want a usage error", err)
	}
	return nil
}

// lport: a key column in the table becomes part of the key.
func lport(x *trial.Trial) error {
	o, err := lab.StartIO(x.World, "", "io", mixed[0], mixed[1])
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := o.Run(); return err }, "--columns=+lport")
	if err != nil {
		return err
	}
	w := want{}
	for i, l := range o.Loads {
		e, n := o.Ends[i], lab.Calls{Count: l.Count, Bytes: int64(l.Count * l.Size)}
		w.add(fmt.Sprintf("write %d %d ", e.WriterPort, e.ReaderPort), n)
		w.add(fmt.Sprintf("read %d %d ", e.ReaderPort, e.ReaderPort), n)
	}
	w.check(x, rows, "dir", "lport", "port")
	return nil
}

// service: the rows of a server and of its clients have one port, however many
// connections there are.
func service(networks ...lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		for _, n := range networks {
			t, err := lab.StartTCP(x.World, lab.Sessions{Count: 101, Send: 100, Recv: 50, Network: n})
			if err != nil {
				return err
			}
			rows, err := x.Rows(func() error { _, err := t.Run(); return err })
			if err != nil {
				return err
			}
			sides := map[string]int{}
			for _, r := range rows {
				x.Want(r, "port", t.Sessions.Port)
				sides[trial.Value(r.Get("pid"))+" "+r.Get("dir").S]++
			}
			if len(rows) != 4 || len(sides) != 4 {
				x.Errorf("%d rows of %v, want one for each process and direction", len(rows), sides)
			}
		}
		return nil
	}
}

// proto: --proto udp counts nothing else, and by UDP's own functions if it can.
func proto(x *trial.Trial) error {
	loads := append(slices.Clone(mixed),
		lab.Load{Network: lab.UDP6, Count: 21, Size: 70, Write: lab.Sendmmsg, Read: lab.Recvmmsg, Batch: 7},
		lab.Load{Network: lab.UDP4, Count: 5, Size: 11, Write: lab.Sendto, Read: lab.Recvfrom, Peek: 2, Again: 3})
	rows, _, err := run(x, loads, "--proto=udp", "--by=dir,proto")
	if err != nil {
		return err
	}
	bytes := uint64(19*30 + 21*70 + 5*11)
	want{"write udp ": {count: 45, bytes: bytes}, "read udp ": {count: 55, bytes: bytes}}.check(x, rows, "dir", "proto")
	k, err := probe.Running()
	if err != nil {
		return err
	}
	if x.Way == "" && k.Offers()["fentry"] == nil && !slices.Contains(x.Choices, trial.Choice{Point: "io", Way: "fexit"}) {
		x.Errorf("UDP alone was seen by %v, want fexit", x.Choices)
	}
	return nil
}

// parallel: threads of two processes run concurrently, and nothing is lost.
func parallel(x *trial.Trial) error {
	n := 4 * 5003
	if lab.Emulated() {
		n = 4 * 251
	}
	rally, err := lab.StartPingPong(x.World, lab.PingPong{Requests: n, Size: 100, Answer: 300, Parallel: 4})
	if err != nil {
		return err
	}
	rows, err := x.Rows(func() error { _, err := rally.Run(); return err }, "--by=pid,dir", "--where=errors == 0")
	if err != nil {
		return err
	}
	w := want{}
	for _, p := range []struct {
		pid         int
		read, write int
	}{{rally.Client.PID, 300, 100}, {rally.Server.PID, 100, 300}} {
		w.add(fmt.Sprintf("%d write ", p.pid), lab.Calls{Count: n, Bytes: int64(n * p.write)})
		w.add(fmt.Sprintf("%d read ", p.pid), lab.Calls{Count: n, Bytes: int64(n * p.read)})
	}
	// Each connection ends with a read of 0 bytes.
	for _, r := range rows {
		size := uint64(300)
		if int(r.Get("pid").N) == rally.Server.PID {
			size = 100
		}
		reads := r.Get("bytes").N / size
		if over := r.Get("count").N - reads; r.Get("dir").S == "read" && over <= 4 {
			r.Get("count").N = reads
		}
	}
	w.check(x, rows, "pid", "dir")
	return nil
}

// intervals: each output covers its own interval, and the outputs add up.
func intervals(x *trial.Trial) error {
	rows, w, err := run(x, []lab.Load{{Network: lab.TCP4, Count: 2003, Size: 100}}, "--interval=50ms")
	if err != nil {
		return err
	}
	w.check(x, rows, "dir", "proto", "port")
	return nil
}

// smallMap: calls that do not fit into the map are counted as lost, and the
// others are right.
func smallMap(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 211, Send: 100, Recv: 50, Brief: true})
	if err != nil {
		return err
	}
	var res lab.TCPResult
	rows, err := x.Rows(func() (err error) { res, err = t.Run(); return err }, "--by=lport,rport,dir", "--memory=64k")
	if err != nil {
		return err
	}
	var shown, happened uint64
	for _, r := range rows {
		shown += r.Get("count").N
	}
	for _, side := range []lab.Side{res.Client, res.Server} {
		happened += uint64(side.Tally.Sum("write", "recvfrom").Count)
	}
	refused := x.Report.Losses[tool.LossMap]
	if refused == 0 || len(rows) > 400 {
		x.Errorf("%d rows in a map of 32 KiB, %d refused", len(rows), refused)
	}
	if shown+refused != happened {
		x.Errorf("%d shown and %d refused are not the %d that happened", shown, refused, happened)
	}
	if lost := x.Report.Lost(); lost != refused {
		x.Errorf("%d lost, %d refused: want the same", lost, refused)
	}
	return nil
}
