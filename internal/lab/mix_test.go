// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestMix(t *testing.T) {
	w := newWorld(t)
	m, err := StartMix(w, "", "mix")
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Run()
	if err != nil {
		t.Fatal(err)
	}
	find := func(op string, family, proto int) (c MixCount) {
		for _, o := range out {
			if o.Op == op && o.Family == family && o.Proto == proto {
				c = o
			}
		}
		return c
	}
	check(t, "accepts of UNIX", find("accept", unix.AF_UNIX, 0).Count, 7)
	check(t, "accepts of nothing", find("accept", 0, 0), MixCount{Op: "accept", Count: 1, Errors: 1})
	check(t, "pairs", find("socketpair", unix.AF_UNIX, 0).Count, 13)
	tcp := find("connect", unix.AF_INET, unix.IPPROTO_TCP)
	failed := 3
	if UringSupported() == nil {
		failed++
	}
	check(t, "failed connects", tcp.Errors, failed)
	udp := find("send", unix.AF_INET, unix.IPPROTO_UDP)
	check(t, "sends of UDP", udp, MixCount{Op: "send", Family: unix.AF_INET, Proto: unix.IPPROTO_UDP, Count: 11, Bytes: 165})
}
