// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestConnectOutcomes(t *testing.T) {
	for _, hosts := range [][]string{{"one"}, {"client", "server"}} {
		t.Run(hosts[len(hosts)-1], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, hosts...)
			targets, attempts, err := Outcomes(w, "targets")
			if err != nil {
				t.Fatal(err)
			}
			c, err := StartConnects(w, "", "connects", attempts...)
			if err != nil {
				t.Fatal(err)
			}
			before := counters(t, w, "")
			out, err := c.Run()
			if err != nil {
				t.Error(err)
			}
			moved := counters(t, w, "").Since(before)
			var tried, refused, silent int64
			for _, o := range out {
				a := o.Attempt
				tcp := a.Network == TCP4 || a.Network == TCP6
				began := tcp && (a.Want == 0 || a.Want == unix.ECONNREFUSED || a.Want == unix.ETIMEDOUT)
				if began {
					tried++
					check(t, a.Name+": has a port", o.Port > 0, true)
					if a.Mode == Nonblocking {
						check(t, a.Name+": the call", o.Call, unix.EINPROGRESS)
					}
				}
				switch a.Want {
				case unix.ECONNREFUSED:
					if tcp {
						refused++
					}
				case unix.ETIMEDOUT:
					silent++
					if d := time.Duration(o.NS); d < 500*time.Millisecond || d > 30*time.Second {
						t.Errorf("%s %s after %v", a.Name, a.Mode, d)
					}
					if a.Mode == Nonblocking && o.CallNS > o.NS/2 {
						t.Errorf("a non-blocking connect took %v of %v", o.CallNS, o.NS)
					}
				}
			}
			check(t, "TcpActiveOpens", moved["TcpActiveOpens"], tried)
			check(t, "TcpAttemptFails", moved["TcpAttemptFails"], refused+silent)
			check(t, "SYNs sent again", moved["TcpExtTCPSynRetrans"], silent)
			check(t, "attempts", len(out), len(attempts))
			if err := targets.End(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A listener with backlog 2 takes three connections; the SYNs after that are
// dropped, each one counted.
func TestConnectsOverflowABacklog(t *testing.T) {
	w := newWorld(t)
	target, err := StartTargets(w, "", "full", Target{Network: TCP4, Backlog: 2})
	if err != nil {
		t.Fatal(err)
	}
	const n = 11
	attempts := make([]Attempt, n)
	for i := range attempts {
		attempts[i] = Attempt{Network: TCP4, Addr: target.Addrs[0], Mode: Unfollowed, Want: unix.EINPROGRESS}
	}
	c, err := StartConnects(w, "", "syns", attempts...)
	if err != nil {
		t.Fatal(err)
	}
	before := counters(t, w, "")
	if _, err := c.Run(); err != nil {
		t.Fatal(err)
	}
	moved := counters(t, w, "").Since(before)
	check(t, "TcpActiveOpens", moved["TcpActiveOpens"], n)
	check(t, "TcpPassiveOpens", moved["TcpPassiveOpens"], 3)
	check(t, "ListenOverflows", moved["TcpExtListenOverflows"], n-3)
}
