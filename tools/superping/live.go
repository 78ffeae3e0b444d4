// SPDX-License-Identifier: Apache-2.0

package superping

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "raw4", Hosts: lab.TwoHosts, Run: echoes("server", lab.Raw4)},
		{Name: "raw6", Hosts: lab.TwoHosts, Run: echoes("server", lab.Raw6)},
		{Name: "loopback", Run: echoes("host", lab.Ping4)},
		{Name: "router", Hosts: []string{"client", "router", "server"}, Run: routed},
		{Name: "neighbour", Hosts: lab.TwoHosts, Run: unresolved},
		{Name: "two-at-once", Hosts: []string{"client", "near", "far"}, Run: twoAtOnce},
		{Name: "comm", Hosts: lab.TwoHosts, Run: ofOne},
		{Name: "lost", Hosts: lab.TwoHosts, Run: losses},
		{Name: "pending", Hosts: lab.TwoHosts, Run: pending},
		{Name: "beside-ping", Hosts: lab.TwoHosts, Run: besidePing},
	}
}

// routed: a router's forwarded echo is one row, not three.
func routed(x *trial.Trial) error {
	if err := x.World.Via("client", "router", "server"); err != nil {
		return err
	}
	return seen(x, lab.Echo{Network: lab.Raw4, Addr: x.World.Addr4("server"), Count: 23, Ident: 4711})
}

// unresolved: the first request waits for ARP, and leaves in softirq.
func unresolved(x *trial.Trial) error {
	if err := x.World.Forget("client", "server"); err != nil {
		return err
	}
	return seen(x, lab.Echo{Network: lab.Raw4, Addr: x.World.Addr4("server"), Count: 3, Ident: 4711})
}

// ofOne: another process's echoes are left out.
func ofOne(x *trial.Trial) error {
	const n = 23
	if err := x.Attach("--comm=pinger"); err != nil {
		return err
	}
	for _, comm := range []string{"other", "pinger"} {
		p, err := lab.StartEcho(x.World, "client", comm, lab.Echo{Network: lab.Raw4, Addr: x.World.Addr4("server"), Count: n, Ident: 4711})
		if err != nil {
			return err
		}
		if _, err := p.Run(); err != nil {
			return err
		}
	}
	rows, err := x.Exactly(n)
	if err != nil {
		return err
	}
	for _, r := range rows {
		x.Want(r, "comm", "pinger")
	}
	return nil
}

// twoAtOnce: the same identifier and the same numbers, to different hosts.
func twoAtOnce(x *trial.Trial) error {
	var procs [2]*lab.Echoes
	for i, to := range []string{"near", "far"} {
		p, err := lab.StartEcho(x.World, "client", to, lab.Echo{Network: lab.Raw4, Addr: x.World.Addr4(to), Count: 97, Ident: 7})
		if err != nil {
			return err
		}
		procs[i] = p
	}
	if err := x.Attach(); err != nil {
		return err
	}
	results := make(chan error, 2)
	for _, p := range procs {
		go func() {
			r, err := p.Run()
			for i, ns := range r.NS {
				if ns < 0 {
					err = errors.Join(err, fmt.Errorf("%s: echo %d had no reply", p.Comm, i+1))
				}
			}
			results <- err
		}()
	}
	if err := errors.Join(<-results, <-results); err != nil {
		return err
	}
	x.Await(2 * 97)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	next := map[string]int{}
	for _, r := range rows {
		comm := r.Get("comm").S
		next[comm]++
		x.Want(r, "seq", next[comm])
		x.Want(r, "raddr", x.World.Addr4(comm))
	}
	if next["near"] != 97 || next["far"] != 97 {
		x.Errorf("%d and %d rows, want 97 of each", next["near"], next["far"])
	}
	return nil
}

// losses: a host that does not answer, by both protocols.
func losses(x *trial.Trial) error {
	for _, s := range []string{"net.ipv4.icmp_echo_ignore_all", "net.ipv6.icmp.echo_ignore_all"} {
		if err := x.World.Sysctl("server", s, "1"); err != nil {
			return err
		}
	}
	if err := x.Attach("--lost=100ms"); err != nil {
		return err
	}
	for _, n := range []lab.Network{lab.Raw4, lab.Ping6} {
		p, err := lab.StartEcho(x.World, "client", "unheard", lab.Echo{
			Network: n, Addr: x.World.Addr("server", n), Count: 7, Wait: time.Millisecond,
		})
		if err != nil {
			return err
		}
		if _, err := p.Run(); err != nil {
			return err
		}
	}
	x.Await(14)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	count := map[netip.Addr]int{}
	for _, r := range rows {
		count[r.Get("raddr").IP()]++
		x.Want(r, "rtt_us", "-")
		x.Want(r, "outcome", "lost")
		x.Want(r, "comm", "unheard")
	}
	if a, b := count[x.World.Addr4("server")], count[x.World.Addr6("server")]; a != 7 || b != 7 {
		x.Errorf("%d and %d lost, want 7 of each", a, b)
	}
	return nil
}

