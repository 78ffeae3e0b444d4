// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Hosts: lab.TwoHosts,
	Run: func(w *lab.World) error {
		t, err := lab.StartTalks(w, "browser", "web",
			lab.Talk{Name: "thinks", Turns: 20, Think: 50 * ms, Gap: 10 * ms},
			lab.Talk{Name: "late", Turns: 20, Late: 30 * ms, Gap: 20 * ms},
			lab.Talk{Name: "slow", Turns: 2, Answer: 2 << 20, RecvBuf: 64 << 10, Slow: 10 * ms},
		)
		if err != nil {
			return err
		}
		_, err = t.Run()
		return err
	},
}

// Live are cases with known traffic.
var Live = []trial.Case{
	{Name: "closed", Hosts: lab.TwoHosts, Run: scenarios()},
	{Name: "closed-exact", Hosts: lab.TwoHosts, Run: scenarios("--exact")},
	{Name: "services", Hosts: lab.TwoHosts, Run: grouped()},
	{Name: "services-exact", Hosts: lab.TwoHosts, Run: grouped("--exact")},
	{Name: "intervals", Hosts: lab.TwoHosts, Run: intervals()},
	{Name: "intervals-exact", Hosts: lab.TwoHosts, Run: intervals("--exact")},
}

const ms = time.Millisecond

// A scenario is a talk and the parts that its time must be in.
type scenario struct {
	lab.Talk
	path   *lab.Path // between the hosts; nil: their veth pair
	loss   *lab.Loss // of segments to or from the server; its port is filled in
	want   []want
	also   func(x *trial.Trial, r *row.Row, client bool)
	turns  int  // that are seen; 0: all
	silent bool // no turn is seen
	needs  func() error
}

// want is the bounds of a part: what one side did on purpose is at least in it, and
// what an outer stopwatch says at most.
type want struct {
	role  role
	part  string // or several: a+b
	from  func(*lab.TalkResult) int64
	to    func(*lab.TalkResult) int64 // nil: the client's whole time
	exact bool                        // only with --exact
	loose float64                     // how much of from must be there; 0: all
	ticks int                         // jiffies that may lack in each turn without --exact
}

func think(r *lab.TalkResult) int64     { return r.Server.Think }
func pause(r *lab.TalkResult) int64     { return r.Server.Pause }
func sending(r *lab.TalkResult) int64   { return r.Server.Send }
func none(*lab.TalkResult) int64        { return 0 }
func exchanges(r *lab.TalkResult) int64 { return r.Client.Exchanges() }

// closed is the client's time and that of both FINs.
func closed(r *lab.TalkResult) int64 { return r.Client.Whole + int64(time.Second) }

// timeouts is how long TCP waits at least before it sends a lone segment again: its
// probe, then its timer.
func timeouts(n int64) func(*lab.TalkResult) int64 {
	return func(*lab.TalkResult) int64 { return n * int64(190*ms) }
}

// line is how long the narrow path takes for so many bytes of each turn.
func line(bytes int64) func(*lab.TalkResult) int64 {
	return func(r *lab.TalkResult) int64 { return int64(len(r.Client.Turns)) * bytes * int64(time.Second) / rate }
}

// resent checks that the server sent segments again for one reason, and no other.
func resent(why string) func(*trial.Trial, *row.Row, bool) {
	return func(x *trial.Trial, r *row.Row, client bool) {
		if n := r.Get(why).N; !client && n == 0 {
			x.Errorf("%s is 0 in %s", why, trial.Dump(r))
		}
	}
}

var far = &lab.Path{Delay: 10 * ms}

// rate is bytes a second of the narrow path.
const rate = 250_000

var narrow = &lab.Path{Delay: 10 * ms, Rate: rate}

