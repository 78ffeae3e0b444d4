// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"seine/internal/bt"
	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
)

//go:embed testdata/agree
var scripts embed.FS

var agree = flag.String("agree", "", "TestAgree runs the scripts alone whose names match this `expression`")

// An agreement is a script that does what a tool of the book does, and the way
// to compare its output with the rows of our tool: a key, and a count or a sum.
type agreement struct {
	tool  string
	how   string // of several scripts: ourshow.bt
	flags []string
	demo  string                      // the tool whose traffic it is; "": its own
	needs string                      // program that the traffic is made by
	since string                      // tracepoint of the script, GROUP:NAME, that not every kernel has
	key   []string                    // columns; empty: of rows that do not count
	keep  func(r *row.Row) bool       // nil: all rows
	much  string                      // columns with the number, or with a histogram; "": each row is one
	sum   bool                        // of a histogram's values, not how many they are
	alter func(string, string) string // of a column's text; nil: as it is
	part  bool                        // the script has keys that the tool does not have
	quiet bool                        // no IPv6, which sends packets by itself
}

func is(id string, values ...string) func(*row.Row) bool {
	return func(r *row.Row) bool {
		c := r.Get(id)
		return c != nil && slices.Contains(values, trial.Value(c))
	}
}

var agreements = []agreement{
	{tool: "soconnect", key: []string{"pid", "comm", "raddr", "rport"}, keep: is("via", "syscall")},
	{tool: "soaccept", key: []string{"pid", "comm"}, keep: is("comm", "web", "store")},
	{tool: "sofamily", demo: "soconnect", key: []string{"comm", "family"}, keep: is("op", "connect"), much: "count"},
	{tool: "soconnlat", demo: "so1stbyte", key: []string{"comm"}, keep: is("metric", "connect", "failed"), much: "latency_us"},
	{tool: "so1stbyte", key: []string{"comm"}, much: "latency_us"},
	{tool: "socketio", since: "sock:sock_send_length", key: []string{"dir", "comm"}, much: "bytes"},
	{tool: "socksize", since: "sock:sock_send_length", key: []string{"dir", "comm"}, much: "bytes"},
	{tool: "sockstat", demo: "tcplife", key: []string{"op"}, keep: is("op", "socket", "bind", "listen", "connect", "accept"), much: "count"},
	{tool: "soprotocol", demo: "soconnect", key: []string{"comm", "prot"}, keep: is("op", "connect"), much: "count"},
	{tool: "sormem", since: "sock:sk_data_ready", key: []string{"metric"}, much: "bytes", sum: true},
	{tool: "sormem", how: "recvmsg", flags: []string{"--way=kprobe"}, key: []string{"metric"}, much: "bytes", sum: true},
	{tool: "tcplife", key: []string{"lport", "rport", "tx_bytes", "rx_bytes"}, alter: func(id, v string) string {
		if strings.HasSuffix(id, "_bytes") { // as in the book: the kernel's counters include SYN and FIN
			n, _ := strconv.Atoi(v)
			return fmt.Sprint(n / 1024)
		}
		return v
	}},
	{tool: "tcpconnect", key: []string{"pid", "comm", "raddr", "rport"}, keep: func(r *row.Row) bool { return !is("lport", "-")(r) }}, // those that sent a SYN
	{tool: "tcpaccept", key: []string{"pid", "comm", "lport"}},
	{tool: "tcpretrans", flags: []string{"-l"}, key: []string{"lport", "rport"}},
	{tool: "tcpwin", key: []string{"lport", "snd_cwnd"}, keep: is("event", "rcv")},
	{tool: "tcpsynbl", key: []string{"limit"}, keep: func(r *row.Row) bool { return is("metric", "accept")(r) && is("limit", "500")(r) }, much: "used"},
	{tool: "tcpnagle", flags: []string{"--xmit"}, key: []string{"state"}, much: "count"},
	{tool: "udpconnect", key: []string{"pid", "comm", "rport"}, keep: is("how", "connect")},
	{tool: "gethostlatency", needs: "getent", key: []string{"pid", "comm", "host"}},
	{tool: "netsize", key: []string{"metric"}, much: "bytes", quiet: true},
	{tool: "nettxlat", key: []string{"end"}, much: "latency_us", quiet: true},
	{tool: "skbdrop", key: []string{"location"}, much: "skbs", quiet: true, alter: func(_, v string) string {
		name, _, _ := strings.Cut(v, "+")
		return name
	}},
	{tool: "qdisclat", key: []string{"kind"}, much: "latency_us"},
	{tool: "qdisclat", how: "functions", key: []string{"kind"}, much: "latency_us", alter: func(_, v string) string {
		if v == "codel" {
			v += "_qdisc"
		}
		return v + "_dequeue"
	}},
	{tool: "skblife", demo: "tcplife", // 7.2 takes datagrams out of NAPI's cache, past the slab
		key: []string{"kind"}, keep: is("kind", "alloc"), much: "freed merged", part: true,
		alter: func(_, _ string) string { return "__alloc_skb" }},
	{tool: "ieee80211scan", since: "cfg80211:cfg80211_scan_done", key: []string{"event", "pid", "comm", "freq_mhz"}, alter: func(id, v string) string {
		if id == "freq_mhz" { // kHz internally
			return strings.TrimSuffix(v, "000")
		}
		return v
	}},
	{tool: "superping", key: []string{"ident", "seq"}, keep: is("ip", "4")},
	{tool: "ipecn", key: []string{"saddr", "dev"}, keep: func(r *row.Row) bool { return is("ip", "4")(r) && is("dir", "in")(r) }},
}

