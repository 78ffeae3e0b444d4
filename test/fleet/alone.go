// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// Times of the measurement of one agent.
const (
	settles  = 10 * time.Second
	measures = 30 * time.Second
	scrapes  = 21
)

// protobuf is the format that a Prometheus with native histograms requests.
const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"

// alone measures the cost of one agent on a host with traffic, before the other agents start.
func (f *fleet) alone(ctx context.Context) error {
	f.say("one agent alone, for %v", settles+measures)
	// A receiver of our own measures the size of a push.
	l, err := net.Listen("tcp", engineIP+":0")
	if err != nil {
		return err
	}
	var pushes, pushed atomic.Int64
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		pushes.Add(1)
		pushed.Add(n)
	})}
	go s.Serve(l)
	defer s.Close()

	m, err := newMember(f, 1)
	if err != nil {
		return err
	}
	defer func() {
		m.close()
		f.hosts = nil
	}()
	m.dir = f.path("alone")
	if err := m.startAgent(f, "http://"+l.Addr().String()); err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	if err := m.visit(); err != nil {
		return err
	}
	if err := pause(ctx, settles); err != nil {
		return err
	}
	before, err := m.metrics(ctx)
	if err != nil {
		return err
	}
	from := time.Now()
	if err := pause(ctx, measures); err != nil {
		return err
	}
	after, err := m.metrics(ctx)
	if err != nil {
		return err
	}
	span := time.Since(from).Seconds()
	grown := func(name string) float64 { return (sum(after, name) - sum(before, name)) / span }
	if err := m.leave(); err != nil {
		return err
	}

	// The agent updates these two every five seconds.
	cpu, bpf := 100*grown("seine_agent_cpu_seconds_total"), 100*grown("seine_agent_bpf_seconds_total")
	f.figure("agent-cpu-percent", cpu, "%.2f", cpu)
	f.figure("agent-bpf-percent", bpf, "%.2f", bpf)
	memory := sum(after, "seine_agent_resident_memory_bytes") / 1e6
	f.figure("agent-memory-MB", memory, "%.0f", memory)
	n := sum(after, "seine_agent_series")
	f.figure("agent-series", n, "%.0f", n)
	recorded := grown("seine_recorder_size_bytes")
	f.figure("recording-bytes-s", recorded, "%.0f", recorded)
	if pushes.Load() == 0 {
		return fmt.Errorf("the agent has pushed nothing")
	}
	size := float64(pushed.Load()) / float64(pushes.Load())
	f.figure("push-bytes", size, "%.0f", size)

	address := "http://" + m.address + "/metrics"
	for _, way := range []struct {
		name string
		head []string
	}{
		{"scrape-text-bytes", nil},
		{"scrape-text-gzip-bytes", []string{"Accept-Encoding", "gzip"}},
		{"scrape-protobuf-gzip-bytes", []string{"Accept-Encoding", "gzip", "Accept", protobuf}},
	} {
		body, _, err := get(ctx, address, way.head...)
		if err != nil {
			return err
		}
		f.figure(way.name, float64(len(body)), "%d", len(body))
	}
	var took []int64
	for range scrapes {
		began := time.Now()
		if _, _, err := get(ctx, address); err != nil {
			return err
		}
		took = append(took, int64(time.Since(began)))
	}
	slices.Sort(took)
	ms := float64(took[scrapes/2]) / 1e6
	f.figure("scrape-ms", ms, "%.1f", ms)
	f.check(n > 50 && cpu > 0, "one agent: %.0f series, a scrape of %.1f ms, %.2f %% of a processor and %.2f %% for BPF programs, %.0f MB", n, ms, cpu, bpf, memory)
	return nil
}
