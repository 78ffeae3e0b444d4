// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/journal"
	past "seine/internal/record"
	"seine/internal/row"
	"seine/internal/sink"
	"seine/tools"
)

// jsonLines is what recordings are compared with: the format that a user would
// use without them.
const jsonLines = "gzip'd JSON lines"

// recordings measures the cost of recording a row and reading it back, beside
// JSON lines in gzip: processor time, bytes, and memory.
func recordings(o *options) ([]figure, error) {
	n := o.sessions * 25
	var out []figure
	for _, name := range []string{"tcplife", "tcpretrans"} {
		size := figure{What: name + ": bytes of a recorded row", Unit: "bytes", Beside: jsonLines}
		write := figure{What: name + ": rows recorded", Unit: "rows/s", Beside: jsonLines, Goal: &goal{Bound: 500_000, Least: true}}
		all := figure{What: name + ": rows of a recording, all columns", Unit: "rows/s", Beside: jsonLines}
		few := figure{What: name + ": rows of a recording, two columns and a filter", Unit: "rows/s", Goal: &goal{Bound: 1_000_000, Least: true}}
		memory := figure{What: name + ": memory of recording", Unit: "MB", Goal: &goal{Bound: 25}}
		for range o.rounds {
			m, err := recorded(name, n)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			size.Own, size.Other = append(size.Own, m.bytes), append(size.Other, m.jsonBytes)
			write.Own, write.Other = append(write.Own, m.write), append(write.Other, m.jsonWrite)
			all.Own, all.Other = append(all.Own, m.all), append(all.Other, m.jsonRead)
			few.Own = append(few.Own, m.few)
			memory.Own = append(memory.Own, m.memory)
		}
		out = append(out, size, write, all, few, memory)
	}
	return out, nil
}

// recordedRows is the result of one round for a tool's rows.
type recordedRows struct {
	bytes, write, all, few, memory float64
	jsonBytes, jsonWrite, jsonRead float64
}

func recorded(name string, n int) (m recordedRows, err error) {
	dir, err := os.MkdirTemp("", "seine-bench")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	s, err := schemaOf(name)
	if err != nil {
		return m, err
	}
	// The cost of making the rows must not count.
	making, err := madeUp(s, n, time.Now(), time.Millisecond, func(*row.Row) error { return nil })
	if err != nil {
		return m, err
	}
	var used uint64
	took, err := journaled(filepath.Join(dir, "rec"), s, n, time.Now(), time.Millisecond, func() {
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		used = max(used, mem.HeapInuse+mem.StackInuse)
	})
	if err != nil {
		return m, err
	}
	m.write, m.memory = float64(n)/(took-making), float64(used)/1e6
	m.bytes = float64(sizeOf(filepath.Join(dir, "rec"))) / float64(n)
	if took, err = gzipped(filepath.Join(dir, "rows.gz"), s, n); err != nil {
		return m, err
	}
	m.jsonWrite, m.jsonBytes = float64(n)/(took-making), float64(sizeOf(filepath.Join(dir, "rows.gz")))/float64(n)
	if took, err = unzipped(filepath.Join(dir, "rows.gz"), n); err != nil {
		return m, err
	}
	m.jsonRead = float64(n) / took
	for _, use := range []map[string]bool{nil, {"lport": true, "rport": true}} {
		took, err := playedBack(filepath.Join(dir, "rec"), s, n, use)
		if err != nil {
			return m, err
		}
		if use == nil {
			m.all = float64(n) / took
		} else {
			m.few = float64(n) / took
		}
	}
	return m, nil
}

// processTime is the CPU time of this process, in seconds.
func processTime() float64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return float64(ts.Nano()) / 1e9
}

// schemaOf is that of a tool's first view.
func schemaOf(name string) (*row.Schema, error) {
	for _, t := range tools.All {
		if t.Name == name {
			s, err := t.Views(t.NewConfig())[0].Output.Schema()
			if err == nil {
				s.Tool = name
			}
			return s, err
		}
	}
	return nil, fmt.Errorf("there is no tool %s", name)
}

