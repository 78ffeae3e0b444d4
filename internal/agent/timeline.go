// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"seine/internal/kern"
	"seine/internal/watch"
)

// A second is one second of a timeline.
type second struct {
	At      int64              `json:"t"`
	Turns   uint64             `json:"turns"`
	P50     *float64           `json:"p50_us,omitempty"`
	P99     *float64           `json:"p99_us,omitempty"`
	TX      uint64             `json:"tx_bytes"`
	RX      uint64             `json:"rx_bytes"`
	Retrans uint64             `json:"retrans"`
	Drops   uint64             `json:"drops"` // drops of the whole machine
	Failed  uint64             `json:"failed_connects"`
	Parts   map[string]float64 `json:"parts_ms"`
}

// settled is the time in seconds until a second is complete: tools deliver its rows until then.
const settled = 2

// timeline returns the seconds of one service, or of all.
func (a *Answers) timeline(q *query) (any, error) {
	first, last := a.Model.Span()
	if !q.at.IsZero() && q.at.Before(last) {
		last = q.at
	}
	from := last.Add(-q.window + time.Second)
	if from.Before(first) {
		from = first
	}
	out := timelineAnswer{header: header{a.Host, float64(from.Unix()), float64(last.Unix() + 1)}, Settled: last.Unix() - settled, ID: q.id, Seconds: []second{}}
	if first.IsZero() {
		return out, nil
	}
	for at := from; !at.After(last); at = at.Add(time.Second) {
		v := a.Model.At(at, time.Second)
		s := second{At: at.Unix()}
		var turn kern.Hist
		var parts watch.Parts
		for _, one := range v.Services {
			if q.id != "" && serviceID(one.ServiceKey) != q.id {
				continue
			}
			s.Turns += one.Turns
			s.TX += one.TX
			s.RX += one.RX
			s.Retrans += one.Retrans
			one.Turn.AddTo(&turn)
			for i, ms := range one.Parts {
				parts[i] += ms
			}
		}
		for _, t := range v.Tallies {
			switch {
			case t.Kind == watch.Drop:
				s.Drops += t.Count
			case t.Kind == watch.Connecting && t.What != "pending" && (q.id == "" || serviceID(t.Service()) == q.id):
				s.Failed += t.Count
			}
		}
		s.P50, _, s.P99 = quantiles(&turn)
		s.Parts = partsMS(&parts)
		out.Seconds = append(out.Seconds, s)
	}
	return out, nil
}

// A node of the map is a process, or an address and port of another machine.
type node struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	Kind  string `json:"kind"` // process, remote, clients
}

// An edge leads from the client to the server.
type edge struct {
	From    string   `json:"from"`
	To      string   `json:"to"`
	Service string   `json:"service"` // id of the service that saw it
	Conns   uint64   `json:"conns"`
	Turns   uint64   `json:"turns"`
	P99     *float64 `json:"p99_us,omitempty"`
	Bytes   uint64   `json:"bytes"`
	Retrans uint64   `json:"retrans"`
	Finding *verdict `json:"finding,omitempty"`
}

func processNode(w watch.Who) node {
	label := w.Comm
	if label == "" {
		label = "(unknown)"
	}
	if w.Container != "" {
		label += " in " + w.Container
	}
	return node{"p|" + w.Container + "|" + w.Comm + "|" + strconv.FormatUint(uint64(w.Netns), 10), label, "process"}
}

// graph returns the map: who talks to whom. If a process talks to an address of this machine and a
// local process serves the port, the edge leads to that process. All clients of a service from other
// machines are one node.
func (a *Answers) graph(q *query) (any, error) {
	v := a.view(q)
	findings := a.judge(q, v).Findings
	nodes := map[string]node{}
	served := map[uint16][]*watch.Service{}
	asked := map[watch.ServiceKey]bool{} // services that a local process uses
	for _, s := range v.Services {
		if !s.Out {
			served[s.Lport] = append(served[s.Lport], s)
		}
	}
	var edges []*edge
	add := func(from, to node, s *watch.Service) {
		nodes[from.ID], nodes[to.ID] = from, to
		e := &edge{From: from.ID, To: to.ID, Service: serviceID(s.ServiceKey), Conns: s.Conns, Turns: s.Turns, Bytes: s.TX + s.RX, Retrans: s.Retrans}
		if !s.Mixed() {
			var turn kern.Hist
			s.Turn.AddTo(&turn)
			_, _, e.P99 = quantiles(&turn)
		}
		if f := about(findings, s.ServiceKey); f != nil {
			e.Finding = &verdict{f.ID, f.Class, f.Severity, f.Title}
		}
		edges = append(edges, e)
	}
	for _, s := range v.Services {
		if !s.Out {
			continue
		}
		to := node{"r|" + watch.Endpoint(s.Raddr, s.Rport), watch.Endpoint(s.Raddr, s.Rport), "remote"}
		for _, here := range served[s.Rport] {
			if v.Local.In(s.Netns, s.Raddr, here.Netns) {
				to = processNode(here.Who)
				asked[here.ServiceKey] = true
				break
			}
		}
		add(processNode(s.Who), to, s)
	}
	for _, s := range v.Services {
		if !s.Out && !asked[s.ServiceKey] {
			add(node{"c|" + serviceID(s.ServiceKey), "clients of :" + strconv.Itoa(int(s.Lport)), "clients"}, processNode(s.Who), s)
		}
	}
	slices.SortStableFunc(edges, func(x, y *edge) int { return compare(float64(y.Bytes), float64(x.Bytes)) })
	total := len(edges)
	edges = edges[:min(len(edges), q.limit)]
	used := map[string]bool{}
	for _, e := range edges {
		used[e.From], used[e.To] = true, true
	}
	out := mapAnswer{header: a.header(v), Total: total, Nodes: []node{}, Edges: edges}
	if out.Edges == nil {
		out.Edges = []*edge{}
	}
	for _, id := range slices.Sorted(maps.Keys(used)) {
		out.Nodes = append(out.Nodes, nodes[id])
	}
	return out, nil
}

// status returns the state of the agent.
func (a *Answers) status(*query) (any, error) {
	first, last := a.Model.Span()
	v := a.Model.Window(time.Second)
	out := statusAnswer{Host: a.Host, Ready: true, First: first.Unix(), Last: last.Unix(), Sources: []source{}}
	if a.Ready != nil {
		if err := a.Ready(); err != nil {
			out.Ready, out.Why = false, err.Error()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Sources)) {
		s := v.Sources[name]
		out.Sources = append(out.Sources, source{s.Name, s.Rows, s.Lost, s.Why})
	}
	n := a.Meter.Count()
	out.Series, out.Limit = n.Series, n.Limit
	return out, nil
}
