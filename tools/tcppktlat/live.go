// SPDX-License-Identifier: Apache-2.0

package tcppktlat

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live returns the live cases that are not in the self-test. Only tests call it.
func Live() []trial.Case {
	lab.Register(bodyPieces, pieces)
	lab.Register(bodyParts, partwise)
	return []trial.Case{
		{Name: "histogram", Run: trial.Undisturbed(histogram)},
		{Name: "min", Run: trial.Undisturbed(least)},
		{Name: "pieces", Run: trial.Undisturbed(inPieces)},
		{Name: "many", Run: trial.Undisturbed(many)},
		{Name: "parts", Run: trial.Undisturbed(parts)},
		{Name: "parts-histogram", Run: trial.Undisturbed(func(x *trial.Trial) error { return partHistograms(x) })},
		{Name: "parts-interval", Run: trial.Undisturbed(func(x *trial.Trial) error { return partHistograms(x, "--interval=20ms") })},
	}
}

// histogram: each packet counts once, and the maximum is that of the longest wait.
func histogram(x *trial.Trial) error {
	r, rows, err := watched(x, body, lab.TCP4, "--by=pid,comm,port,lport")
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 1); err != nil {
		return err
	}
	x.Want(rows[0], "pid", r.PID)
	x.Want(rows[0], "comm", "reader")
	x.Want(rows[0], "port", r.port) // the service's port: the reading end was accepted
	x.Want(rows[0], "lport", r.port)
	h := rows[0].Get("latency_us").Ref.(*kern.Hist)
	var packets int
	var longest read
	for _, one := range r.reads {
		packets += one.Packets
		if one.Most > longest.Most {
			longest = one
		}
	}
	x.Fail(trial.Fewer(int(h.Count), packets, "%d packets, want %d", h.Count, packets))
	if ns := int64(h.Max) * 1000; ns < longest.Least-1000 || ns > longest.Most {
		x.Errorf("the longest is %v, want %v to %v by the stopwatch", time.Duration(ns), time.Duration(longest.Least), time.Duration(longest.Most))
	}
	x.NoneLost()
	return nil
}

// least: --min leaves out packets that were read sooner. The last read waits longest.
func least(x *trial.Trial) error {
	const min = 10 * time.Millisecond
	r, rows, err := watched(x, body, lab.TCP4, "--events", "--min="+min.String())
	if err != nil {
		return err
	}
	var sum, certain, possible int
	for _, one := range r.reads {
		if time.Duration(one.Most) >= min {
			possible += one.Packets
		}
		if time.Duration(one.Least) >= min {
			certain++ // its first packet
		}
	}
	for _, r := range rows {
		sum += int(r.Get("packets").N)
		if ns := time.Duration(r.Get("latency_us").N); ns < min {
			x.Errorf("a row of %v", ns)
		}
	}
	if sum < certain || sum > possible {
		x.Fail(trial.Fewer(sum, certain, "%d packets, want %d to %d", sum, certain, possible))
	}
	return nil
}

const bodyPieces = "tcppktlat-pieces"

// small is the size of a small packet. Many of them fit into a receive buffer.
const small = 700

// pieces reads one packet in two pieces, or many packets with one read.
func pieces(c *lab.Child) error {
	var crowd int
	if err := c.Arg(&crowd); err != nil {
		return err
	}
	w, r, err := connected(c, lab.TCP4)
	if err != nil {
		return err
	}
	defer lab.Close(w)
	defer lab.Close(r)
	one, err := readLate(w, r, crowd, small, func() error {
		if crowd > 1 {
			return nil
		}
		err := lab.RecvAll(r, make([]byte, small/2))
		time.Sleep(10 * time.Millisecond)
		return err
	})
	return errors.Join(err, c.Report([]read{one}))
}

// inPieces: a packet counts when the reader has read its last byte.
func inPieces(x *trial.Trial) error { return crowd(x, 1, 1) }

// many: the ring of a socket has room for 64 packets. Further packets count with the last of them.
func many(x *trial.Trial) error { return crowd(x, 80, 64) }

func crowd(x *trial.Trial, packets, want int) error {
	r, rows, err := watched(x, bodyPieces, packets, "--events")
	if err != nil {
		return err
	}
	if len(r.reads) != 1 {
		return fmt.Errorf("%d reads, want 1", len(r.reads))
	}
	r.reads[0].Packets = want
	x.NoneLost()
	return compare(x, rows, r)
}

