// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"seine/internal/lab"
)

const (
	peerName = "libbpf-tools"
	mega     = 1e6
)

// own is a tool of the binary that writes JSON to /dev/null.
func (o *options) own(command ...string) *child {
	return &child{args: append(append([]string{o.seine}, command...), "-o", "json"), ready: "seine: ready"}
}

// peer is the tcplife of libbpf-tools, nil if none works.
func (o *options) peer() *child {
	path, err := exec.LookPath("/usr/sbin/tcplife-libbpf") // Debian's name for it since version 13
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/tcplife")
	}
	if err != nil {
		return nil
	}
	c := &child{args: []string{path}, ready: "PID", tty: true}
	if err := c.start(); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s is left out: %v\n", peerName, err)
		return nil
	}
	if err := c.stop(); err != nil {
		return nil
	}
	return c
}

// beside runs f while s is attached.
func beside(s subject, f func() error) error {
	if err := s.start(); err != nil {
		return err
	}
	return errors.Join(f(), s.stop())
}

// starts measures the time from exec to attached, and the memory then.
func starts(o *options) ([]figure, error) {
	own, peer := o.own("tcplife"), o.peer()
	up := figure{What: "tcplife: start-up", Unit: "ms", Goal: &goal{Bound: 30, Best: true}}
	if lab.Emulated() {
		up.Goal = nil
	}
	least := figure{What: "tcplife: the same start-up", Unit: "ms", Beside: "version; object, types, bpf(2) on all CPUs"}
	for range 2*o.rounds + 1 {
		took, err := o.leastStart("tcplife")
		if err != nil {
			return nil, err
		}
		least.Other = append(least.Other, took.Seconds()*1000)
		for s, to := range map[*child]*[]float64{own: &up.Own, peer: &up.Other} {
			if s == nil {
				continue
			}
			if err := beside(s, func() error { return nil }); err != nil {
				return nil, err
			}
			*to = append(*to, s.took.Seconds()*1000)
		}
	}
	size := figure{What: "binary", Unit: "MB", Goal: &goal{Bound: 40}}
	st, err := os.Stat(o.seine)
	if err != nil {
		return nil, err
	}
	size.Own = []float64{float64(st.Size()) / mega}
	if peer != nil {
		up.Beside, size.Beside = peerName, peerName
		if st, err = os.Stat(peer.args[0]); err != nil {
			return nil, err
		}
		size.Other = []float64{float64(st.Size()) / mega}
	}
	least.Own = up.Own
	return []figure{up, least, size}, nil
}

