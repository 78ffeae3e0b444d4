// SPDX-License-Identifier: Apache-2.0

package tcppktlat

import (
	"errors"
	"fmt"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyPieces, pieces)
	return []trial.Case{
		{Name: "histogram", Run: trial.Undisturbed(histogram)},
		{Name: "min", Run: trial.Undisturbed(least)},
		{Name: "pieces", Run: trial.Undisturbed(inPieces)},
		{Name: "many", Run: trial.Undisturbed(many)},
	}
}

// histogram: each packet counts by itself, and the longest is the longest read's.
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
	x.Want(rows[0], "port", r.port) // that of the service: the end that reads was accepted
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

// least: --min leaves out what was read sooner. The last read waits for longer than all others.
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

// small is the size of a packet of which many fit into a receive buffer.
const small = 700

// pieces: a packet is read in two pieces, and a crowd of packets by one read.
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

// inPieces: a packet counts when its last byte is read.
func inPieces(x *trial.Trial) error { return crowd(x, 1, 1) }

// many: the ring of a socket has room for 64 packets; the others belong to the last of them.
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
