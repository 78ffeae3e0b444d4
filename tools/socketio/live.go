// SPDX-License-Identifier: Apache-2.0

package socketio

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		if err := lab.RunTCP(w,
			lab.Sessions{Count: 7, Send: 300, Recv: 123456, ClientComm: "browser", ServerComm: "web", Port: 443},
			lab.Sessions{Count: 3, Send: 54321, Recv: 10, Network: lab.TCP6, ClientComm: "backup", ServerComm: "store", Port: 873}); err != nil {
			return err
		}
		o, err := lab.StartIO(w, "", "logger",
			lab.Load{Network: lab.UDP4, Write: lab.Sendmsg, Read: lab.Recvmsg, Count: 101, Size: 80},
			lab.Load{Network: lab.UnixDgram, Count: 211, Size: 120, Peek: 1, Again: 3})
		if err != nil {
			return err
		}
		_, err = o.Run()
		return err
	},
}

// Live is the live cases.
var Live = []trial.Case{
	{Name: "calls", Run: calls(lab.TCP4, lab.TCP6, lab.UDP4, lab.UDP6, lab.Unix, lab.UnixDgram, lab.UnixPacket)},
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
}

// want is what should have been counted under a key.
type want map[string]count

type count struct{ count, bytes, errors uint64 }

func (w want) add(key string, c lab.Calls) {
	n := w[key]
	n.count += uint64(c.Count)
	n.bytes += uint64(c.Bytes)
	n.errors += uint64(c.Errors)
	if n != (count{}) {
		w[key] = n
	}
}

// check compares w with rows, each under the text of the columns ids.
func (w want) check(x *trial.Trial, rows []*row.Row, ids ...string) {
	got := want{}
	for _, r := range rows {
		key := ""
		for _, id := range ids {
			key += trial.Value(r.Get(id)) + " "
		}
		n := got[key]
		n.count += r.Get("count").N
		n.bytes += r.Get("bytes").N
		n.errors += r.Get("errors").N
		got[key] = n
	}
	for key, n := range w {
		text := fmt.Sprintf("%s: counted %+v, want %+v", key, got[key], n)
		switch g := got[key]; {
		case g == n:
		case g.bytes <= n.bytes && g.errors <= n.errors && g.count < n.count:
			x.Fail(&trial.Missing{N: int(n.count - g.count), Text: text})
		default:
			x.Errorf("%s", text)
		}
	}
	for key, n := range got {
		if _, ok := w[key]; !ok {
			x.Errorf("%s: counted %+v of what did not happen", key, n)
		}
	}
	x.NoneLost()
}

// protoOf is the column proto of a network.
func protoOf(n lab.Network) string {
	switch n {
	case lab.TCP4, lab.TCP6:
		return "tcp"
	case lab.MPTCP4, lab.MPTCP6:
		return "mptcp"
	case lab.UDP4, lab.UDP6:
		return "udp"
	}
	return "unix"
}

// peers is the port of the service as the writer's socket and the reader's know it:
// the reader has accepted the connection. Sockets that are not connected have none.
func peers(l lab.Load, e lab.Ends) (writer, reader int) {
	writer, reader = e.ReaderPort, e.ReaderPort
	if protoOf(l.Network) == "udp" {
		if reader = 0; l.Write == lab.Sendto {
			writer = 0
		}
	}
	return writer, reader
}

// shown is a port as rows have it.
func shown(port int) string {
	if port == 0 {
		return "-"
	}
	return strconv.Itoa(port)
}

// run does the loads under the tool and says what should have been counted by
// direction, protocol and port.
func run(x *trial.Trial, loads []lab.Load, flags ...string) ([]*row.Row, want, error) {
	o, err := lab.StartIO(x.World, "", "io", loads...)
	if err != nil {
		return nil, nil, err
	}
	var res []lab.LoadResult
	rows, err := x.Rows(func() (err error) { res, err = o.Run(); return err }, flags...)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		for id, v := range map[string]string{"pid": fmt.Sprint(o.PID), "comm": o.Comm} {
			if c := r.Get(id); c.Kind != row.Null {
				x.Want(r, id, v)
			}
		}
	}
	w := want{}
	for i, l := range loads {
		sent, got := l.Moved(res[i])
		got.Count += res[i].Tally["peek"].Count
		writer, reader := peers(l, o.Ends[i])
		w.add(fmt.Sprintf("write %s %s ", protoOf(l.Network), shown(writer)), sent)
		w.add(fmt.Sprintf("read %s %s ", protoOf(l.Network), shown(reader)), got)
	}
	return rows, w, nil
}

// pairs are the calls to try: each sends or receives in one load.
var pairs = []struct{ write, read lab.Call }{
	{lab.Write, lab.Read}, {lab.Writev, lab.Readv}, {lab.Send, lab.Recv}, {lab.Sendto, lab.Recvfrom},
	{lab.Sendmsg, lab.Recvmsg}, {lab.Sendmmsg, lab.Recvmmsg}, {lab.Sendfile, lab.Read}, {lab.Splice, lab.Read},
	{lab.Write, lab.Splice},
}

// calls: what each system call moves over each network, exactly.
func calls(networks ...lab.Network) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		var loads []lab.Load
		for _, n := range networks {
			for i, p := range pairs {
				udp := protoOf(n) == "udp"
				if p.write == lab.Sendto && !udp || p.read == lab.Splice && !n.Stream() {
					continue
				}
				l := lab.Load{Network: n, Write: p.write, Read: p.read, Count: 21, Size: 333 + i, Batch: 7}
				if x.Way == "fexit" || x.Way == "kprobe" {
					l.Batch = 1 // they see the first message of a batch
				}
				loads = append(loads, l)
			}
		}
		rows, w, err := run(x, loads)
		if err != nil {
			return err
		}
		w.check(x, rows, "dir", "proto", "port")
		return nil
	}
}

// oneProcess: with no filter of sockets, a splice from a pipe is not a read of one.
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

// uring: requests of a ring make no system call each.
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

// failures: errors are counted as such, EAGAIN not at all, peeks without bytes.
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
	want{"write udp ": {count: 3, bytes: 303}, "read udp ": {count: 3}}.check(x, rows, "dir", "proto")
	return err
}

var mixed = []lab.Load{
	{Network: lab.TCP4, Count: 13, Size: 100},
	{Network: lab.TCP6, Count: 17, Size: 50},
	{Network: lab.UDP4, Count: 19, Size: 30},
	{Network: lab.Unix, Count: 23, Size: 10},
}

// by: fewer key fields are sums.
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

// lport: a key column that is shown is counted by.
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

// service: however many connections a server has accepted, its rows are of one port,
// and so are its clients'.
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

// parallel: threads of two processes at once, and nothing is lost.
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
	// Each connection ends with a read that finds the end: of no bytes.
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

// intervals: outputs cover their own time, and add up.
func intervals(x *trial.Trial) error {
	rows, w, err := run(x, []lab.Load{{Network: lab.TCP4, Count: 2003, Size: 100}}, "--interval=50ms")
	if err != nil {
		return err
	}
	w.check(x, rows, "dir", "proto", "port")
	return nil
}

// smallMap: what does not fit is counted as lost, and the rest is right.
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