// TestAgree runs each script beside our tool over the tool's demo traffic. Both
// must have the same figures.
func TestAgree(t *testing.T) {
	for _, a := range agreements {
		if !match(*agree, a.name()) {
			continue
		}
		t.Run(a.name(), func(t *testing.T) {
			tl, demo := named(t, a.tool), tools.Demos[cmp.Or(a.demo, a.tool)]
			c := trial.Case{Name: "agree", Hosts: demo.Hosts, Run: a.run(t, demo)}
			until(t, func() (*trial.Trial, error) {
				return trial.RunCase(t.Context(), tl, c, "")
			})
		})
	}
}

func named(t *testing.T, name string) *tool.Tool {
	t.Helper()
	i := slices.IndexFunc(tools.All, func(tl *tool.Tool) bool { return tl.Name == name })
	if i < 0 {
		t.Fatalf("there is no tool %s", name)
	}
	return tools.All[i]
}

func (a *agreement) name() string { return strings.TrimSuffix(a.tool+"_"+a.how, "_") }

func (a *agreement) run(t *testing.T, demo trial.Workload) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if _, err := exec.LookPath(a.needs); a.needs != "" && err != nil {
			return trial.Skip("%v", err)
		}
		if group, name, named := strings.Cut(a.since, ":"); named {
			if _, err := host.TracepointID(group, name); err != nil {
				return trial.Skip("%v", err)
			}
		}
		if err := a.silence(x.World); err != nil {
			return err
		}
		stop, err := a.script(x)
		if err != nil {
			return err
		}
		rows, err := x.Rows(func() error {
			if err := demo.Run(x.World); err != nil {
				return err
			}
			return x.World.Quiet()
		}, a.flags...)
		out, skipped, e := stop()
		if errors.Is(err, probe.ErrNotSupported) {
			return trial.Skip("%s", probe.Reason(err))
		}
		if err = errors.Join(err, e); err != nil {
			return err
		}
		got, want := a.ofRows(rows), ofText(out)
		if a.part {
			maps.DeleteFunc(want, func(k string, _ uint64) bool { return got[k] == 0 })
		}
		if err := differ(got, want, skipped+elsewhere(out)); err != nil {
			return err
		}
		t.Logf("%d keys agree", len(want))
		return nil
	}
}

// differ compares figures. The script is attached before the tool and detached
// after it, so it may have seen more, by as much as Missing says. It has seen less
// only where the kernel has skipped runs of it or it saw events of tasks that are in
// no namespace of the world, and by no more than those.
func differ(ours, script map[string]uint64, unseen uint64) error {
	text := fmt.Sprintf("the tool has\n%s\nthe script has, with %d events that it could not see or place\n%s", list(ours), unseen, list(script))
	missing, less := 0, uint64(0)
	for key, n := range script {
		less += max(ours[key], n) - n
		missing += int(max(ours[key], n) - ours[key])
	}
	if less > unseen {
		return errors.New(text)
	}
	for key := range ours {
		if _, ok := script[key]; !ok {
			return errors.New(text)
		}
	}
	if len(script) == 0 {
		return errors.New(text)
	}
	return trial.Fewer(0, missing, "%s", text)
}

