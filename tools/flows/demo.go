// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"seine/internal/lab"
	"seine/internal/probe"
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

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "closed", Hosts: lab.TwoHosts, Run: closed()},
	{Name: "closed-exact", Hosts: lab.TwoHosts, Run: closed("--exact")},
}

const ms = time.Millisecond

// A scenario is a talk and the expected parts of its time.
type scenario struct {
	lab.Talk
	path   *lab.Path // between the hosts; nil: their veth pair
	loss   *lab.Loss // for segments to or from the server; its port is filled in
	want   []want
	also   func(x *trial.Trial, r *row.Row, said *lab.TalkResult, client bool)
	turns  int  // turns that are seen; 0: all
	more   int  // turns that only the server sees
	silent bool // no turn is seen
	// quick is the limit of the talk's time without its longest turn: half of the
	// time after which TCP retransmits. If the talk stays within it, TCP
	// retransmitted only in the longest turn. Otherwise the cause is not known, and
	// parts with `when` and `also` are not compared.
	quick time.Duration
	mixed []role // sides on which both directions overlap: their rows have no turns
	needs func() error
}

// want is the bounds of a part. The lower bound is the time that one side took on
// purpose. The upper bound is the time of an outer stopwatch.
type want struct {
	role  role
	part  string // or a sum of parts: a+b
	from  func(*lab.TalkResult) int64
	to    func(*lab.TalkResult) int64 // nil: the client's whole time
	when  func(*lab.TalkSide) bool    // checks only if the kernel's counters confirm it; nil: always
	open  bool                        // until the end of the case, when both sides have closed
	exact bool                        // only with --exact
	loose float64                     // the share of from that must be in the part; 0: all
	ticks int                         // jiffies and round trips that may be missing in each turn
}

func think(r *lab.TalkResult) int64 { return r.Server.Think }

func pause(r *lab.TalkResult) int64 { return r.Server.Pause }

func sending(r *lab.TalkResult) int64 { return r.Server.Send }

func none(*lab.TalkResult) int64 { return 0 }

func exchanges(r *lab.TalkResult) int64 { return r.Client.Exchanges() }

func held(r *lab.TalkResult) int64 { return r.Server.Held }

// prompt reports whether no turn took much longer than a delayed ACK, so neither
// side was late.
func prompt(s *lab.TalkSide) bool { return slices.Max(s.Turns) < int64(60*ms) }

// calm reports whether nothing was retransmitted.
func calm(s *lab.TalkSide) bool { return s.Retrans == 0 }

// again reports whether exactly n segments were retransmitted. A busy machine may
// be so slow that TCP assumes a loss.
func again(n int) func(*lab.TalkSide) bool {
	return func(s *lab.TalkSide) bool { return s.Retrans == n }
}

// slowed is the other parts of the sending time, by the kernel's figures.
func slowed(r *lab.TalkSide) int64 { return r.Window + r.Buffer }

// onWire is all parts that sending time can be in.
const onWire = "window+buffer+loss+network"

// timeouts is the least time that TCP waits before it retransmits a single segment:
// first its probe, then its timer.
func timeouts(n int64) func(*lab.TalkResult) int64 {
	return func(*lab.TalkResult) int64 { return n * int64(190*ms) }
}

// line is the time that the narrow path needs for this many bytes of each turn.
func line(bytes int64) func(*lab.TalkResult) int64 {
	return func(r *lab.TalkResult) int64 { return int64(len(r.Client.Turns)) * bytes * int64(time.Second) / rate }
}

// resent checks why the server retransmitted, if it retransmitted as many
// segments as were lost.
func resent(why string, n int) func(*trial.Trial, *row.Row, *lab.TalkResult, bool) {
	return func(x *trial.Trial, r *row.Row, said *lab.TalkResult, client bool) {
		if !client && said.Server.Retrans == n && r.Get(why).N == 0 {
			x.Fail(&trial.Missing{N: 1, Text: fmt.Sprintf("%s is 0 in %s", why, trial.Dump(r))})
		}
	}
}

var far = &lab.Path{Delay: 10 * ms}

// rate is the rate of the narrow path, in bytes a second.
const rate = 250_000

var narrow = &lab.Path{Delay: 10 * ms, Rate: rate}

