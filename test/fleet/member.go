// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"seine/internal/lab"
)

// A member is a host of the fleet.
type member struct {
	name    string // host name
	address string // address of its agent
	dir     string // folder of its recording
	push    time.Duration
	world   *lab.World
	agent   *process
	shop    *lab.Proc
	visitor *lab.Proc
	did     visited // set when the visitor has ended
}

// shopAddr is the address of the shop on each host. The service has the same name on all hosts.
const (
	shopAddr = "127.0.0.1:8080"
	service  = "shop :8080"
)

// newMember makes the world of a host and starts its shop.
func newMember(f *fleet, n int) (*member, error) {
	m := &member{name: fmt.Sprintf("host%02d", n), address: fmt.Sprintf("127.0.1.%d:7346", n), push: usualPush}
	m.dir = f.path("recordings", m.name)
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if m.world, err = lab.NewWorld(lab.Options{}); err != nil {
		return nil, err
	}
	f.hosts = append(f.hosts, m) // from now on the fleet closes it
	m.shop, err = m.world.StartReady("", "shop", bodyServe, shopAddr)
	return m, err
}

// close ends all that belongs to the host.
func (m *member) close() {
	m.agent.stop()
	m.world.Close()
}

// instance is the agent's name in Prometheus.
func (m *member) instance() string { return m.name + ":7346" }

// startAgent starts the agent of the host. Its limit of processor time is off: all agents share one
// kernel, so the programs of each run for the traffic of all hosts.
func (m *member) startAgent(f *fleet, otlp string) (err error) {
	m.agent, err = start(f.dir, m.name, m.name, f.seine(), "agent", "--listen", m.address, fmt.Sprintf("--netns=%d", m.world.Netns("")),
		"--dir", m.dir, "--budget", "100M", "--otlp", otlp, "--otlp-interval", m.push.String(), "--max-cpu", "1000%")
	return err
}

// ready waits until the tools of the agent are attached.
func (m *member) ready(ctx context.Context) error {
	return await(ctx, 2*time.Minute, func() error {
		if err := m.agent.running(); err != nil {
			return err
		}
		_, _, err := get(ctx, "http://"+m.address+"/readyz")
		return err
	})
}

// visit starts the traffic.
func (m *member) visit() (err error) {
	m.visitor, err = m.world.Start("", "visitor", bodyVisit, shopAddr)
	return err
}

// leave ends the traffic.
func (m *member) leave() error { return m.visitor.Call("stop", &m.did) }

// metrics scrapes the agent in the text format.
func (m *member) metrics(ctx context.Context) (string, error) {
	b, _, err := get(ctx, "http://"+m.address+"/metrics")
	return string(b), err
}

// sum adds up the series of a metric in a text.
func sum(text, name string) (all float64) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err == nil {
			all += v
		}
	}
	return all
}
