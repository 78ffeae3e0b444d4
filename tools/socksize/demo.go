// SPDX-License-Identifier: Apache-2.0

package socksize

import (
	"slices"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		return lab.RunTCP(w,
			lab.Sessions{Count: 41, Send: 300, Recv: 12345, ClientComm: "browser", ServerComm: "web"},
			lab.Sessions{Count: 17, Send: 400, Recv: 2222, Network: lab.TCP6, ClientComm: "browser", ServerComm: "web"})
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "sizes", Run: sizes},
}

// known is sizes on either side of powers of two, and how often, over networks
// of both families and UNIX sockets.
var known = []lab.Load{
	{Network: lab.TCP4, Count: 3, Size: 1},
	{Network: lab.TCP6, Count: 5, Size: 7},
	{Network: lab.UDP4, Count: 7, Size: 8, Write: lab.Sendmsg, Read: lab.Recvmsg},
	{Network: lab.UDP6, Count: 11, Size: 511, Write: lab.Sendto, Read: lab.Recvfrom},
	{Network: lab.Unix, Count: 13, Size: 512, Write: lab.Writev, Read: lab.Readv},
	{Network: lab.UnixDgram, Count: 17, Size: 513},
	{Network: lab.TCP4, Count: 19, Size: 1000, Write: lab.Sendfile},
	{Network: lab.TCP4, Count: 23, Size: 1024, Write: lab.Splice},
	{Network: lab.TCP6, Count: 29, Size: 32768},
}

// run makes the loads while the tool is attached. Every row has the process.
func run(x *trial.Trial, loads []lab.Load, flags ...string) (*lab.IO, []*row.Row, error) {
	o, err := lab.StartIO(x.World, "", "io", loads...)
	if err != nil {
		return nil, nil, err
	}
	rows, err := x.Rows(func() error { _, err := o.Run(); return err }, flags...)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		if c := r.Get("comm"); c.Kind != row.Null {
			x.Want(r, "comm", o.Comm)
		}
	}
	x.NoneLost()
	return o, rows, nil
}

// histogram is the expected histogram of loads.
func histogram(loads []lab.Load) *kern.Hist {
	h := &kern.Hist{}
	for _, l := range loads {
		for range l.Count {
			h.Add(uint64(l.Size))
		}
	}
	return h
}

// same compares a row's histogram with the expected one: every bucket, and the
// exact count, sum, minimum and maximum.
func same(x *trial.Trial, r *row.Row, want *kern.Hist) {
	got, ok := r.Get("bytes").Ref.(*kern.Hist)
	if !ok {
		x.Errorf("no histogram in %s", trial.Dump(r))
		return
	}
	if got.Count != want.Count || got.Sum != want.Sum || got.Min != want.Min || got.Max != want.Max {
		x.Errorf("count %d sum %d min %d max %d, want %d %d %d %d, in %s", got.Count, got.Sum, got.Min, got.Max,
			want.Count, want.Sum, want.Min, want.Max, trial.Dump(r))
	}
	if got.Slots != want.Slots || !slices.Equal(got.Buckets(), want.Buckets()) {
		x.Errorf("buckets %v, want %v, in %s", got.Buckets(), want.Buckets(), trial.Dump(r))
	}
}

// directions returns the rows by direction. There must be one for each.
func directions(x *trial.Trial, rows []*row.Row, check func(*row.Row)) {
	var dirs []string
	for _, r := range rows {
		dirs = append(dirs, r.Get("dir").S)
		check(r)
	}
	if slices.Sort(dirs); !slices.Equal(dirs, []string{"read", "write"}) {
		x.Errorf("rows of %v, want one of each direction", dirs)
	}
}

func sizes(x *trial.Trial) error {
	_, rows, err := run(x, known)
	if err != nil {
		return err
	}
	want := histogram(known)
	directions(x, rows, func(r *row.Row) {
		same(x, r, want)
		x.Want(r, "errors", 0)
	})
	return nil
}