const bodyParts = "tcppktlat-parts"

// A parted read has the case's own times of one packet.
type parted struct {
	Sent  int64 // before the packet was sent
	There int64 // the packet was in the receive queue; 0: the reader may have read it earlier
	Asked int64 // before the call that read it
	Free  int64 // until then a thread of higher priority had the reader's processor without a break; 0: none had it
	Read  int64 // after the call
}

// pauses are the times that the reader does other work before it reads; 0: it waits for the packet.
var pauses = []time.Duration{0, 5 * time.Millisecond, 0, 20 * time.Millisecond}

// hogged is the time that the reader then waits for its processor. The Go runtime stops a goroutine that runs for 10 ms.
const hogged = 5 * time.Millisecond

// few is a number of rounds that keeps a softirq busy, but not so long that the kernel passes the next packet to
// ksoftirqd.
const few = 4

// partwise is a reader that reads late, waits for its packet, or waits for its processor.
func partwise(c *lab.Child) error {
	w, r, err := connected(c, lab.TCP4)
	if err != nil {
		return err
	}
	defer lab.Close(w)
	defer lab.Close(r)
	runtime.LockOSThread() // never unlocked: the thread keeps its affinity
	if err := unix.SchedSetaffinity(0, &first); err != nil {
		return err
	}
	var all []parted
	for _, pause := range pauses {
		one, err := partRead(w, r, pause, false)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	// If ksoftirqd has to receive the packet, it does not run meanwhile either: try again.
	for len(all) < 100 && !all[len(all)-1].held() {
		one, err := partRead(w, r, 0, true)
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	return c.Report(all)
}

// first is the first processor. It is a literal, because an initializer that calls Set would be linked into the
// product.
var first = unix.CPUSet{1}

// held reports whether the reader waited for its processor for that long.
func (p *parted) held() bool { return p.There > 0 && p.Free >= p.There+int64(hogged) }

// switches returns how often the calling thread has left its processor.
func switches() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		panic(err)
	}
	return u.Nvcsw + u.Nivcsw
}

// partRead sends one packet and reads it in the calling thread.
func partRead(w, r int, pause time.Duration, hog bool) (one parted, err error) {
	sent := make(chan error, 1)
	send := func() error {
		one.Sent = int64(kern.MonoNow())
		return lab.SendAll(w, make([]byte, size))
	}
	if pause > 0 {
		sent <- nil
		if err := errors.Join(send(), queued(r, size)); err != nil {
			return one, err
		}
		one.There = int64(kern.MonoNow())
		time.Sleep(pause)
	} else {
		reader := unix.Gettid()
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			for !lab.InCall(reader, unix.SYS_RECVFROM) {
				time.Sleep(time.Millisecond)
			}
			if !hog {
				sent <- send()
				return
			}
			above := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
			err := errors.Join(unix.SchedSetaffinity(0, &first), unix.SchedSetAttr(0, above, 0), send())
			before := switches()
			if n, err := unix.IoctlGetInt(r, unix.TIOCINQ); err == nil && n == size {
				one.There = int64(kern.MonoNow())
				for !one.held() {
					now := int64(kern.MonoNow())
					if switches() != before {
						break // the reader may have run
					}
					one.Free = now
				}
				if one.Free == 0 {
					one.There = 0
				}
			}
			// A thread that the Go runtime starts at the end of this one would have its priority.
			sent <- errors.Join(err, unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0))
		}()
	}
	one.Asked = int64(kern.MonoNow())
	n, _, err := unix.Recvfrom(r, make([]byte, size), unix.MSG_WAITALL)
	one.Read = int64(kern.MonoNow())
	if err = errors.Join(err, <-sent); err == nil && n != size {
		err = fmt.Errorf("%d bytes were read, want %d", n, size)
	}
	return one, err
}

// partedReader runs a reader. It returns the process, its reads, and the tool's rows.
func partedReader(x *trial.Trial, flags ...string) (p *lab.Proc, all []parted, took lab.BusyTime, rows []*row.Row, err error) {
	p, err = x.World.Start("", "reader", bodyParts, nil)
	if err != nil {
		return p, all, took, rows, err
	}
	var port int
	if err := p.Expect(&port); err != nil {
		return p, all, took, rows, err
	}
	busy, err := lab.StartBusy(unix.IPPROTO_TCP, port, few)
	if err != nil {
		return p, all, took, rows, err
	}
	defer busy.Close()
	rows, err = x.Rows(func() error {
		err := p.Call("go", &all)
		took, _ = busy.Took()
		return errors.Join(err, p.Wait())
	}, flags...)
	return p, all, took, rows, err
}

