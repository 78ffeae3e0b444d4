// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/object"
	"seine/internal/tool"
	"seine/tools"
)

// A load is traffic that tools are measured over.
type load struct {
	name string
	hook string // a tracepoint of it, for the empty program
	run  func(*options, *lab.World) error
}

var (
	requestLoad = &load{"requests", "sock_send_length", func(o *options, w *lab.World) error {
		r, err := lab.StartPingPong(w, lab.PingPong{Requests: o.requests, Parallel: 2})
		if err != nil {
			return err
		}
		_, err = r.Run()
		return err
	}}
	sessionLoad = &load{"sessions", "inet_sock_set_state", func(o *options, w *lab.World) error {
		return o.sessionsIn(w)
	}}
	bulkLoad = &load{"bulk", "tcp_probe", func(o *options, w *lab.World) error {
		t, err := lab.StartTCP(w, lab.Sessions{Send: o.requests << 13, Brief: true})
		if err != nil {
			return err
		}
		_, err = t.Run()
		return err
	}}
	datagramLoad = &load{"datagrams", "sock_send_length", func(o *options, w *lab.World) error {
		f, err := lab.StartFlood(w, lab.Flood{Count: o.requests, Size: 100})
		if err != nil {
			return err
		}
		_, err = f.Run()
		return err
	}}
)

// A share is how much of a load's CPU time a tool may take, in percent.
type share struct {
	of   *load
	most float64
}

// shares are the goals. Tools that are not here have none, and are measured
// over requests.
var shares = map[string]share{
	"sockstat": {requestLoad, 5}, "filetype": {requestLoad, 5}, "sormem": {requestLoad, 5},
	"soconnect": {requestLoad, 1}, "soaccept": {requestLoad, 1}, "soconnlat": {requestLoad, 1}, "so1stbyte": {requestLoad, 1},
	"solisten": {requestLoad, 1}, "solife": {requestLoad, 1}, "sofdsnoop": {requestLoad, 1}, "sofamily": {requestLoad, 1}, "soprotocol": {requestLoad, 1},
	"tcpaccept": {sessionLoad, 1}, "tcpbind": {sessionLoad, 1}, "tcpretrans": {sessionLoad, 1}, "tcpsynbl": {sessionLoad, 1}, "tcpdrop": {sessionLoad, 1},
	"tcpconnect": {sessionLoad, 5}, "tcpcong": {sessionLoad, 5}, "sni": {sessionLoad, 5}, "tcpstates": {sessionLoad, 5},
	"tcpwin": {bulkLoad, 5}, "tcprtt": {bulkLoad, 5}, "tcppktlat": {bulkLoad, 5}, "tcpnagle": {bulkLoad, 5}, "tcpsnoop": {bulkLoad, 5},
	"udpconnect": {datagramLoad, 1}, "udplife": {datagramLoad, 1}, "gethostlatency": {datagramLoad, 1}, "dns": {datagramLoad, 5},
	"superping": {bulkLoad, 3}, "ipecn": {bulkLoad, 3},
	"qdisclat": {bulkLoad, 5}, "netsize": {bulkLoad, 5}, "netqtop": {bulkLoad, 5}, "nettxlat": {bulkLoad, 5}, "skbdrop": {bulkLoad, 5}, "skblife": {bulkLoad, 5},
	"hardirqs": {bulkLoad, 5}, "softirqs": {bulkLoad, 5}, "profile": {bulkLoad, 5},
}