// stalling is a path that carries nothing for a while, in the middle of the third
// request. TCP sends a probe meanwhile. The server's report that the probe was needless
// comes after its answer, because a segment takes 1.5 ms.
var stalling = &lab.Path{Delay: 10 * ms, Rate: 1_000_000, Stall: 220 * ms, After: 110}

// If the peer's FIN or a timer came after the data, the arrival time of the data is a
// count of jiffies, without --exact. The count lags if the hypervisor takes the processor
// away. Then only the sum of peer and unread, or of idle and unread, is certain.

// crypt is the expected times of a talk in TLS. The handshake is in the first
// of the client's turns.
var crypt = []want{
	{role: server, part: "app", from: think, to: exchanges, ticks: 1},
	{role: client, part: "peer", from: think, to: exchanges, ticks: 1},
	{role: client, part: "idle", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }},
}

// handed is the expected times of a connection that is passed to another process. The
// second request is unread until that process reads.
var handed = []want{
	{role: server, part: "app", from: think, to: exchanges},
	{role: client, part: "peer", from: think, to: exchanges, ticks: 1},
}

// takes checks that the server's row has the process that the connection was
// passed to.
func takes(x *trial.Trial, r *row.Row, said *lab.TalkResult, client bool) {
	if !client {
		x.Want(r, "pid", said.Server.Taker)
		x.Want(r, "comm", lab.HandComm)
	}
}

// mptcp is an MPTCP connection. The application's reads are not seen on its subflow.
// --exact sees them on the MPTCP socket, if the kernel has the tracepoint.
func mptcp(exact bool) scenario {
	s := scenario{Talk: lab.Talk{Name: "mptcp", Network: lab.MPTCP4, Turns: 5, Think: 20 * ms, Gap: 20 * ms}, needs: lab.MPTCPSupported}
	if k, err := probe.Running(); exact && err == nil && k.Args("sock_recv_length") != nil {
		s.want = []want{
			{role: server, part: "app", from: think, to: exchanges, ticks: 1},
			{role: server, part: "idle+unread", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }, ticks: 1},
			{role: client, part: "peer+unread", from: think, to: exchanges, ticks: 1},
			{role: client, part: "idle", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }},
		}
		return s
	}
	s.silent = true
	s.want = []want{
		{role: server, part: "unknown", from: think, open: true},
		{role: client, part: "unknown", from: exchanges, open: true},
	}
	return s
}

// full is a send buffer that is smaller than the data under way. The server waits for
// room, except in the round trips in which the congestion window is even smaller: from
// 10 segments to 90 it doubles four times. While it gets no processor, nothing may be
// under way, by the kernel's own count.
var full = []want{
	{role: server, part: "buffer", exact: true, when: calm, open: true, from: func(r *lab.TalkResult) int64 {
		return sending(r)*3/4 - r.Server.Window - 4*r.Client.RTT
	}},
	{role: server, part: onWire, from: func(r *lab.TalkResult) int64 { return min(r.Server.Send, r.Server.Busy) }, loose: 0.5, open: true},
}

