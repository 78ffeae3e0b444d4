// SPDX-License-Identifier: Apache-2.0

package netqtop

import (
	"errors"
	"fmt"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live returns the live cases that are not in the self-test. Only tests call it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "link", Hosts: lab.TwoHosts, Run: trial.Undisturbed(link)},
		{Name: "sizes", Run: trial.Undisturbed(sizes)},
		{Name: "uneven", Run: trial.Undisturbed(uneven)},
	}
}

// link: both ends of a link with one queue, and a device that a filter leaves out.
func link(x *trial.Trial) error {
	for _, h := range lab.TwoHosts {
		if err := x.World.NoIPv6(h, "eth0"); err != nil {
			return err
		}
	}
	for _, flags := range [][]string{{"--by=dev,netns,dir,queue"}, {"--by=dev,netns,dir,queue", "--dev=lo"}} {
		var before, after map[string]sum
		rows, err := x.Rows(func() (err error) {
			if before, err = kernel(x.World); err != nil {
				return err
			}
			to, err := lab.StartTargets(x.World, "server", "sink", lab.Target{Network: lab.UDP4})
			if err != nil {
				return err
			}
			m, err := lab.StartMarks(x.World, "client", "sender", lab.Marks{Network: lab.UDP4, None: 31, Size: 700, Addr: to.Addrs[0]})
			if err != nil {
				return err
			}
			if err := errors.Join(m.Run(), to.End(), x.World.Quiet()); err != nil {
				return err
			}
			after, err = kernel(x.World)
			return err
		}, flags...)
		if err != nil {
			return err
		}
		for _, h := range lab.TwoHosts {
			want := map[place]sum{}
			if len(flags) == 1 {
				for _, dir := range []string{"rx", "tx"} {
					a, b := before[h+dir], after[h+dir]
					n, queue := sum{b.packets - a.packets, b.bytes - a.bytes}, "0"
					if dir == "rx" { // veth does not record its queue, and its counters include the Ethernet header
						n.bytes -= ethernet * n.packets
						queue = "-"
					}
					want[place{dir, queue}] = n
				}
			}
			same(x, counted(x, rows, "eth0", fmt.Sprint(x.World.Netns(h))), want)
		}
	}
	return nil
}

// uneven: on a device of three queues, a queue is named if its packets are halfway or more between a third and all.
// With too few packets, none is named.
func uneven(x *trial.Trial) error {
	for _, c := range []struct {
		frames [3]int // frames that each queue receives
		share  [3]string
		named  int // the queue that is named; -1: none
	}{
		{[3]int{0, 300, 20}, [3]string{"-", "94", "6"}, 1},
		{[3]int{200, 50, 50}, [3]string{"67", "17", "17"}, 0},
		{[3]int{199, 51, 50}, [3]string{"66", "17", "17"}, -1},
		{[3]int{99, 0, 0}, [3]string{"100", "-", "-"}, -1},
		{[3]int{0, 0, 100}, [3]string{"-", "-", "100"}, 2},
	} {
		t, err := tapped(x)
		if err != nil {
			return err
		}
		rows, err := x.Rows(func() error {
			for i, n := range c.frames {
				if err := t.fds[i].Receive(n, 100); err != nil {
					return err
				}
			}
			return nil
		}, "--interval=1m", "--dev="+dev)
		t.close()
		if err != nil {
			return err
		}
		got := 0
		for _, r := range rows {
			if r.Get("dir").S != "rx" {
				continue
			}
			got++
			q := int(r.Get("queue").N)
			if q >= len(c.frames) {
				return fmt.Errorf("a row of queue %d", q)
			}
			x.Want(r, "packets", c.frames[q])
			x.Want(r, "queues", len(c.frames))
			x.Want(r, "share_pct", c.share[q])
			said := "-"
			if q == c.named {
				said = c.share[q] + "% in 1 of 3 queues"
			}
			x.Want(r, "imbalance", said)
		}
		want := 0
		for _, n := range c.frames {
			if n > 0 {
				want++
			}
		}
		x.Fail(trial.Fewer(got, want, "%v: %d rows, want %d", c.frames, got, want))
	}
	x.NoneLost()
	return nil
}

// kernel returns the kernel's counters of both ends of the link.
func kernel(w *lab.World) (map[string]sum, error) {
	out := map[string]sum{}
	for _, h := range lab.TwoHosts {
		s, err := w.LinkStats(h, "eth0")
		if err != nil {
			return nil, err
		}
		out[h+"rx"], out[h+"tx"] = sum{s.RxPackets, s.RxBytes}, sum{s.TxPackets, s.TxBytes}
	}
	return out, nil
}

// sizes: --dist, with another --by.
func sizes(x *trial.Trial) error {
	t, err := tapped(x)
	if err != nil {
		return err
	}
	defer t.close()
	rows, err := x.Rows(func() error {
		return errors.Join(t.fds[1].Receive(17, 64), t.fds[2].Receive(3, 1514))
	}, "--dist", "--by=dir", "--dev="+dev)
	if err != nil {
		return err
	}
	var got, want kern.Hist
	for range 17 {
		want.Add(64 - ethernet)
	}
	for range 3 {
		want.Add(1514 - ethernet)
	}
	for _, r := range rows {
		x.Want(r, "dir", "rx")
		if c := r.Get("queue"); c.Kind != row.Null {
			x.Errorf("queue %s without --by", trial.Value(c))
		}
		got.Merge(r.Get("bytes").Ref.(*kern.Hist))
	}
	if got.Slots != want.Slots || got.Sum != want.Sum {
		x.Errorf("%v, want %v", got.Buckets(), want.Buckets())
	}
	x.NoneLost()
	return nil
}
