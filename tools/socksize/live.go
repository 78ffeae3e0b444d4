// SPDX-License-Identifier: Apache-2.0

package socksize

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyHeld, held)
	return []trial.Case{
		{Name: "totals", Run: totals_},
		{Name: "zero", Run: zero},
		{Name: "failures", Run: failures},
		{Name: "refused", Run: refused},
		{Name: "uring", Run: uring},
		{Name: "by", Run: by},
		{Name: "stacks", Run: stacks},
		{Name: "intervals", Run: intervals},
	}
}

func totals_(x *trial.Trial) error {
	_, rows, err := run(x, known, "--totals")
	if err != nil {
		return err
	}
	want := histogram(known)
	directions(x, rows, func(r *row.Row) {
		x.Want(r, "count", want.Count)
		x.Want(r, "total_bytes", want.Sum)
		x.Want(r, "average_bytes", want.Sum/want.Count)
	})
	return nil
}

// zero: empty datagrams are the bucket [0].
func zero(x *trial.Trial) error {
	loads := []lab.Load{
		{Network: lab.UDP4, Count: 7, Write: lab.Sendmsg, Read: lab.Recvmsg},
		{Network: lab.UDP6, Count: 3, Size: 1, Write: lab.Sendmsg, Read: lab.Recvmsg},
	}
	_, rows, err := run(x, loads)
	if err != nil {
		return err
	}
	directions(x, rows, func(r *row.Row) {
		same(x, r, histogram(loads))
		if h, ok := r.Get("bytes").Ref.(*kern.Hist); ok && !slices.Equal(h.Buckets(), []kern.Bucket{{Lo: 0, Hi: 1, Count: 7}, {Lo: 1, Hi: 2, Count: 3}}) {
			x.Errorf("buckets %v, want 7 of [0] and 3 of [1]", h.Buckets())
		}
	})
	return nil
}

// failures: EPIPE is counted separately, EAGAIN and peeks are not counted.
func failures(x *trial.Trial) error {
	var loads []lab.Load
	for _, n := range []lab.Network{lab.TCP4, lab.TCP6, lab.Unix} {
		loads = append(loads, lab.Load{Network: n, Count: 5, Size: 100, Peek: 2, Again: 3, Broken: 7})
	}
	_, rows, err := run(x, loads)
	if err != nil {
		return err
	}
	directions(x, rows, func(r *row.Row) {
		same(x, r, histogram(loads))
		if r.Get("dir").S == "write" {
			x.Want(r, "errors", 21)
		} else {
			x.Want(r, "errors", 0)
		}
	})
	return nil
}

func uring(x *trial.Trial) error {
	if err := lab.UringSupported(); err != nil {
		return trial.Skip("%v", err)
	}
	loads := []lab.Load{
		{Network: lab.TCP4, Count: 13, Size: 777, Write: lab.UringSend, Read: lab.UringRecv},
		{Network: lab.UDP6, Count: 17, Size: 99, Write: lab.UringWrite, Read: lab.UringRead},
	}
	_, rows, err := run(x, loads)
	if err != nil {
		return err
	}
	directions(x, rows, func(r *row.Row) { same(x, r, histogram(loads)) })
	return nil
}

// by: a histogram for each port, the rest as before.
func by(x *trial.Trial) error {
	loads := []lab.Load{{Network: lab.TCP4, Count: 13, Size: 100}, {Network: lab.TCP6, Count: 17, Size: 50}}
	o, rows, err := run(x, loads, "--by=pid,port")
	if err != nil {
		return err
	}
	want := map[uint64]*kern.Hist{}
	for i := range loads {
		h := histogram(loads[i : i+1])
		h.Merge(h) // the port of the service is the same for both
		want[uint64(o.Ends[i].ReaderPort)] = h
	}
	for _, r := range rows {
		port := r.Get("port").N
		x.Want(r, "pid", o.PID)
		x.Want(r, "comm", "-")
		x.Want(r, "dir", "-")
		if want[port] == nil {
			x.Errorf("port %d is none of the workload's, or was seen twice", port)
			continue
		}
		same(x, r, want[port])
		delete(want, port)
	}
	if len(want) > 0 {
		x.Errorf("%d ports were not seen", len(want))
	}
	return nil
}

const bodyHeld = "socksize-held"

// held writes and reads 13 times, and runs until it is told to end.
func held(c *lab.Child) error {
	if err := c.Await("go"); err != nil {
		return err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	buf := make([]byte, 100)
	for range 13 {
		if err := errors.Join(heldWrite(fds[0], buf), heldRead(fds[1], buf)); err != nil {
			return err
		}
	}
	if err := c.Report(0); err != nil {
		return err
	}
	return c.Await("end")
}

//go:noinline
func heldWrite(fd int, b []byte) error {
	_, err := unix.Write(fd, b)
	return err
}

//go:noinline
func heldRead(fd int, b []byte) error {
	_, err := unix.Read(fd, b)
	return err
}

// stacks: reads and writes are split by the functions that made them.
func stacks(x *trial.Trial) error {
	p, err := x.World.Start("", "io", bodyHeld, nil)
	if err != nil {
		return err
	}
	var done int
	rows, err := x.Rows(func() error { return p.Call("go", &done) }, "--stacks")
	if err != nil {
		return err
	}
	for dir, function := range map[string]string{"write": "heldWrite", "read": "heldRead"} {
		var count uint64
		for _, r := range rows {
			st, ok := r.Get("ustack").Ref.(*kern.Stack)
			if !ok || r.Get("dir").S != dir {
				continue
			}
			if slices.ContainsFunc(st.Frames, func(f kern.Frame) bool { return strings.HasSuffix(f.Sym, "."+function) }) {
				count += r.Get("bytes").Ref.(*kern.Hist).Count
			}
		}
		if count != 13 {
			x.Errorf("%d sizes by %s in %d rows, want 13", count, function, len(rows))
		}
	}
	return errors.Join(p.Tell("end"), p.Wait())
}

// intervals: each output covers its own interval, and the outputs add up.
func intervals(x *trial.Trial) error {
	loads := []lab.Load{{Network: lab.TCP4, Count: 2003, Size: 100}}
	_, rows, err := run(x, loads, "--interval=50ms")
	if err != nil {
		return err
	}
	sum := map[string]*kern.Hist{"read": {}, "write": {}}
	for _, r := range rows {
		sum[r.Get("dir").S].Merge(r.Get("bytes").Ref.(*kern.Hist))
	}
	for dir, h := range sum {
		if want := histogram(loads); h.Count != want.Count || h.Sum != want.Sum || h.Slots != want.Slots {
			x.Errorf("%s: outputs add up to %d of %d bytes, want %d of %d", dir, h.Count, h.Sum, want.Count, want.Sum)
		}
	}
	return nil
}

// refused: reads of the error queue have no size.
func refused(x *trial.Trial) error {
	f, err := lab.StartRefused(x.World, "io", 3, 101)
	if err != nil {
		return err
	}
	rows, err := x.Rows(f.Run)
	if err != nil {
		return err
	}
	if len(rows) != 1 {
		x.Errorf("%d rows, want 1, of what was sent", len(rows))
	}
	for _, r := range rows {
		x.Want(r, "dir", "write")
		same(x, r, histogram([]lab.Load{{Count: 3, Size: 101}}))
	}
	return nil
}