// everyTool measures each tool that runs here over the load of its goal.
func everyTool(o *options) ([]figure, error) {
	names, err := o.list()
	if err != nil {
		return nil, err
	}
	perRun, part, least := map[string]*figure{}, map[string]*figure{}, map[string]*figure{}
	failed := map[string]error{}
	for _, name := range names {
		s := goalOf(name)
		perRun[name] = &figure{What: name + ": BPF per run under " + s.of.name, Unit: "ns", Beside: "empty program"}
		part[name] = &figure{What: name + ": BPF, of the CPU of " + s.of.name, Unit: "%", Beside: "empty as often"}
		if leasts[name] != nil {
			least[name] = &figure{What: name + ": the same over " + s.of.name, Unit: "%", Beside: leastName}
		}
		if s.most > 0 && !lab.Emulated() {
			part[name].Goal = &goal{Bound: s.most}
		}
	}
	for range o.rounds {
		floor, err := o.floors()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if failed[name] != nil {
				continue
			}
			s, c := goalOf(name), o.own(name)
			err := beside(c, func() error {
				var cpu float64
				m, err := during(c, func() (err error) { cpu, err = o.cpuOf(s.of); return err })
				if err != nil {
					return err
				}
				sum := total(m)
				if sum.runs > 0 {
					perRun[name].Own = append(perRun[name].Own, sum.ns/sum.runs)
					perRun[name].Other = append(perRun[name].Other, floor[s.of])
				}
				if sum.runs > often && sums(name) {
					perRun[name].Goal = &goal{Bound: 4, Ratio: true}
				}
				part[name].Own = append(part[name].Own, 100*sum.ns/cpu)
				part[name].Other = append(part[name].Other, 100*sum.runs*floor[s.of]/cpu)
				if o.each {
					n := o.units(s.of)
					fmt.Fprintf(os.Stderr, "of %s, each %.0f ns of CPU: %.0f ns\n", s.of.name, cpu/n, sum.ns/n)
					explain(c.args, m, n)
				}
				return nil
			})
			if err != nil {
				failed[name] = err
				continue
			}
			if least[name] == nil {
				continue
			}
			least[name].Own = part[name].Own
			var cpu float64
			err = o.onHooks(leasts[name], func() (err error) { cpu, err = o.cpuOf(s.of); return err }, func(sum cost) {
				least[name].Other = append(least[name].Other, 100*sum.ns/cpu)
			})
			if err != nil {
				return nil, err
			}
		}
	}
	var out []figure
	for _, name := range names {
		if err := failed[name]; err != nil {
			out = append(out, figure{What: name, Note: "not measured: " + oneLine(err)})
			continue
		}
		if len(perRun[name].Own) == 0 {
			perRun[name].Note = "nothing of it runs under this load"
		}
		out = append(out, *perRun[name], *part[name])
		if least[name] != nil {
			out = append(out, *least[name])
		}
	}
	return out, nil
}

// often is the number of runs until caches are warm.
const often = 10_000

// sums reports whether the programs of a tool only add to maps: they neither
// send rows nor walk stacks.
func sums(name string) bool {
	i := slices.IndexFunc(tools.All, func(t *tool.Tool) bool { return t.Name == name })
	if i < 0 || tools.All[i].Kind(tools.All[i].NewConfig()) == tool.Events {
		return false
	}
	spec, err := object.Spec(name)
	if err != nil {
		return false
	}
	for _, m := range spec.Maps {
		if m.Type == ebpf.StackTrace {
			return false
		}
	}
	return true
}

// units is the size of a load in requests, sessions or datagrams; for bulk, in
// units of 8 KB.
func (o *options) units(l *load) float64 {
	if l == sessionLoad {
		return float64(o.sessions)
	}
	return float64(o.requests)
}

func goalOf(name string) share {
	if s, ok := shares[name]; ok {
		return s
	}
	return share{of: requestLoad}
}

// floors is the cost of a run of an empty program under each load.
func (o *options) floors() (map[*load]float64, error) {
	out := map[*load]float64{}
	for _, l := range []*load{requestLoad, sessionLoad, bulkLoad, datagramLoad} {
		err := o.onHooks([]*empty{{tracepoint: l.hook}}, func() error { _, err := o.cpuOf(l); return err }, func(sum cost) {
			if sum.runs > 0 {
				out[l] = sum.ns / sum.runs
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// cpuOf makes a load and returns the CPU time of its processes in nanoseconds:
// of all children that end meanwhile.
func (o *options) cpuOf(l *load) (float64, error) {
	before, err := childrenCPU()
	if err != nil {
		return 0, err
	}
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		return 0, err
	}
	err = l.run(o, w)
	if e := w.Close(); err == nil {
		err = e
	}
	if err != nil {
		return 0, err
	}
	after, err := childrenCPU()
	return after - before, err
}

func childrenCPU() (float64, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
	return float64(u.Utime.Nano() + u.Stime.Nano()), err
}

func oneLine(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	return s[:min(len(s), 60)]
}

// asked reports whether -tools names a tool.
func (o *options) asked(tool string) bool {
	return o.tools == "" || slices.Contains(strings.Split(o.tools, ","), tool)
}

// list is the tools of the binary that run here.
func (o *options) list() ([]string, error) {
	out, err := exec.Command(o.seine, "list", "-o", "json").Output()
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	var names []string
	d := json.NewDecoder(strings.NewReader(string(out)))
	for d.More() {
		var t struct{ Tool, Status string }
		if err := d.Decode(&t); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		if strings.HasPrefix(t.Status, "runs") && o.asked(t.Tool) {
			names = append(names, t.Tool)
		}
	}
	return names, nil
}
