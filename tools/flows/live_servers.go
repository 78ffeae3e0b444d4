// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// realServer is a case with a server from Debian. Guests have none; make test
// installs it on the machine.
func realServer(start func(*lab.World, string) (*lab.Server, error), run func(*trial.Trial, *lab.Server) error) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		s, err := start(x.World, "server")
		if errors.Is(err, lab.ErrNotSupported) && lab.Emulated() {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		defer s.Stop()
		return run(x, s)
	}
}

// slot is the possible error of a histogram's quantile: half of a slot.
const slot = 16

// quantile is the least duration that at least the share q of them does not
// exceed, as in histograms.
func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[max(int(math.Ceil(q*float64(len(d)))), 1)-1]
}

// nginx: the server delays each of many requests for a different time. The app time
// of each connection is at least nginx's $request_time and at most the time of the
// client's stopwatch.
func nginx(flags ...string) func(*trial.Trial) error {
	return realServer(lab.StartNginx, func(x *trial.Trial, s *lab.Server) error {
		const requests = 40
		var ports [requests]int
		var took [requests]time.Duration
		rows, _, err := trial.RowsOf(x, 2*requests, func() (int, error) {
			return 0, each(requests, func(i int) error {
				c, err := s.Dial(x.World, "client")
				if err != nil {
					return err
				}
				defer c.Close()
				ports[i] = c.LocalAddr().(*net.TCPAddr).Port
				from := time.Now()
				if _, err := io.WriteString(c, "GET /a HTTP/1.0\r\n\r\n"); err != nil {
					return err
				}
				answer, err := io.ReadAll(c)
				took[i] = time.Since(from)
				if err == nil && !strings.HasSuffix(string(answer), "hello\n") {
					err = fmt.Errorf("nginx says %q", answer)
				}
				return err
			})
		}, append(flags, "--closed")...)
		if err != nil {
			return err
		}
		lines, err := s.Lines()
		if err != nil {
			return err
		}
		n := 0
		for _, line := range lines {
			var port int
			var seconds float64
			if _, err := fmt.Sscan(line, &port, &seconds); err != nil {
				return fmt.Errorf("nginx: %q: %w", line, err)
			}
			r, i := findBoth(rows, int(s.Addr.Port()), port), slices.Index(ports[:], port)
			if r == nil || i < 0 {
				x.Fail(&trial.Missing{Text: "no row of " + line})
				continue
			}
			n++
			addsUp(x, r)
			app, unread := time.Duration(r.Get("app_ms").N), time.Duration(r.Get("unread_ms").N)
			// Its clock is the one of the last wake-up, in whole milliseconds. It has waited for
			// the request since then, and may have been slow to read it.
			logged := time.Duration(seconds*float64(time.Second)) - 2*ms - jiffy()
			x.Whole(func() {
				x.Want(r, "turns", 1)
				if app+unread < logged || app > took[i]+2*ms+jiffy() {
					x.Errorf("app is %v and unread is %v; nginx says %v and the client %v, in %s", app, unread, logged, took[i], trial.Dump(r))
				}
			})
		}
		x.Fail(trial.RowCount(n, requests))
		x.NoneLost()
		return nil
	})
}

// http2: a client of HTTP/2 with four streams, of which nginx answers one every 20 ms. The path
// takes longer than that, so requests and answers are under way at once, and there are no turns.
// With one stream there is a turn for each request. The settings that both ends send at first may
// be one more, or cross.
func http2(x *trial.Trial, s *lab.Server) error {
	const requests = 60
	path, err := exec.LookPath("h2load")
	if err != nil {
		return err
	}
	p, err := x.World.OpenPath("client", "server", lab.Path{Delay: 25 * ms})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, streams := range []int{4, 1} {
		cmd := exec.Command(path, "-c", "1", "-t", "1", "-n", fmt.Sprint(requests), "-m", fmt.Sprint(streams), fmt.Sprintf("http://%s:%d/a", p.To, lab.NginxHTTP2))
		rows, said, err := trial.RowsOf(x, 2, func() (string, error) {
			var out []byte
			err := x.World.Do("client", func() (err error) { out, err = cmd.CombinedOutput(); return err })
			return string(out), errors.Join(err, x.World.AwaitClosed("server", lab.NginxHTTP2), x.World.AwaitClosed("client", lab.NginxHTTP2))
		}, "--closed", fmt.Sprintf("--port=%d", lab.NginxHTTP2))
		if err != nil {
			return fmt.Errorf("%w: %s", err, said)
		}
		if !strings.Contains(said, fmt.Sprintf("%d succeeded", requests)) {
			return fmt.Errorf("h2load says %s", said)
		}
		for _, id := range []string{"lport", "rport"} {
			r := find(rows, id, lab.NginxHTTP2)
			if r == nil {
				x.Fail(&trial.Missing{Text: "no row of the " + id + " of nginx"})
				continue
			}
			addsUp(x, r)
			x.Whole(func() {
				switch n, overlaps := r.Get("turns"), r.Get("overlaps").N; {
				case streams == 1:
					if n.Kind == row.Null || n.N < requests || n.N > requests+1 || overlaps > 1 {
						x.Errorf("%s turns and %d overlaps of one stream, want %d turns, in %s", trial.Value(n), overlaps, requests, trial.Dump(r))
					}
				case n.Kind != row.Null || overlaps == 0:
					x.Errorf("%s turns of %d streams, want none, in %s", trial.Value(n), streams, trial.Dump(r))
				}
			})
		}
		x.Fail(trial.RowCount(len(rows), 2))
		x.NoneLost()
	}
	return nil
}