// madeUp sends synthetic rows like those of a busy server, at a given distance,
// until end.
func madeUp(s *row.Schema, n int, end time.Time, apart time.Duration, to func(*row.Row) error) (took float64, err error) {
	began := processTime()
	chance := rand.New(rand.NewPCG(1, 1))
	var comms, addrs, others []string
	for i := range 8 {
		comms = append(comms, fmt.Sprintf("worker-%d", i))
		others = append(others, fmt.Sprintf("word%d", i))
	}
	for i := range 2000 {
		addrs = append(addrs, string([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, byte(i >> 8), byte(i)}))
	}
	r := s.New()
	for i := range n {
		p := chance.IntN(8)
		for k := range s.Columns {
			c := &r.Cells[k]
			switch col := &s.Columns[k]; col.ID {
			case "time":
				*c = row.Cell{Kind: row.Time, N: uint64(end.Add(-time.Duration(n-i)*apart).UnixNano()) + uint64(chance.IntN(1e6))}
			case "netns":
				c.SetUint(4026531840)
			case "pid", "tid":
				c.SetUint(uint64(1000 + p))
			case "uid":
				c.SetUint(33)
			case "comm", "thread":
				c.SetText(comms[p])
			case "laddr":
				*c = row.Cell{Kind: row.Addr, S: addrs[0]}
			case "raddr":
				*c = row.Cell{Kind: row.Addr, S: addrs[chance.IntN(len(addrs))]}
			case "lport":
				c.SetUint(443)
			case "rport":
				c.SetUint(uint64(32768 + chance.IntN(28000)))
			case "sock":
				c.SetUint(uint64(1_000_000 + i))
			case "pending":
				*c = row.Cell{}
			default:
				switch col.Kind {
				case row.Text:
					c.SetText(others[k%len(others)])
				case row.Uint:
					c.SetUint(uint64(chance.ExpFloat64() * 5000))
				default:
					*c = row.Cell{}
				}
			}
		}
		if err := to(r); err != nil {
			return 0, err
		}
	}
	return processTime() - began, nil
}

// journaled records rows.
func journaled(dir string, s *row.Schema, n int, end time.Time, apart time.Duration, now func()) (took float64, err error) {
	runtime.GC()
	rec, err := past.Open(dir, past.Options{Options: journal.Options{Streams: 1}})
	if err != nil {
		return 0, err
	}
	st := rec.Stream(past.Source{Name: s.Tool, Tool: s.Tool}, []*row.Schema{s}, nil)
	i := 0
	began := processTime()
	_, err = madeUp(s, n, end, apart, func(r *row.Row) error {
		if i++; i%(n/10) == 0 {
			now()
		}
		if i%100 == 0 { // as many as come out of the ring at once
			if err := st.End(row.End{}); err != nil {
				return err
			}
		}
		return st.Row(r)
	})
	if err == nil {
		err = st.End(row.End{Last: true})
	}
	if cerr := rec.Close(); err == nil {
		err = cerr
	}
	return processTime() - began, err
}

// gzipped writes rows as JSON lines.
func gzipped(path string, s *row.Schema, n int) (took float64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	began := processTime()
	z := gzip.NewWriter(f)
	to, err := sink.New("json", z, sink.Options{Schemas: []*row.Schema{s}})
	if err != nil {
		return 0, err
	}
	if _, err = madeUp(s, n, time.Now(), time.Millisecond, to.Row); err != nil {
		return 0, err
	}
	if err := to.End(row.End{Last: true}); err != nil {
		return 0, err
	}
	if err := z.Close(); err != nil {
		return 0, err
	}
	return processTime() - began, nil
}

// unzipped reads JSON lines.
func unzipped(path string, n int) (took float64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	began := processTime()
	z, err := gzip.NewReader(f)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(z)
	rows := 0
	for lines.Scan() {
		var o map[string]any
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return 0, err
		}
		rows++
	}
	if lines.Err() != nil || rows != n {
		return 0, fmt.Errorf("%d rows of %d came back: %v", rows, n, lines.Err())
	}
	return processTime() - began, nil
}