// table is all scenarios. Half a second a turn is too short for none of them, and no
// scenario takes more than a few seconds.
func table() []scenario {
	return []scenario{
		{Talk: lab.Talk{Name: "think", Turns: 11, Think: 50 * ms, Gap: 10 * ms}, want: []want{
			{role: server, part: "app", from: think, to: exchanges},
			{role: client, part: "peer", from: think, to: exchanges, ticks: 1},
		}},
		{Talk: lab.Talk{Name: "late", Turns: 11, Late: 30 * ms, Gap: 20 * ms}, want: []want{
			{role: server, part: "unread", from: func(r *lab.TalkResult) int64 { return r.Server.Late }, ticks: 1},
		}},
		{Talk: lab.Talk{Name: "slow-reader", Turns: 2, Answer: 2 << 20, RecvBuf: 64 << 10, Slow: 5 * ms}, want: []want{
			{role: server, part: "window", from: func(r *lab.TalkResult) int64 { return r.Client.Slow }, loose: 0.5, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "idle", Turns: 4, Gap: 300 * ms}, want: []want{
			{role: client, part: "idle", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }},
			{role: server, part: "idle", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }, ticks: 1},
		}},
		{Talk: lab.Talk{Name: "accept", Turns: 3, Accept: 250 * ms}, want: []want{
			{role: server, part: "accept", from: func(r *lab.TalkResult) int64 { return r.Server.Accept }},
		}},
		{Talk: lab.Talk{Name: "greeting", Turns: 3, Greet: 50 * ms, Think: 20 * ms}, want: []want{
			{role: server, part: "app", from: think},
		}},
		{Talk: lab.Talk{Name: "chunks", Turns: 3, Chunks: 5, Pause: 30 * ms}, want: []want{
			{role: server, part: "app", from: pause, to: exchanges},
			{role: client, part: "receiving+unread", from: pause, to: exchanges, ticks: 5},
		}},
		{Talk: lab.Talk{Name: "half-close", Turns: 1, Think: 60 * ms, Half: true}, want: []want{
			{role: server, part: "app", from: think, to: exchanges},
			{role: client, part: "peer", from: think, to: exchanges, ticks: 1},
		}},
		{Talk: lab.Talk{Name: "splice", Turns: 7, Think: 20 * ms, Via: "splice"}, want: []want{
			{role: server, part: "app", from: think, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "sendfile", Turns: 5, Think: 20 * ms, Answer: 300_000, Via: "sendfile"}, want: []want{
			{role: server, part: "app", from: think, to: exchanges, ticks: 1},
		}},
		{Talk: lab.Talk{Name: "io_uring", Turns: 7, Think: 20 * ms, Accept: 100 * ms, Via: "uring"}, needs: lab.UringSupported, want: []want{
			{role: server, part: "app", from: think, to: exchanges},
			{role: server, part: "accept", from: func(r *lab.TalkResult) int64 { return r.Server.Accept }},
		}},
		{Talk: lab.Talk{Name: "ipv6", Network: lab.TCP6, Turns: 5, Think: 20 * ms}, want: []want{
			{role: server, part: "app", from: think, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "mptcp", Network: lab.MPTCP4, Turns: 5, Think: 20 * ms}, silent: true, needs: lab.MPTCPSupported, want: []want{
			{role: server, part: "unknown", from: think, to: closed},
			{role: client, part: "unknown", from: exchanges, to: closed},
		}},
		{Talk: lab.Talk{Name: "older", Early: true, Turns: 5, Think: 30 * ms, Gap: 50 * ms}, turns: 4, want: []want{
			{role: server, part: "app", from: func(*lab.TalkResult) int64 { return int64(4 * 30 * ms) }, to: exchanges},
			{role: client, part: "peer", from: func(*lab.TalkResult) int64 { return int64(4 * 30 * ms) }, to: exchanges, ticks: 1},
		}, also: func(x *trial.Trial, r *row.Row, _ bool) { x.Want(r, "older", 1) }},
		{Talk: lab.Talk{Name: "send-buffer", Turns: 1, Answer: 3_000_000, SendBuf: 64 << 10}, path: far, want: []want{
			{role: server, part: "buffer", exact: true, from: sending, loose: 0.5, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "narrow-down", Turns: 2, Answer: 250_000, Gap: 50 * ms}, path: narrow, want: []want{
			{role: server, part: "network", from: line(250_000), loose: 0.8, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "narrow-up", Turns: 2, Ask: 250_000, Gap: 50 * ms}, path: narrow, want: []want{
			{role: client, part: "network", from: line(250_000), loose: 0.8, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "loss-fast", Turns: 4, Answer: 60_000, Gap: 20 * ms}, path: far, loss: &lab.Loss{From: 1, Data: 1000, Skip: 70, Count: 1}, want: []want{
			{role: server, part: "loss", from: func(*lab.TalkResult) int64 { return int64(2 * far.Delay) }, loose: 0.8, to: exchanges},
		}, also: resent("retrans_fast")},
		{Talk: lab.Talk{Name: "loss-tlp", Turns: 5, Gap: 20 * ms}, path: far, loss: &lab.Loss{From: 1, Data: 500, Skip: 2, Count: 1}, want: []want{
			{role: server, part: "loss", from: timeouts(1), to: exchanges},
		}, also: resent("retrans_tlp")},
		{Talk: lab.Talk{Name: "loss-rto", Turns: 5, Gap: 20 * ms}, path: far, loss: &lab.Loss{From: 1, Data: 500, Skip: 2, Count: 2}, want: []want{
			{role: server, part: "loss", from: timeouts(2), to: exchanges},
		}, also: resent("retrans_rto")},
		{Talk: lab.Talk{Name: "loss-spurious", Turns: 3, Gap: 700 * ms}, loss: &lab.Loss{To: 1, Flags: lab.ACK, Empty: true, Skip: 1, Count: 1}, want: []want{
			{role: server, part: "loss", from: none, to: none},
			{role: server, part: "idle", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }, ticks: 1},
		}, also: resent("retrans_tlp")},
		{Talk: lab.Talk{Name: "loss-syn", Turns: 2}, loss: &lab.Loss{To: 1, Flags: lab.SYN, Count: 1}, want: []want{
			{role: client, part: "connect", from: func(*lab.TalkResult) int64 { return int64(950 * ms) }, to: func(r *lab.TalkResult) int64 { return r.Client.Connect }},
		}, also: func(x *trial.Trial, r *row.Row, client bool) {
			if client {
				x.Want(r, "retrans_syn", 1)
			}
		}},
	}
}

// scenarios holds all talks at once. Every row has to add up, and every part to be
// within its bounds.
func scenarios(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := x.World
		for _, h := range w.Hosts() {
			if err := w.Sysctl(h, "net.ipv4.tcp_congestion_control", "reno"); err != nil {
				return err
			}
		}
		all := slices.DeleteFunc(table(), func(s scenario) bool { return s.needs != nil && errors.Is(s.needs(), lab.ErrNotSupported) })
		talks := make([]lab.Talk, len(all))
		for i := range all {
			if all[i].path != nil {
				p, err := w.OpenPath("client", "server", *all[i].path)
				if errors.Is(err, lab.ErrNotSupported) {
					return trial.Skip("%v", err)
				} else if err != nil {
					return err
				}
				defer p.Close()
				all[i].Addr = lab.TCP4.At(p.To, 0)
			}
			talks[i] = all[i].Talk
		}
		t, err := lab.StartTalks(w, "asker", "answerer", talks...)
		if err != nil {
			return err
		}
		for i := range all {
			l := all[i].loss
			if l == nil {
				continue
			}
			if l.From != 0 {
				l.From = t.Ports[i]
			} else {
				l.To = t.Ports[i]
			}
			losing, err := lab.StartLoss(*l)
			if err != nil {
				return err
			}
			defer losing.Close()
		}
		exact := len(flags) > 0
		rows, said, err := trial.RowsOf(x, 2*len(all), t.Run, append(flags, "--closed")...)
		if err != nil {
			return err
		}
		for i := range all {
			all[i].check(x, rows, t.Ports[i], &said[i], exact)
		}
		x.Fail(trial.RowCount(len(rows), 2*len(all)))
		x.NoneLost()
		return nil
	}
}

// check compares the two rows of a talk.
func (s *scenario) check(x *trial.Trial, rows []*row.Row, port int, said *lab.TalkResult, exact bool) {
	for _, side := range []role{client, server} {
		id := "lport"
		if side == client {
			id = "rport"
		}
		r := find(rows, id, port)
		if r == nil {
			x.Fail(&trial.Missing{N: 1, Text: fmt.Sprintf("%s: no row of the %s", s.Name, side)})
			continue
		}
		addsUp(x, r)
		bad := func(format string, args ...any) {
			x.Errorf("%s, %s: %s; said %+v; in %s", s.Name, side, fmt.Sprintf(format, args...), *said, trial.Dump(r))
		}
		if got := trial.Value(r.Get("role")); got != side.String() {
			bad("role is %s", got)
		}
		if got := trial.Value(r.Get("turns")); !s.silent && got != fmt.Sprint(cmp.Or(s.turns, s.Turns)) {
			bad("%s turns, want %d", got, cmp.Or(s.turns, s.Turns))
		}
		if wall := int64(r.Get("wall_ms").N); side == client && !s.Half && s.turns == 0 && wall < said.Client.Exchanges() {
			bad("lasted %v", time.Duration(wall))
		}
		for _, w := range s.want {
			if w.role != side || w.exact && (!exact || lab.Emulated()) {
				continue // an emulated machine is too slow to fill a buffer
			}
			lo, hi := w.from(said), said.Client.Whole
			if w.loose > 0 {
				lo = int64(float64(lo) * w.loose)
			}
			if w.to != nil {
				hi = w.to(said)
			}
			slack := int64(w.ticks*s.Turns) * int64(jiffy()+2*ms)
			lo, hi = lo-slack, hi+slack+hi/20
			var got int64
			for p := range strings.SplitSeq(w.part, "+") {
				got += int64(r.Get(p + "_ms").N)
			}
			if got < lo || got > hi {
				bad("%s is %v, want %v to %v", w.part, time.Duration(got), time.Duration(lo), time.Duration(hi))
			}
		}
		if s.also != nil {
			s.also(x, r, side == client)
		}
	}
}

// find is the row whose column id has this port.
func find(rows []*row.Row, id string, port int) *row.Row {
	for _, r := range rows {
		if r.Get(id).N == uint64(port) {
			return r
		}
	}
	return nil
}

// addsUp checks that the parts of a row are its whole time.
func addsUp(x *trial.Trial, r *row.Row) {
	var sum uint64
	for _, p := range partNames {
		sum += r.Get(p + "_ms").N
	}
	if wall := r.Get("wall_ms").N; sum != wall {
		x.Errorf("the parts are %d ns of %d, in %s", sum, wall, trial.Dump(r))
	}
}

func jiffy() time.Duration { return newConfig().(*config).Tick }