// parts: each part of a packet's time agrees with the case's own times. Before TCP, a BPF program keeps the processor
// busy and records for how long.
func parts(x *trial.Trial) error {
	p, all, took, rows, err := partedReader(x, "--events", "--parts")
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), len(all)); err != nil {
		return err
	}
	if took.Count < uint64(len(all)) {
		return fmt.Errorf("of %d packets %d kept the processor busy", len(all), took.Count)
	}
	for i, one := range all {
		r := rows[i]
		x.Want(r, "pid", p.PID)
		for _, id := range []string{"softirq_us", "socket_us", "app_us"} {
			if r.Get(id).Kind == row.Null {
				x.Errorf("read %d has no %s: %s", i, id, trial.Dump(r))
			}
		}
		softirq, socket, app := int64(r.Get("softirq_us").N), int64(r.Get("socket_us").N), int64(r.Get("app_us").N)
		if all := int64(r.Get("latency_us").N); all != socket+app {
			x.Errorf("read %d: %d ns after TCP, and %d and %d are its parts", i, all, socket, app)
		}
		check := func(part string, got, least, most int64) {
			if got < least || got > most {
				x.Errorf("read %d: %s is %v, want %v to %v by the stopwatch: %+v", i, part, time.Duration(got), time.Duration(least), time.Duration(most), one)
			}
		}
		check("all", softirq+socket+app, 0, one.Read-one.Sent)
		switch {
		case one.Free > 0:
			check("softirq", softirq, int64(took.Min), one.There-one.Sent)
			check("socket", socket, one.Free-one.There, one.Read-one.Sent)
			check("app", app, 0, 0) // the reader was in its call
		case one.There > 0:
			check("softirq", softirq, int64(took.Min), one.There-one.Sent)
			check("socket", socket, 0, one.Read-one.Asked)
			check("app", app, one.Asked-one.There, one.Read-one.Sent)
		default:
			check("softirq", softirq, int64(took.Min), one.Read-one.Sent)
			check("app", app, 0, 0)
		}
	}
	if !all[len(all)-1].held() {
		x.Errorf("in %d reads no packet was there while the reader had no processor", len(all))
	}
	x.NoneLost()
	return nil
}

// partHistograms: each packet counts in each part, in all outputs together.
func partHistograms(x *trial.Trial, flags ...string) error {
	_, all, took, rows, err := partedReader(x, append(flags, "--parts")...)
	if err != nil {
		return err
	}
	if len(flags) == 0 {
		if err := trial.RowCount(len(rows), 3); err != nil {
			return err
		}
	}
	n := int64(len(all))
	least, most := map[string]int64{"softirq": int64(took.Min) * n}, map[string]int64{}
	for _, one := range all {
		most["softirq"] += one.Read - one.Sent
		most["socket"] += one.Read - one.Sent
		switch {
		case one.Free > 0:
			least["socket"] += one.Free - one.There
		case one.There > 0:
			least["application"] += one.Asked - one.There
			most["application"] += one.Read - one.Sent
		}
	}
	count, sum := map[string]int{}, map[string]int64{}
	for _, r := range rows {
		x.Want(r, "comm", "reader")
		h := r.Get("latency_us").Ref.(*kern.Hist)
		count[r.Get("part").S] += int(h.Count)
		sum[r.Get("part").S] += int64(h.Sum) * 1000
	}
	for _, part := range []string{"softirq", "socket", "application"} {
		x.Fail(trial.Fewer(count[part], len(all), "%s: %d packets, want %d", part, count[part], len(all)))
		// The histogram counts whole microseconds.
		if ns := sum[part]; ns+1000*n < least[part] || ns > most[part] {
			x.Errorf("%s is %v, want %v to %v by the stopwatch", part, time.Duration(ns), time.Duration(least[part]), time.Duration(most[part]))
		}
		delete(count, part)
	}
	if len(count) > 0 {
		x.Errorf("there are parts that nobody asked for: %v", count)
	}
	x.NoneLost()
	return nil
}