// sessions measures tcplife over short sessions on loopback.
func sessions(o *options) ([]figure, error) {
	hook := &empty{tracepoint: "inet_sock_set_state"}
	own, peer := o.own("tcplife"), o.peer()
	perRun := figure{What: "tcplife: BPF per run", Unit: "ns", Beside: "empty program"}
	runs := figure{What: "tcplife: BPF runs per session", Unit: ""}
	perSession := figure{What: "tcplife: BPF per session", Unit: "ns", Goal: &goal{Bound: 0.33, Ratio: true}}
	memory := figure{What: "tcplife: peak resident memory", Unit: "MB", Goal: &goal{Bound: 24}}
	resident := figure{What: "tcplife: resident memory while it runs", Unit: "MB"}
	work := figure{What: "tcplife: own CPU per session", Unit: "ns"}
	floor := figure{What: "tcplife: its least per session", Unit: "ns"}
	subjects := []subject{hook, own}
	if peer != nil {
		subjects = append(subjects, peer)
		for _, f := range []*figure{&runs, &perSession, &floor, &memory, &resident, &work} {
			f.Beside = peerName
		}
	}
	n := float64(o.sessions)
	least := figure{What: "tcplife: the same per session", Unit: "ns", Beside: leastName}
	for range o.rounds {
		if err := o.onHooks(leasts["tcplife"], o.someSessions, func(sum cost) { least.Other = append(least.Other, sum.ns/n) }); err != nil {
			return nil, err
		}
		for _, s := range subjects {
			err := beside(s, func() error {
				c, _ := s.(*child)
				if c == nil {
					m, err := during(s, func() error { return o.someSessions() })
					sum := total(m)
					perRun.Other = append(perRun.Other, sum.ns/sum.runs)
					return err
				}
				cpu, err := c.cpu()
				if err != nil {
					return err
				}
				m, err := during(s, func() error { return o.someSessions() })
				if err != nil {
					return err
				}
				after, err := c.cpu()
				if err != nil {
					return err
				}
				peak, err1 := c.peak()
				now, err2 := c.memory("VmRSS:")
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				sum := total(m)
				if o.each {
					explain(c.args, m, n)
				}
				for f, v := range map[*figure]float64{
					&perSession: sum.ns / n, &runs: sum.runs / n, &work: (after - cpu) / n, &memory: peak / mega, &resident: now / mega,
				} {
					if c == own {
						f.Own = append(f.Own, v)
					} else {
						f.Other = append(f.Other, v)
					}
				}
				if c == own {
					perRun.Own = append(perRun.Own, sum.ns/sum.runs)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	least.Own = perSession.Own
	floor.Own, floor.Other = least.Other, perSession.Other
	return []figure{memory, resident, perRun, runs, perSession, least, floor, work}, nil
}

// explain writes the cost of each program, the most expensive first.
func explain(args []string, m map[string]cost, n float64) {
	fmt.Fprintln(os.Stderr, strings.Join(args, " "))
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Compare(m[b].ns, m[a].ns) })
	for _, name := range names {
		c := m[name]
		fmt.Fprintf(os.Stderr, "  %-16s %6.2f runs of %5.0f ns: %6.0f ns\n", name, c.runs/n, c.ns/max(1, c.runs), c.ns/n)
	}
}

func (o *options) someSessions() error {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	return o.sessionsIn(w)
}

func (o *options) sessionsIn(w *lab.World) error {
	t, err := lab.StartTCP(w, lab.Sessions{Count: o.sessions, Send: 1000, Recv: 777, Parallel: 2, Brief: true})
	if err != nil {
		return err
	}
	_, err = t.Run()
	return err
}

// aRally makes requests over connections that stay open, and returns the CPU
// time of both sides in nanoseconds.
func (o *options) aRally() (cpu float64, err error) {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		return 0, err
	}
	defer w.Close()
	r, err := lab.StartPingPong(w, lab.PingPong{Requests: o.requests, Parallel: 2})
	if err != nil {
		return 0, err
	}
	res, err := r.Run()
	return float64(res.Client.CPU() + res.Server.CPU()), err
}

// requests measures tcplife over connections that stay open.
func requests(o *options) ([]figure, error) {
	repair := figure{What: "tcplife: owner repair, of the load's CPU", Unit: "%", Beside: "empty on the same", Goal: &goal{Bound: 2}}
	perRun := figure{What: "tcplife: owner repair per run", Unit: "ns", Beside: "empty on the same"}
	perRequest := figure{What: "tcplife: BPF per request", Unit: "ns"}
	load := figure{What: "load with tcplife: CPU per request", Unit: "ns", Beside: "without"}
	own, peer := o.own("tcplife"), o.peer()
	if peer != nil {
		perRequest.Beside = peerName
	}
	hooks := []*empty{{tracepoint: "sock_send_length"}, {tracepoint: "sock_recv_length"}}
	least := figure{What: "tcplife: the same, of the load's CPU", Unit: "%", Beside: leastName}
	n := float64(o.requests)
	for range o.rounds {
		var cpu float64
		run := func() (err error) { cpu, err = o.aRally(); return err }
		if err := run(); err != nil {
			return nil, err
		}
		load.Other = append(load.Other, cpu/n)
		if err := o.onHooks(hooks, run, func(sum cost) {
			repair.Other = append(repair.Other, 100*sum.ns/cpu)
			perRun.Other = append(perRun.Other, sum.ns/sum.runs)
		}); err != nil {
			return nil, err
		}
		if err := o.onHooks(steady, run, func(sum cost) { least.Other = append(least.Other, 100*sum.ns/cpu) }); err != nil {
			return nil, err
		}
		err := beside(own, func() error {
			m, err := during(own, run)
			io := total(m, "owner_send", "owner_recv", "owner_copied")
			repair.Own = append(repair.Own, 100*io.ns/cpu)
			perRun.Own = append(perRun.Own, io.ns/max(1, io.runs))
			perRequest.Own = append(perRequest.Own, total(m).ns/n)
			load.Own = append(load.Own, cpu/n)
			return err
		})
		if err != nil {
			return nil, err
		}
		if peer == nil {
			continue
		}
		err = beside(peer, func() error {
			m, err := during(peer, run)
			perRequest.Other = append(perRequest.Other, total(m).ns/n)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	least.Own = repair.Own
	return []figure{repair, least, perRun, perRequest, load}, nil
}