// pending: echoes that have no reply yet when the run ends.
func pending(x *trial.Trial) error {
	if err := x.World.Sysctl("server", "net.ipv4.icmp_echo_ignore_all", "1"); err != nil {
		return err
	}
	p, err := lab.StartEcho(x.World, "client", "unheard", lab.Echo{Network: lab.Raw4, Addr: x.World.Addr4("server"), Count: 7, Wait: time.Millisecond})
	if err != nil {
		return err
	}
	if err := x.Attach("--lost=1m"); err != nil {
		return err
	}
	before := int64(kern.MonoNow())
	if _, err := p.Run(); err != nil {
		return err
	}
	after := int64(kern.MonoNow())
	time.Sleep(100 * time.Millisecond)
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	if len(rows) != 7 {
		x.Errorf("%d rows, want 7 of echoes without a reply", len(rows))
	}
	seen := map[uint64]bool{}
	for _, r := range rows {
		x.WantPending(r, "rtt_us", before, after, at)
		x.Want(r, "pid", p.PID)
		x.Want(r, "comm", "unheard")
		x.Want(r, "raddr", x.World.Addr4("server"))
		seen[r.Get("seq").N] = true
	}
	if len(seen) != 7 {
		x.Errorf("%d numbers, want 7", len(seen))
	}
	return nil
}

// atMost is the longest time, in microseconds, that ping would print as text. ping prints
// milliseconds, with fewer digits for longer times, and rounds to the last digit.
func atMost(text string) (float64, error) {
	ms, err := strconv.ParseFloat(text, 64)
	_, decimals, _ := strings.Cut(text, ".")
	return (ms + 0.5*math.Pow10(-len(decimals))) * 1000, err
}

// besidePing: ping -U, which measures in user space, and ping, which takes the time of
// the reply from the kernel. The kernel takes that time just before ours, so ours is
// longer if the machine stands still in between.
func besidePing(x *trial.Trial) error {
	path, err := exec.LookPath("ping")
	if err != nil {
		return trial.Skip("no ping here")
	}
	if err := x.Attach(); err != nil {
		return err
	}
	const each = 11
	pingTime := regexp.MustCompile(`icmp_seq=(\d+) .*time=([\d.]+) ms`)
	theirs := map[netip.Addr][]map[uint64]float64{} // by the number, of ping -U and of ping
	for _, addr := range []netip.Addr{x.World.Addr4("server"), x.World.Addr6("server")} {
		for _, args := range [][]string{{"-U"}, nil} {
			args = append(args, "-n", "-c", fmt.Sprint(each), "-i", "0.005", addr.String())
			var out []byte
			if err := x.World.Do("client", func() (err error) { out, err = exec.Command(path, args...).CombinedOutput(); return }); err != nil {
				return fmt.Errorf("ping: %w: %s", err, out)
			}
			printed := map[uint64]float64{}
			for line := range bytes.Lines(out) {
				if m := pingTime.FindSubmatch(line); m != nil {
					seq, err := strconv.ParseUint(string(m[1]), 10, 16)
					most, e := atMost(string(m[2]))
					if err := errors.Join(err, e); err != nil {
						return err
					}
					printed[seq] = most
				}
			}
			theirs[addr] = append(theirs[addr], printed)
		}
	}
	x.Await(4 * each)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	ours := map[netip.Addr][]*row.Row{}
	for _, r := range rows {
		a := r.Get("raddr").IP()
		ours[a] = append(ours[a], r)
	}
	for addr, printed := range theirs {
		if n := len(printed[0]) + len(printed[1]); n != 2*each || len(ours[addr]) != 2*each {
			x.Errorf("%s: ping printed %d times, we %d, want %d", addr, n, len(ours[addr]), 2*each)
			continue
		}
		quicker := 0
		for i, r := range ours[addr] {
			x.Want(r, "comm", "ping")
			seq := r.Get("seq").N
			most, ok := printed[i/each][seq]
			if !ok {
				x.Errorf("%s: ping has not printed echo %d", addr, seq)
			}
			switch rtt := float64(r.Get("rtt_us").N) / 1000; {
			case i >= each && rtt <= most:
				quicker++
			case i < each && rtt > most:
				x.Errorf("%s: echo %d: ours is %.1f us, that of ping -U %.1f at most", addr, seq, rtt, most)
			}
		}
		if quicker == 0 {
			x.Errorf("%s: all of our times are longer than ping's", addr)
		}
	}
	return nil
}
