// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"seine/internal/kern"
)

// tseries(value, interval, count, what) keeps one value for each of the last
// intervals. A map's value has a slot for each: the number of the interval plus
// one, the value, and what it takes to add another one to it.
const (
	seriesSlot = 24
	seriesMost = 1000 // a CPU has 32 kB for one value
)

var seriesKinds = []string{"avg", "max", "min", "sum"}

// series checks a call of tseries().
func (c *checker) series(e *Call, t *Type) {
	step, ok := c.constant(e.Args[1])
	if !ok || step < 1 {
		c.failAt(e.Args[1], "the interval of tseries() must be a constant time, as 100ms")
	}
	n, ok := c.constant(e.Args[2])
	if !ok || n < 1 || n > seriesMost {
		c.failAt(e.Args[2], "tseries() keeps from 1 to %d intervals", seriesMost)
	}
	t.step, t.Depth = step, int(n)
	if len(e.Args) == 4 {
		if t.Format = c.text(e.Args[3]); !slices.Contains(seriesKinds, t.Format) {
			c.failAt(e.Args[3], "the values of an interval become one by %s", strings.Join(seriesKinds, ", "))
		}
	}
}

// epoch leaves the time and the number of its interval at places.
func (e *emitter) epoch(t *Type) (now, epoch loc) {
	now, epoch = e.slot(), e.slot()
	e.add(asm.FnKtimeGetBootNs.Call())
	e.store(now, asm.R0)
	e.add(asm.LoadImm(asm.R1, t.step, asm.DWord), asm.Div.Reg(asm.R0, asm.R1))
	e.store(epoch, asm.R0)
	return now, epoch
}

// series adds a value to the slot of its interval, of those at R0.
func (e *emitter) series(t *Type, val, now, epoch loc, done string) {
	fresh := e.label("fresh")
	e.load(asm.R2, epoch)
	e.add(asm.Mov.Reg(asm.R3, asm.R2), asm.Mod.Imm(asm.R3, int32(t.Depth)), asm.JGT.Imm(asm.R3, int32(t.Depth-1), done),
		asm.Mul.Imm(asm.R3, seriesSlot), asm.Add.Reg(asm.R0, asm.R3), asm.Add.Imm(asm.R2, 1))
	e.load(asm.R1, val)
	e.add(asm.LoadMem(asm.R3, asm.R0, 0, asm.DWord), asm.JNE.Reg(asm.R3, asm.R2, fresh), asm.LoadMem(asm.R3, asm.R0, 8, asm.DWord))
	set := e.label("set")
	switch t.Format {
	case "":
		e.add(asm.Ja.Label(fresh))
	case "sum":
		e.add(asm.Add.Reg(asm.R3, asm.R1), asm.StoreMem(asm.R0, 8, asm.R3, asm.DWord))
	case "avg":
		e.add(asm.Add.Reg(asm.R3, asm.R1), asm.StoreMem(asm.R0, 8, asm.R3, asm.DWord),
			asm.LoadMem(asm.R3, asm.R0, 16, asm.DWord), asm.Add.Imm(asm.R3, 1), asm.StoreMem(asm.R0, 16, asm.R3, asm.DWord))
	default:
		jump := map[string]asm.JumpOp{"min": asm.JLT, "max": asm.JGT}[t.Format]
		if t.Signed {
			jump = map[string]asm.JumpOp{"min": asm.JSLT, "max": asm.JSGT}[t.Format]
		}
		e.add(jump.Reg(asm.R1, asm.R3, set), asm.Ja.Label(done))
		e.here(set)
		e.add(asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord))
	}
	e.add(asm.Ja.Label(done))
	e.here(fresh)
	e.add(asm.StoreMem(asm.R0, 0, asm.R2, asm.DWord), asm.StoreMem(asm.R0, 8, asm.R1, asm.DWord))
	if t.Format == "" { // the last of all CPUs counts
		e.load(asm.R1, now)
		e.add(asm.StoreMem(asm.R0, 16, asm.R1, asm.DWord))
	} else {
		e.add(storeImm(asm.R0, 16, 1))
	}
}

