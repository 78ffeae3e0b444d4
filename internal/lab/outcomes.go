// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Outcomes starts the targets for connects with every result in the last host
// of a world, and returns the attempts to make from the first one: success,
// refused, no route, unreachable, forbidden and timed out, for IPv4 and IPv6,
// blocking and not; UDP; UNIX sockets that listen, refuse, and are not there.
// The two that time out take about a second each and come last.
func Outcomes(w *World, comm string) (*Targets, []Attempt, error) {
	last := w.hosts[len(w.hosts)-1].name
	var targets []Target
	type family struct {
		tcp, udp                        Network
		noRoute, unreachable, forbidden netip.Addr
	}
	families := []family{{TCP4, UDP4, NoRoute4, Unreachable4, Prohibited4}}
	if w.Addr6(last).IsValid() {
		families = append(families, family{TCP6, UDP6, NoRoute6, Unreachable6, Prohibited6})
	}
	for _, f := range families {
		targets = append(targets,
			Target{Network: f.tcp}, Target{Network: f.tcp, Kind: BoundOnly}, Target{Network: f.tcp, Kind: Silent},
			Target{Network: f.udp})
	}
	targets = append(targets, Target{Network: Unix}, Target{Network: Unix, Kind: BoundOnly})
	t, err := StartTargets(w, last, comm, targets...)
	if err != nil {
		return nil, nil, err
	}
	var list, slow []Attempt
	for i, f := range families {
		addr := t.Addrs[4*i:]
		for _, mode := range []Mode{Blocking, Nonblocking} {
			list = append(list,
				Attempt{Name: "success", Network: f.tcp, Addr: addr[0], Mode: mode},
				Attempt{Name: "refused", Network: f.tcp, Addr: addr[1], Mode: mode, Want: unix.ECONNREFUSED},
				Attempt{Name: "no route", Network: f.tcp, Addr: f.tcp.At(f.noRoute, 9), Mode: mode, Want: unix.ENETUNREACH},
				Attempt{Name: "unreachable", Network: f.tcp, Addr: f.tcp.At(f.unreachable, 9), Mode: mode, Want: unix.EHOSTUNREACH},
				Attempt{Name: "forbidden", Network: f.tcp, Addr: f.tcp.At(f.forbidden, 9), Mode: mode, Want: unix.EACCES},
			)
		}
		list = append(list, Attempt{Name: "udp", Network: f.udp, Addr: addr[3]})
		if f.tcp == TCP4 {
			slow = append(slow,
				Attempt{Name: "timed out", Network: f.tcp, Addr: addr[2], Want: unix.ETIMEDOUT, Hasty: true},
				Attempt{Name: "timed out", Network: f.tcp, Addr: addr[2], Want: unix.ETIMEDOUT, Hasty: true, Mode: Nonblocking})
		}
	}
	unixes := t.Addrs[4*len(families):]
	list = append(list,
		Attempt{Name: "unix", Network: Unix, Addr: unixes[0]},
		Attempt{Name: "unix refused", Network: Unix, Addr: unixes[1], Want: unix.ECONNREFUSED},
		Attempt{Name: "unix missing", Network: Unix, Addr: unixes[0] + ".not", Want: unix.ENOENT},
	)
	return t, append(list, slow...), nil
}

// RunOutcomes makes connects with every result, one after the other.
func RunOutcomes(w *World, clientComm, serverComm string) error {
	_, attempts, err := Outcomes(w, serverComm)
	if err != nil {
		return err
	}
	c, err := StartConnects(w, "", clientComm, attempts...)
	if err != nil {
		return err
	}
	_, err = c.Run()
	return err
}