// silence turns IPv6 off if the agreement asks for it.
func (a *agreement) silence(w *lab.World) error {
	if !a.quiet {
		return nil
	}
	for _, h := range w.Hosts() {
		err := w.Sysctl(h, "net.ipv6.conf.all.disable_ipv6", "1")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func list(m map[string]uint64) (s string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		s += fmt.Sprintf("  %s: %d\n", k, m[k])
	}
	return s
}

// script starts the script, limited to the world's network namespaces.
func (a *agreement) script(x *trial.Trial) (stop func() (out string, skipped uint64, err error), err error) {
	text, err := scripts.ReadFile("testdata/agree/" + a.name() + ".bt")
	if err != nil {
		return nil, err
	}
	hosts := x.World.Hosts()
	var args, here []string
	for i, h := range hosts {
		args = append(args, fmt.Sprint(x.World.Netns(h)))
		here = append(here, fmt.Sprintf("curtask->nsproxy->net_ns->ns.inum == $%d", i+1))
	}
	head := "#define HERE (" + strings.Join(here, " || ") + ")\n"
	var out, errs bytes.Buffer
	ready := make(chan struct{})
	p, err := bt.Compile(&bt.Source{Name: a.name() + ".bt", Text: head + string(text)},
		bt.Options{Args: args, Out: &out, Err: &errs, Ready: func() { close(ready) }})
	if bt.KernelsFault(err) {
		return nil, trial.Skip("%v", err)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(x.Ctx)
	done := make(chan error, 1)
	var skipped uint64
	go func() {
		r, err := p.Run(ctx)
		if err == nil {
			lost := r.Lost()
			skipped, lost.Skipped = lost.Skipped, 0
			if lost != (bt.Lost{}) {
				err = fmt.Errorf("the script lost something: %+v", lost)
			}
		}
		done <- err
	}()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("the script: %w: %s", err, errs.String())
	}
	return func() (string, uint64, error) {
		cancel()
		err := <-done
		return out.String(), skipped, err
	}, nil
}

// ofRows adds up rows by their keys.
func (a *agreement) ofRows(rows []*row.Row) map[string]uint64 {
	m := map[string]uint64{}
	for _, r := range rows {
		if r.Get(a.key[0]) == nil || a.keep != nil && !a.keep(r) {
			continue
		}
		var key []string
		for _, id := range a.key {
			v := trial.Value(r.Get(id))
			if a.alter != nil {
				v = a.alter(id, v)
			}
			key = append(key, v)
		}
		if n := a.amount(r); n > 0 {
			m[strings.Join(key, " ")] += n
		}
	}
	return m
}

// amount is the number of a row: 0 if its view does not have the columns.
func (a *agreement) amount(r *row.Row) (n uint64) {
	if a.much == "" {
		return 1
	}
	for id := range strings.FieldsSeq(a.much) {
		c := r.Get(id)
		if c == nil {
			return 0
		}
		switch h, ok := c.Ref.(*kern.Hist); {
		case ok && a.sum:
			n += h.Sum
		case ok:
			n += h.Count
		default:
			n += c.N
		}
	}
	return n
}

// elsewhere is the number of events of a script without a known namespace: timers
// and kernel threads run for every namespace.
func elsewhere(out string) (n uint64) {
	if p := placeless.FindStringSubmatch(out); p != nil {
		n, _ = strconv.ParseUint(p[1], 10, 64)
	}
	return n
}

var (
	placeless = regexp.MustCompile(`(?m)^@elsewhere: (\d+)$`)
	mapLine   = regexp.MustCompile(`^@\[(.*)\]: (\d*)$`)
	bar       = regexp.MustCompile(`^\[.*[\])] +(\d+) \|`)
)

// ofText adds up lines by key. For a histogram it adds up the bars, which
// follow the key.
func ofText(out string) map[string]uint64 {
	m := map[string]uint64{}
	var key string
	for line := range strings.SplitSeq(out, "\n") {
		if p := bar.FindStringSubmatch(line); p != nil {
			n, _ := strconv.ParseUint(p[1], 10, 64)
			m[key] += n
		} else if p := mapLine.FindStringSubmatch(line); p != nil {
			n, _ := strconv.ParseUint(p[2], 10, 64)
			key = strings.ReplaceAll(p[1], ", ", " ")
			m[key] += n
		} else if line != "" {
			m[line]++
		}
	}
	return m
}