// reader counts its rows.
type reader struct{ rows, found, lport, rport int }

func (l *reader) Row(r *row.Row) error {
	if l.rows++; r.Cells[l.lport].N == 443 && r.Cells[l.rport].N < 40000 {
		l.found++
	}
	return nil
}
func (l *reader) Mark(*past.Schema, *past.Mark) error { return nil }
func (l *reader) Idle() error                         { return nil }

// playedBack reads a recording, only these columns.
func playedBack(dir string, s *row.Schema, n int, use map[string]bool) (took float64, err error) {
	runtime.GC()
	began := processTime()
	r, err := past.Read(dir)
	if err != nil {
		return 0, err
	}
	l := &reader{lport: s.Index("lport"), rport: s.Index("rport")}
	if err := r.Play(context.Background(), &past.Query{Use: use, Into: func(*past.Schema) *row.Schema { return s }}, l); err != nil {
		return 0, err
	}
	if l.rows != n || l.found == 0 || l.found == n {
		return 0, fmt.Errorf("%d rows of %d came back, %d of them found", l.rows, n, l.found)
	}
	return processTime() - began, nil
}

func sizeOf(path string) (sum int64) {
	filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if st, err := d.Info(); err == nil {
				sum += st.Size()
			}
		}
		return nil
	})
	return sum
}

// firstRowGoal is how many milliseconds the first row of a range may take.
const firstRowGoal = 200

// gigabyte measures the wall-clock time until the first row of the last hour, in a
// recording of 1 GB and one day. It runs only if -only names it.
func gigabyte(o *options) ([]figure, error) {
	if o.only != "gigabyte" {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "seine-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := schemaOf("tcplife")
	if err != nil {
		return nil, err
	}
	const some = 100_000
	if _, err := journaled(filepath.Join(dir, "some"), s, some, time.Now(), time.Millisecond, func() {}); err != nil {
		return nil, err
	}
	n := int(1.02e9 / float64(sizeOf(filepath.Join(dir, "some"))) * some)
	rec := filepath.Join(dir, "rec")
	if _, err := journaled(rec, s, n, time.Now(), 24*time.Hour/time.Duration(n), func() {}); err != nil {
		return nil, err
	}
	size := figure{What: "size of the recording", Unit: "MB", Own: []float64{float64(sizeOf(rec)) / 1e6}, Goal: &goal{Bound: 1000, Least: true}}
	first := figure{What: "first row of --since '1h ago' in it", Unit: "ms", Goal: &goal{Bound: firstRowGoal, Best: true}}
	for range o.rounds {
		began := time.Now()
		cmd := exec.Command(o.seine, "tcplife", "--from", rec, "--since", "1h ago", "-n", "1", "-o", "json")
		cmd.Stderr = os.Stderr
		line, err := cmd.Output()
		if err != nil {
			return nil, err
		}
		first.Own = append(first.Own, float64(time.Since(began).Microseconds())/1000)
		var got struct{ Time time.Time }
		if err := json.Unmarshal(line, &got); err != nil {
			return nil, err
		}
		if age := began.Sub(got.Time); age > time.Hour || age < 55*time.Minute {
			return nil, fmt.Errorf("the first row of the last hour is %v old", age)
		}
	}
	fmt.Printf("=== ATTR  gigabyte recording %.0f MB, %d rows\n", size.Own[0], n)
	fmt.Printf("=== ATTR  gigabyte first-row %.0f ms, the least of %.0f\n", slices.Min(first.Own), first.Own)
	if _, met := first.goal(); met != "yes" || size.Own[0] < 1000 {
		return nil, fmt.Errorf("the goal is missed: %v ms in %v MB", first.Own, size.Own)
	}
	return []figure{size, first}, nil
}