// each runs f n times concurrently.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// findBoth is the row with these ports.
func findBoth(rows []*row.Row, lport, rport int) *row.Row {
	i := slices.IndexFunc(rows, func(r *row.Row) bool {
		return r.Get("lport").N == uint64(lport) && r.Get("rport").N == uint64(rport)
	})
	if i < 0 {
		return nil
	}
	return rows[i]
}

// postgres: statements that take long and short. App and the quantiles of turns are what
// PostgreSQL's log says.
func postgres(flags ...string) func(*trial.Trial) error {
	return realServer(lab.StartPostgres, func(x *trial.Trial, s *lab.Server) error {
		const conns, queries = 4, 25
		var all [conns]net.Conn
		for i := range all {
			c, err := pgConnect(x, s)
			if err != nil {
				return err
			}
			defer c.Close()
			all[i] = c
		}
		var took [conns][queries]time.Duration
		rows, _, err := trial.RowsOf(x, 0, func() (int, error) {
			err := each(conns, func(i int) error {
				for n := range queries {
					sleep := 0.002
					if n >= 15 {
						sleep = 0.05
					} else if n >= 10 {
						sleep = 0.02
					}
					from := time.Now()
					if err := pgQuery(all[i], fmt.Sprintf("select pg_sleep(%v)", sleep)); err != nil {
						return err
					}
					took[i][n] = time.Since(from)
				}
				return nil
			})
			return 0, errors.Join(err, each(conns, func(i int) error { return all[i].Close() }), s.AwaitClosed(x.World, "server"))
		}, append(flags, "--interval=10m")...)
		if err != nil {
			return err
		}
		lines, err := s.Lines()
		if err != nil {
			return err
		}
		var logged []time.Duration
		var sum time.Duration
		for _, line := range lines {
			var t float64
			if _, err := fmt.Sscanf(line, "LOG: duration: %f ms", &t); err == nil {
				logged = append(logged, time.Duration(t*float64(ms)))
				sum += logged[len(logged)-1]
			}
		}
		if len(logged) != conns*queries {
			return fmt.Errorf("PostgreSQL logged %d of %d statements: %q", len(logged), conns*queries, lines)
		}
		r := find(rows, "lport", int(s.Addr.Port()))
		if r == nil {
			x.Fail(&trial.Missing{N: 1, Text: fmt.Sprintf("no row of the server in %v", dumps(rows))})
			return nil
		}
		x.Whole(func() {
			x.Want(r, "comm", "postgres")
			x.Want(r, "conns", conns)
			x.Want(r, "turns", conns*queries)
			x.Want(r, "verdict", "app")
			// It begins after the statement was read, and ends before the answer is sent. The
			// client's stopwatch runs from before the statement is sent until the answer was read.
			var outer []time.Duration
			var most time.Duration
			for i := range took {
				outer = append(outer, took[i][:]...)
			}
			for _, t := range outer {
				most += t
			}
			if app := time.Duration(r.Get("app_ms").N); app < sum-sum/1000 || app > most {
				x.Errorf("app is %v, want %v to %v, in %s", app, sum, most, trial.Dump(r))
			}
			quantiles(x, r, logged, outer)
		})
		x.NoneLost()
		return nil
	})
}

// quantiles compares quantiles of turns with those of an inner and an outer
// stopwatch.
func quantiles(x *trial.Trial, r *row.Row, inner, outer []time.Duration) {
	h, ok := r.Get("turn_us").Ref.(*kern.Hist)
	if !ok {
		x.Errorf("no turns in %s", trial.Dump(r))
		return
	}
	for _, q := range []float64{0.5, 0.99} {
		got, least, most := time.Duration(h.Quantile(q)*float64(time.Microsecond)), quantile(inner, q), quantile(outer, q)
		if got < least-least/slot-jiffy() || got > most+most/slot+jiffy() {
			x.Errorf("turn at %v is %v; the server says %v and the client %v, in %s", q, got, least, most, trial.Dump(r))
		}
	}
}

func dumps(rows []*row.Row) (out []string) {
	for _, r := range rows {
		out = append(out, trial.Dump(r))
	}
	return out
}

// pgStarting is PostgreSQL's error code while it starts.
const pgStarting = "57P03"

