// SPDX-License-Identifier: Apache-2.0

package socketio

import (
	"fmt"
	"strconv"

	"seine/internal/lab"
	"seine/internal/row"
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

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "calls", Run: calls(lab.TCP4, lab.TCP6, lab.UDP4, lab.UDP6, lab.Unix, lab.UnixDgram, lab.UnixPacket)},
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

// peers is the port of the service, as the sockets of writer and reader know it.
// The reader has accepted the connection. Unconnected sockets have no such port.
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

// run makes the loads while the tool is attached, and returns the expected
// counts by direction, protocol and port.
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

// calls: the exact bytes of each system call over each network.
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