// table is all scenarios. Half a second a turn is long enough for each, and no
// scenario takes more than a few seconds.
func table(exact bool) []scenario {
	return []scenario{
		{Talk: lab.Talk{Name: "think", Turns: 11, Think: 50 * ms, Gap: 10 * ms}, want: []want{
			{role: server, part: "app", from: think, to: exchanges},
			{role: client, part: "peer", from: think, to: exchanges, ticks: 1},
		}},
		{Talk: lab.Talk{Name: "late", Turns: 11, Late: 30 * ms, Gap: 20 * ms}, want: []want{
			{role: server, part: "unread", from: func(r *lab.TalkResult) int64 { return r.Server.Late }, ticks: 1},
		}},
		// Less than a jiffy at a time.
		{Talk: lab.Talk{Name: "late-bit", Turns: 61, Late: 2 * ms, Gap: 2 * ms}, want: []want{
			{role: server, part: "unread", from: func(r *lab.TalkResult) int64 { return r.Server.Late }, loose: 0.9, to: exchanges},
			{role: server, part: "idle", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }, loose: 0.9},
		}},
		{Talk: lab.Talk{Name: "slow-reader", Turns: 2, Answer: 2 << 20, RecvBuf: 64 << 10, Slow: 5 * ms}, want: []want{
			{role: server, part: "window", from: func(r *lab.TalkResult) int64 { return r.Server.Window }, loose: 0.9, open: true},
			{role: server, part: onWire, from: func(r *lab.TalkResult) int64 { return r.Client.Slow }, loose: 0.5, open: true},
		}},
		// The window is closed for a while. Then come pieces that are closer together
		// than jiffies.
		{Talk: lab.Talk{Name: "window-before", Turns: 1, Answer: 250_000, Chunks: 500, Pause: 3 * ms, RecvBuf: 16 << 10, Wait: 200 * ms}, path: far, want: []want{
			{role: server, part: "window", from: func(r *lab.TalkResult) int64 { return r.Server.Window }, loose: 0.9, open: true},
		}},
		// A probe is the last look before the window is closed for longer than 32 bits count
		// nanoseconds.
		{Talk: lab.Talk{Name: "window-long", Turns: 1, Answer: 48_000, Chunks: 16, Pause: 300 * ms, RecvBuf: 4 << 10, Wait: 7000 * ms}, loss: &lab.Loss{From: 1, Data: 1, Count: 1}, want: []want{
			{role: server, part: "window", from: func(r *lab.TalkResult) int64 { return r.Server.Window }, loose: 0.97, open: true},
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
			// While a piece is under way, which the kernel counts in jiffies,
			// a pause of the application cannot be seen. The next request
			// comes at once: see above.
			{role: server, part: "app", exact: true, from: func(r *lab.TalkResult) int64 { return r.Server.Pause - r.Server.Busy }, to: exchanges, ticks: 5},
			{role: server, part: "app+unread", from: func(r *lab.TalkResult) int64 { return r.Server.Pause - r.Server.Busy }, to: exchanges, ticks: 5},
			{role: server, part: "app+unread+" + onWire, from: pause, to: exchanges},
			{role: client, part: "receiving+unread", exact: true, from: pause, to: exchanges, ticks: 5},
			// A late reader sees only when the last piece came.
			{role: client, part: "peer+receiving+unread", from: pause, to: exchanges, ticks: 5},
		}},
		// The ACK of the first piece is lost, so TCP probes in the middle of the answer.
		{Talk: lab.Talk{Name: "chunks-probe", Turns: 2, Chunks: 3, Pause: 300 * ms}, loss: &lab.Loss{To: 1, Flags: lab.ACK, Empty: true, Skip: 1, Count: 1}, want: []want{
			{role: server, part: "app+unread", when: again(1), from: pause, to: exchanges, ticks: 5},
			{role: server, part: "app+unread+" + onWire, from: pause, to: exchanges},
		}, also: resent("retrans_tlp", 1)},
		{Talk: lab.Talk{Name: "nagle", Turns: 31, Nagle: true}, want: []want{
			{role: client, part: onWire, when: prompt, from: held, loose: 0.8, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "half-close", Turns: 1, Think: 60 * ms, Half: true}, want: []want{
			{role: server, part: "app", from: think, to: exchanges},
			{role: client, part: "peer", exact: true, from: think, to: exchanges, ticks: 1},
			{role: client, part: "peer+unread", from: think, to: exchanges, ticks: 1},
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
		// A handshake is a turn, or two. The server answers the
		// client's close_notify.
		{Talk: lab.Talk{Name: "tls-1.3", TLS: tls.VersionTLS13, Turns: 7, Think: 50 * ms, Gap: 10 * ms}, turns: 7 + 1, more: 1, want: crypt},
		{Talk: lab.Talk{Name: "tls-1.2", TLS: tls.VersionTLS12, Turns: 7, Think: 50 * ms, Gap: 10 * ms}, turns: 7 + 2, more: 1, want: crypt},
		{Talk: lab.Talk{Name: "rights", Hand: "rights", Turns: 7, Think: 30 * ms, Gap: 10 * ms}, want: handed, also: takes},
		{Talk: lab.Talk{Name: "fork", Hand: "fork", Turns: 7, Think: 30 * ms, Gap: 10 * ms}, want: handed, also: takes},
		mptcp(exact),
		{Talk: lab.Talk{Name: "older", Early: true, Turns: 5, Think: 30 * ms, Gap: 50 * ms}, turns: 4, want: []want{
			{role: server, part: "app", from: func(*lab.TalkResult) int64 { return int64(4 * 30 * ms) }, to: exchanges},
			{role: client, part: "peer+unread", from: func(*lab.TalkResult) int64 { return int64(4 * 30 * ms) }, to: exchanges, ticks: 1},
		}, also: func(x *trial.Trial, r *row.Row, _ *lab.TalkResult, _ bool) { x.Want(r, "older", 1) }},
		{Talk: lab.Talk{Name: "send-buffer", Turns: 1, Answer: 5_000_000, SendBuf: 64 << 10}, path: far, want: full},
		{Talk: lab.Talk{Name: "send-buffer-calls", Turns: 1, Answer: 5_000_000, Chunks: 16, SendBuf: 64 << 10}, path: far, want: full},
		{Talk: lab.Talk{Name: "send-buffer-poll", Turns: 1, Answer: 5_000_000, SendBuf: 64 << 10, Via: "poll"}, path: far, want: full},
		{Talk: lab.Talk{Name: "slow-start", Turns: 1, Answer: 1_000_000}, path: far, want: []want{
			{role: server, part: "buffer", exact: true, when: calm, from: none, to: func(r *lab.TalkResult) int64 { return r.Server.Buffer + r.Client.RTT }},
		}},
		{Talk: lab.Talk{Name: "send-buffer-late", Turns: 1, Answer: 500_000, SendBuf: 64 << 10, Via: "poll", Pause: 300 * ms}, path: far, want: []want{
			{role: server, part: "app", exact: true, when: calm, from: func(r *lab.TalkResult) int64 { return r.Server.Pause - r.Server.Busy }, to: pause},
		}},
		{Talk: lab.Talk{Name: "narrow-down", Turns: 2, Answer: 250_000, Gap: 50 * ms}, path: narrow, want: []want{
			{role: server, part: onWire, from: line(250_000), loose: 0.8, open: true},
			{role: server, part: "network", when: calm, from: func(r *lab.TalkResult) int64 { return line(200_000)(r) - slowed(&r.Server) }, open: true},
		}},
		{Talk: lab.Talk{Name: "narrow-up", Turns: 2, Ask: 250_000, Gap: 50 * ms}, path: narrow, want: []want{
			{role: client, part: onWire, from: line(250_000), loose: 0.8, to: exchanges},
			{role: client, part: "network", when: calm, from: func(r *lab.TalkResult) int64 { return line(200_000)(r) - slowed(&r.Client) }, to: exchanges},
		}},
		{Talk: lab.Talk{Name: "stall", Turns: 3, Ask: 60_000, Gap: 20 * ms}, path: stalling, quick: 280 * ms, want: []want{
			{role: client, part: onWire, from: func(*lab.TalkResult) int64 { return int64(stalling.Stall) }, loose: 0.8, to: exchanges},
			{role: client, part: "loss", when: again(1), from: none, to: none},
		}},
		{Talk: lab.Talk{Name: "pipelined", Streams: 4, InOrder: true, Turns: 13, Think: 5 * ms}, path: far, mixed: []role{client, server}},
		// If the path takes no time, the client sees turns.
		{Talk: lab.Talk{Name: "pipelined-near", Streams: 4, InOrder: true, Turns: 13, Think: 5 * ms}, mixed: []role{server}},
		{Talk: lab.Talk{Name: "streams", Streams: 3, Turns: 13, Think: 15 * ms}, path: far, mixed: []role{client, server}},
		{Talk: lab.Talk{Name: "duplex", Duplex: true, Turns: 61, Gap: 5 * ms, Ask: 500}, path: far, mixed: []role{client, server}},
		{Talk: lab.Talk{Name: "loss-fast", Turns: 4, Answer: 60_000, Gap: 20 * ms}, path: far, loss: &lab.Loss{From: 1, Data: 1000, Skip: 70, Count: 1}, quick: 260 * ms, want: []want{
			{role: server, part: "loss", when: again(1), from: func(*lab.TalkResult) int64 { return int64(2 * far.Delay) }, loose: 0.8, open: true},
		}, also: resent("retrans_fast", 1)},
		{Talk: lab.Talk{Name: "loss-tlp", Turns: 5, Gap: 20 * ms}, path: far, loss: &lab.Loss{From: 1, Data: 500, Skip: 2, Count: 1}, quick: 300 * ms, want: []want{
			{role: server, part: "loss", when: again(1), from: timeouts(1), open: true},
		}, also: resent("retrans_tlp", 1)},
		{Talk: lab.Talk{Name: "loss-rto", Turns: 5, Gap: 20 * ms}, path: far, loss: &lab.Loss{From: 1, Data: 500, Skip: 2, Count: 2}, quick: 300 * ms, want: []want{
			{role: server, part: "loss", when: again(2), from: timeouts(2), open: true},
		}, also: resent("retrans_rto", 2)},
		// The path takes 400 ms before the last segment, which is lost.
		{Talk: lab.Talk{Name: "loss-late", Turns: 1, Answer: 100_000}, path: narrow, loss: &lab.Loss{From: 1, Data: 1, Most: 1000, Count: 1}, quick: 300 * ms, want: []want{
			{role: server, part: "loss", when: again(1), from: none, to: func(r *lab.TalkResult) int64 { return r.Client.Exchanges() - line(80_000)(r) }},
		}},
		{Talk: lab.Talk{Name: "loss-spurious", Turns: 3, Gap: 700 * ms}, loss: &lab.Loss{To: 1, Flags: lab.ACK, Empty: true, Skip: 1, Count: 1}, want: []want{
			{role: server, part: "loss", from: none, to: none},
			{role: server, part: "idle+unread", from: func(r *lab.TalkResult) int64 { return r.Client.Gap }, ticks: 1},
		}, also: resent("retrans_tlp", 1)},
		{Talk: lab.Talk{Name: "loss-syn", Turns: 2}, loss: &lab.Loss{To: 1, Flags: lab.SYN, Count: 1}, want: []want{
			{role: client, part: "connect", from: func(*lab.TalkResult) int64 { return int64(950 * ms) }, to: func(r *lab.TalkResult) int64 { return r.Client.Connect }},
		}, also: func(x *trial.Trial, r *row.Row, said *lab.TalkResult, client bool) {
			// The figure includes requests, which a busy machine
			// may answer late.
			if client && r.Get("retrans_syn").N == 0 {
				x.Fail(&trial.Missing{N: 1, Text: "retrans_syn is 0 in " + trial.Dump(r)})
			}
			sum := 0
			for _, id := range []string{"retrans_syn", "retrans_rto", "retrans_tlp", "retrans_fast"} {
				sum += int(r.Get(id).N)
			}
			if client && sum > said.Client.Retrans {
				x.Errorf("%d segments were sent again, want %d at most, in %s", sum, said.Client.Retrans, trial.Dump(r))
			}
		}},
	}
}

// closed runs all talks. Timers retransmit some segments.
func closed(flags ...string) func(*trial.Trial) error {
	run := scenarios(flags...)
	return func(x *trial.Trial) error { return x.Timed(func() error { return run(x) }) }
}

// scenarios runs all talks at once. Every row must add up, and every part must be
// within its bounds.
func scenarios(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		w := x.World
		for _, h := range w.Hosts() {
			if err := w.Sysctl(h, "net.ipv4.tcp_congestion_control", "reno"); err != nil {
				return err
			}
		}
		all := slices.DeleteFunc(table(len(flags) > 0), func(s scenario) bool { return s.needs != nil && errors.Is(s.needs(), lab.ErrNotSupported) })
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
		exact, from := len(flags) > 0, time.Now()
		rows, said, err := trial.RowsOf(x, 2*len(all), t.Run, append(flags, "--closed")...)
		if err != nil {
			return err
		}
		for i := range all {
			all[i].check(x, rows, t.Talks[i].Addr, &said[i], exact, time.Since(from))
		}
		x.Fail(trial.RowCount(len(rows), 2*len(all)))
		x.NoneLost()
		return nil
	}
}

// check compares the two rows of a talk with the server at addr.
func (s *scenario) check(x *trial.Trial, rows []*row.Row, addr string, said *lab.TalkResult, exact bool, lasted time.Duration) {
	for _, side := range []role{client, server} {
		r, kernel := findAt(rows, "l", addr), &said.Server
		if side == client {
			r, kernel = findAt(rows, "r", addr), &said.Client
		}
		if r == nil {
			x.Fail(&trial.Missing{Text: fmt.Sprintf("%s: no row of the %s", s.Name, side)}) // the rows are counted
			continue
		}
		addsUp(x, r)
		x.Whole(func() { s.checkRow(x, r, side, kernel, said, exact, lasted) })
	}
}

// checkRow compares the row of one side.
func (s *scenario) checkRow(x *trial.Trial, r *row.Row, side role, kernel *lab.TalkSide, said *lab.TalkResult, exact bool, lasted time.Duration) {
	bad := func(format string, args ...any) {
		x.Errorf("%s, %s: %s; said %+v; in %s", s.Name, side, fmt.Sprintf(format, args...), *said, trial.Dump(r))
	}
	if got := trial.Value(r.Get("role")); got != side.String() {
		bad("role is %s", got)
	}
	s.checkTurns(r, side, kernel, bad)
	if wall := int64(r.Get("wall_ms").N); side == client && !s.Half && s.turns == 0 && s.mixed == nil && wall < said.Client.Exchanges() {
		bad("lasted %v", time.Duration(wall))
	}
	if got, most := int64(r.Get("window_ms").N), kernel.Window+2*int64(jiffy()); got > most {
		bad("window is %v, and the kernel says %v at most", time.Duration(got), time.Duration(most))
	}
	for _, w := range s.want {
		if w.role == side && (w.when == nil || (s.wasQuick(&said.Client) && w.when(kernel))) {
			w.check(r, s.Turns, said, kernel, exact, lasted, bad)
		}
	}
	if s.also != nil && s.wasQuick(&said.Client) {
		s.also(x, r, said, side == client)
	}
}

// wasQuick reports whether TCP's timers expired only in the longest turn.
func (s *scenario) wasQuick(c *lab.TalkSide) bool {
	return s.quick == 0 || c.Whole-slices.Max(c.Turns) < int64(s.quick)
}

// checkTurns compares the number of turns.
func (s *scenario) checkTurns(r *row.Row, side role, kernel *lab.TalkSide, bad func(string, ...any)) {
	switch n := r.Get("turns"); {
	case s.silent, s.mixed != nil && !slices.Contains(s.mixed, side):
	case s.mixed != nil && kernel.Crossed*3 < s.Messages():
		// The machine is so busy that it runs the talks one after the
		// other.
	case s.mixed != nil:
		if n.Kind != row.Null || r.Get("overlaps").N == 0 {
			bad("%s turns where there are none", trial.Value(n))
		}
	default:
		want := cmp.Or(s.turns, s.Turns)
		if side == server {
			want += s.more
		}
		if got := trial.Value(n); got != fmt.Sprint(want) {
			bad("%s turns, want %d", got, want)
		}
	}
}

// check compares a part with its bounds.
func (w *want) check(r *row.Row, turns int, said *lab.TalkResult, kernel *lab.TalkSide, exact bool, lasted time.Duration, bad func(string, ...any)) {
	if w.exact && (!exact || lab.Emulated()) {
		return // an emulated machine is too slow to fill a buffer
	}
	lo, hi := w.from(said), said.Client.Whole
	if w.loose > 0 {
		lo = int64(float64(lo) * w.loose)
	}
	if w.to != nil {
		hi = w.to(said)
	} else if w.open {
		hi = int64(lasted)
	}
	slack := int64(w.ticks*turns) * (int64(jiffy()+2*ms) + kernel.RTT)
	lo, hi = lo-slack, hi+slack+hi/20
	var got int64
	for p := range strings.SplitSeq(w.part, "+") {
		got += int64(r.Get(p + "_ms").N)
	}
	if got < lo || got > hi {
		bad("%s is %v, want %v to %v", w.part, time.Duration(got), time.Duration(lo), time.Duration(hi))
	}
}

// findAt is the row with this local ("l") or remote ("r") address and port.
func findAt(rows []*row.Row, which, addr string) *row.Row {
	want := netip.MustParseAddrPort(addr)
	for _, r := range rows {
		if r.Get(which+"addr").IP() == want.Addr() && r.Get(which+"port").N == uint64(want.Port()) {
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