// pgConnect begins a session, as soon as the server has started.
func pgConnect(x *trial.Trial, s *lab.Server) (net.Conn, error) {
	for {
		c, err := s.Dial(x.World, "client")
		if err != nil {
			return nil, err
		}
		if err = pgStart(c); err == nil {
			return c, nil
		}
		c.Close()
		if !strings.Contains(err.Error(), pgStarting) || x.Ctx.Err() != nil {
			return nil, err
		}
		time.Sleep(20 * ms)
	}
}

func pgStart(c net.Conn) error {
	b := append(binary.BigEndian.AppendUint32(nil, 3<<16), "user\x00postgres\x00database\x00postgres\x00\x00"...)
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b)+4)), b...)); err != nil {
		return err
	}
	return pgReady(c)
}

func pgQuery(c net.Conn, text string) error {
	b := binary.BigEndian.AppendUint32([]byte("Q"), uint32(len(text)+5))
	if _, err := c.Write(append(append(b, text...), 0)); err != nil {
		return err
	}
	return pgReady(c)
}

// pgReady reads messages until the server is ready for a query.
func pgReady(c net.Conn) error {
	for {
		var head [5]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c, body); err != nil {
			return err
		}
		switch head[0] {
		case 'Z':
			return nil
		case 'E':
			return fmt.Errorf("PostgreSQL: %q", body)
		}
	}
}

// redis: our turns are what redis-benchmark measures; each batch is one turn.
func redis(x *trial.Trial, s *lab.Server) error {
	path, err := exec.LookPath("redis-benchmark")
	if err != nil {
		return trial.Skip("%v", err)
	}
	for _, c := range []struct{ requests, pipeline, sleep int }{{requests: 4000, pipeline: 1}, {requests: 4000, pipeline: 16}, {200, 1, 5}} {
		args := []string{"-h", s.Addr.Addr().String(), "-c", "1", "--csv", "-n", fmt.Sprint(c.requests), "-P", fmt.Sprint(c.pipeline)}
		if c.sleep > 0 {
			args = append(args, "debug", "sleep", fmt.Sprintf("0.%03d", c.sleep))
		} else {
			args = append(args, "-t", "get")
		}
		cmd := exec.Command(path, args...)
		rows, said, err := trial.RowsOf(x, 0, func() ([]byte, error) {
			var out []byte
			err := x.World.Do("client", func() (err error) { out, err = cmd.Output(); return err })
			return out, errors.Join(err, s.AwaitClosed(x.World, "server"), s.AwaitClosed(x.World, "client"))
		}, "--exact", "--interval=10m")
		if err != nil {
			return err
		}
		p50, most, err := benchmarked(said)
		if err != nil {
			return err
		}
		turns := c.requests/c.pipeline + 1 // it asks for the configuration before
		for _, id := range []string{"lport", "rport"} {
			r := find(rows, id, int(s.Addr.Port()))
			if r == nil {
				x.Fail(&trial.Missing{Text: "no row of the " + id + " of redis"})
				continue
			}
			x.Whole(func() {
				x.Want(r, "turns", turns)
				took := uint64(c.requests * c.sleep * int(ms))
				if app := r.Get("app_ms").N; id == "lport" && app < took {
					x.Errorf("app is %v, and redis slept for %v, in %s", time.Duration(app), time.Duration(took), trial.Dump(r))
				}
				if h, ok := r.Get("turn_us").Ref.(*kern.Hist); ok && id == "rport" && c.sleep > 0 {
					within(x, r, "p50", h.Quantile(0.5), float64(c.sleep*1000), p50)
					within(x, r, "p99", h.Quantile(0.99), float64(c.sleep*1000), most) // with few turns, two neighbours may be far apart there
				}
			})
		}
		x.Fail(trial.RowCount(len(rows), 2))
		x.NoneLost()
	}
	return nil
}

// within compares a quantile with two bounds: the time that redis slept for each
// request, and the time that redis-benchmark measured from before the request until it
// had read the answer. A quantile of a histogram may be off by half of a slot.
func within(x *trial.Trial, r *row.Row, what string, us, slept, said float64) {
	if us < slept-slept/slot || us > said+said/slot+100 {
		x.Errorf("%s is %v us; redis slept for %v, and redis-benchmark says %v, in %s", what, us, slept, said, trial.Dump(r))
	}
}

// benchmarked are quantiles that redis-benchmark printed, in microseconds.
func benchmarked(out []byte) (p50, most float64, err error) {
	lines, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(lines) != 2 {
		return 0, 0, fmt.Errorf("redis-benchmark says %q: %v", out, err)
	}
	at := func(name string) float64 {
		i := slices.Index(lines[0], name)
		if i < 0 {
			err = fmt.Errorf("redis-benchmark prints no %s: %q", name, out)
			return 0
		}
		n, perr := strconv.ParseFloat(lines[1][i], 64)
		err = errors.Join(err, perr)
		return n * 1000
	}
	p50, most = at("p50_latency_ms"), at("max_latency_ms")
	return p50, most, err
}