// mergeSeries adds up the slots of all CPUs: of two intervals, the later one has it.
func mergeSeries(t *Type, sum []uint64, values [][]byte) {
	for _, v := range values {
		for i := 0; i < len(sum); i += 3 {
			epoch, val, more := word(v[8*i:]), word(v[8*i+8:]), word(v[8*i+16:])
			s := sum[i : i+3]
			less := val < s[1]
			if t.Signed {
				less = int64(val) < int64(s[1])
			}
			switch {
			case epoch < s[0]:
			case epoch > s[0] || t.Format == "" && more > s[2]:
				s[0], s[1], s[2] = epoch, val, more
			case t.Format == "sum" || t.Format == "avg":
				s[1] += val
				s[2] += more
			case t.Format == "min" && less, t.Format == "max" && !less:
				s[1] = val
			}
		}
	}
}

// A seriesPoint is one interval; ok is whether it has a value.
type seriesPoint struct {
	at    time.Time
	value int64
	ok    bool
}

// seriesPoints are the intervals from the first that has a value to the last.
func seriesPoints(t *Type, nums []uint64) []seriesPoint {
	first, last := uint64(0), uint64(0)
	for i := 0; i < len(nums); i += 3 {
		last = max(last, nums[i])
	}
	for i := 0; i < len(nums); i += 3 {
		if n := nums[i]; n != 0 && n+uint64(t.Depth) > last && (first == 0 || n < first) {
			first = n
		}
	}
	if last == 0 {
		return nil
	}
	var list []seriesPoint
	for n := first; n <= last; n++ {
		s := nums[(n-1)%uint64(t.Depth)*3:]
		p := seriesPoint{at: bootWall((n - 1) * uint64(t.step)), ok: s[0] == n}
		if p.ok {
			p.value = int64(s[1])
			if t.Format == "avg" {
				p.value = average(t, s[1:3])
			}
		}
		list = append(list, p)
	}
	return list
}

// text is a value as the type has it.
func (p seriesPoint) text(t *Type) string {
	return numberText(&Type{Kind: Number, Size: 8, Signed: t.Signed}, uint64(p.value))
}

// printSeries draws a line for each interval, as bpftrace does.
func printSeries(w io.Writer, t *Type, nums []uint64, div int64) {
	const width = 53
	list := seriesPoints(t, nums)
	if len(list) == 0 {
		fmt.Fprintln(w)
		return
	}
	var low, high int64
	for i := range list {
		p := &list[i]
		p.value /= max(div, 1)
		if i == 0 { // it has a value
			low, high = p.value, p.value
		} else if p.ok {
			low, high = min(low, p.value), max(high, p.value)
		}
	}
	if low == high {
		low, high = low-1, high+1
	}
	clock, head := "15:04:05", "hh:mm:ss"
	for _, u := range []struct {
		below       time.Duration
		clock, unit string
	}{{time.Second, ".000", ".ms"}, {time.Millisecond, ".000000", ".us"}, {time.Microsecond, ".000000000", ".ns"}} {
		if time.Duration(t.step)%u.below != 0 {
			clock, head = "15:04:05"+u.clock, "hh:mm:ss"+u.unit
		}
	}
	at := func(v int64) int {
		return int(float64(width-1) * (float64(v) - float64(low)) / (float64(high) - float64(low)))
	}
	ends := fmt.Sprintf("%*s %-21d%32d\n", len(clock), "", low, high)
	fmt.Fprintf(w, "%s%-*s |%s|\n", ends, len(clock), head, strings.Repeat("_", width-2))
	for _, p := range list {
		line := []byte("|" + strings.Repeat(" ", width-2) + "|")
		if low < 0 && high > 0 {
			line[min(width-1, int(float64(width)*float64(-low)/(float64(high)-float64(low))))] = '.'
		}
		value := "-"
		if p.ok {
			line[at(p.value)] = '*'
			value = p.text(t)
		}
		fmt.Fprintf(w, "%s %s %s\n", p.at.Format(clock), line, value)
	}
	fmt.Fprintf(w, "%*s v%sv\n%s\n", len(clock), "", strings.Repeat("_", width-2), ends)
}

// seriesJSON is a list of intervals with values.
func seriesJSON(t *Type, nums []uint64, name string) string {
	parts := []string{}
	for _, p := range seriesPoints(t, nums) {
		if p.ok {
			at, _ := json.Marshal(p.at.UTC().Format(time.RFC3339Nano))
			parts = append(parts, `{`+strconv.Quote(name)+`:`+string(at)+`,"value":`+p.text(t)+`}`)
		}
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// bootNow is the clock that goes on while the machine sleeps: that of nsecs.
func bootNow() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}

// bootWall is a moment of nsecs by the clock on the wall.
func bootWall(ns uint64) time.Time {
	asleep := bootNow() - int64(kern.MonoNow())
	return kern.Wall(kern.Mono(int64(ns) - asleep))
}
