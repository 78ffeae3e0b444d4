// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	quoteAddr    = "127.0.0.1:9090"
	quotePort    = 9090
	quoteService = "quote :9090"
)

// quoteLoad has a prime number of turns.
var quoteLoad = load{Addr: quoteAddr, Turns: 499, Conns: 4, Least: time.Millisecond, Most: 90 * time.Millisecond}

// bucket is the growth factor of native buckets. A turn can count in a bucket next to its own: see docs/METRICS.md.
var bucket = math.Pow(2, 1.0/8)

// percentile compares the p99 of one load: by the client's clock, by flows, by the native histograms of
// Prometheus (scraped and pushed), and by the classic ones of VictoriaMetrics. All agree within their resolution.
func (f *fleet) percentile(ctx context.Context) error {
	m := f.hosts[hasLoad]
	if _, err := m.world.StartReady("", "quote", bodyServe, quoteAddr); err != nil {
		return err
	}
	client, err := m.world.Start("", "broker", bodyQuote, quoteLoad)
	if err != nil {
		return err
	}
	flows, err := startFlows(ctx, f.seine(), fmt.Sprintf("--netns=%d", m.world.Netns("")))
	if err != nil {
		return err
	}
	var turns []int64
	err = client.Call("go", &turns)
	row, flowsErr := flows.end()
	if err := errors.Join(err, flowsErr); err != nil {
		return err
	}
	watched, told := quantile(turns, 0.99)/1e9, row.P99/1e6
	f.check(row.Turn.Count == quoteLoad.Turns && near(told, watched), "flows -o json: %d turns of %d, p99 %.1f ms; the client's stopwatch: p99 %.1f ms", row.Turn.Count, quoteLoad.Turns, 1e3*told, 1e3*watched)

	want := float64(quoteLoad.Turns)
	for _, way := range []struct{ name, instance string }{{"scraped", m.instance()}, {"pushed by OTLP", m.name}} {
		of := fmt.Sprintf(`seine_turn_seconds{instance=%q,service=%q,side="in"}`, way.instance, quoteService)
		if err := f.prom.is(ctx, notLonger, want, `histogram_count(%s)`, of); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		p99, err := f.prom.one(ctx, `histogram_quantile(0.99, %s)`, of)
		if err != nil {
			return err
		}
		f.check(near(p99, told) && near(p99, watched), "Prometheus, native histogram, %s: %.0f turns, p99 %.1f ms", way.name, want, 1e3*p99)
		f.figure("p99-ms-"+strings.Fields(way.name)[0], 1e3*p99, "%.1f", 1e3*p99)
	}
	f.figure("p99-ms-flows", 1e3*told, "%.1f", 1e3*told)
	f.figure("p99-ms-client", 1e3*watched, "%.1f", 1e3*watched)
	of := fmt.Sprintf(`{instance=%q,service=%q,side="in"}`, m.instance(), quoteService)
	if err := f.vm.is(ctx, notLonger, want, `seine_turn_seconds_count%s`, of); err != nil {
		return err
	}
	p99, err := f.vm.one(ctx, `histogram_quantile(0.99, seine_turn_seconds_bucket%s)`, of)
	if err != nil {
		return err
	}
	// A classic bucket is four times as wide as the one before. This one is 65.536 to 262.144 ms.
	f.check(p99 > 0.065536 && p99 <= 0.262144 && watched > 0.065536, "VictoriaMetrics, classic histogram: %.0f turns, p99 in the bucket from 65.5 to 262.1 ms", want)
	return nil
}

// near reports whether two times agree within the resolution of native buckets.
func near(a, b float64) bool { return a < b*bucket*bucket && b < a*bucket*bucket }

// A flowsRun is a run of flows.
type flowsRun struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	said io.ReadCloser
}

// A flowsRow is the columns of a row of flows that are used.
type flowsRow struct {
	Lport int
	Side  string
	P99   float64             `json:"p99_us"`
	Turn  struct{ Count int } `json:"turn_us"`
}

// startFlows starts flows and returns when it is attached.
func startFlows(ctx context.Context, seine string, args ...string) (*flowsRun, error) {
	x := &flowsRun{cmd: exec.CommandContext(ctx, seine, append([]string{"flows", "--lport", fmt.Sprint(quotePort), "-i", "1h", "-o", "json"}, args...)...)}
	x.cmd.Stdout = &x.out
	var err error
	if x.said, err = x.cmd.StderrPipe(); err != nil {
		return nil, err
	}
	if err := x.cmd.Start(); err != nil {
		return nil, err
	}
	var all strings.Builder
	for s := bufio.NewScanner(x.said); s.Scan(); {
		if s.Text() == "seine: ready" {
			return x, nil
		}
		all.WriteString(s.Text() + "\n")
	}
	return nil, errors.Join(x.cmd.Wait(), errors.New(all.String()))
}

// end interrupts flows and returns its row of the service.
func (x *flowsRun) end() (*flowsRow, error) {
	if err := x.cmd.Process.Signal(unix.SIGINT); err != nil {
		return nil, err
	}
	said, _ := io.ReadAll(x.said)
	if err := x.cmd.Wait(); err != nil {
		return nil, fmt.Errorf("flows: %w: %s", err, said)
	}
	for d := json.NewDecoder(&x.out); d.More(); {
		var r flowsRow
		if err := d.Decode(&r); err != nil {
			return nil, err
		}
		if r.Lport == quotePort && r.Side == "in" {
			return &r, nil
		}
	}
	return nil, fmt.Errorf("flows has no row of %s: %s", quoteService, said)
}
