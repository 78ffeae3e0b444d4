// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"reflect"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/sink"
)

// record is as large as tcplife's.
type record struct {
	kern.Head
	kern.Tuple
	TX       uint64     `col:"tx_bytes,head=TX_KB,scale=1024,width=6"`
	RX       uint64     `col:"rx_bytes,head=RX_KB,scale=1024,width=6"`
	Duration kern.Nanos `col:"duration_ms,head=MS,div=1000000,prec=2,width=9"`
	Seen     kern.Nanos `col:"seen_ms,div=1000000,prec=2,width=9"`
	Retrans  uint32     `col:"retrans,width=7"`
	SRTT_us  uint32     `col:"srtt_us,width=8"`
	Cong     kern.Comm  `col:"cong,width=6"`
	State    kern.State `col:"state_close,width=10"`
	_        [7]byte    `col:"-"`
}

// sinks measures rows per second of one core, from the bytes of a record to
// those of the output, and allocations.
func sinks(o *options) ([]figure, error) {
	var out []figure
	for _, format := range []string{"json", "csv", "table"} {
		out = append(out, figure{What: "rows through " + format, Unit: "rows/s", Goal: &goal{Bound: 500_000, Least: true}})
		out = append(out, figure{What: "allocations per row, " + format, Unit: "", Goal: &goal{Bound: 0}})
	}
	out[4].Goal = nil // a table is for eyes
	for range o.rounds {
		for i, format := range []string{"json", "csv", "table"} {
			speed, allocs, err := through(format)
			if err != nil {
				return nil, err
			}
			out[2*i].Own = append(out[2*i].Own, speed)
			out[2*i+1].Own = append(out[2*i+1].Own, allocs)
		}
	}
	return out, nil
}

func through(format string) (speed, allocs float64, err error) {
	s, err := row.SchemaOf(reflect.TypeFor[record]())
	if err != nil {
		return 0, 0, err
	}
	s.Tool, s.View = "bench", "bench"
	if err := s.SetShow("pid comm laddr lport raddr rport tx_bytes rx_bytes duration_ms"); err != nil {
		return 0, 0, err
	}
	to, err := sink.New(format, io.Discard, sink.Options{Schemas: []*row.Schema{s}})
	if err != nil {
		return 0, 0, err
	}
	r := s.New()
	e := record{TX: 1234567, RX: 89, Duration: 123456789, Seen: 123456789, SRTT_us: 321, State: 8}
	e.TS, e.PID, e.TID = 1, 4242, 4242
	copy(e.Cong[:], "cubic")
	some := func(n int) error {
		for i := range n {
			e.TS += 1000
			s.Fill(r, unsafe.Pointer(&e))
			if err := to.Row(r); err != nil {
				return err
			}
			if i%100 == 99 {
				if err := to.End(row.End{}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	const n = 500_000
	if err := some(n / 100); err != nil { // buffers grow to their size
		return 0, 0, err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := threadTime()
	err = some(n)
	took := threadTime() - start
	runtime.ReadMemStats(&after)
	// The runtime itself allocates now and then.
	allocs = float64((after.Mallocs-before.Mallocs)*1000/n) / 1000
	return n / took, allocs, err
}

// threadTime is the CPU time of this thread, in seconds.
func threadTime() float64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return float64(ts.Nano()) / 1e9
}
