// SPDX-License-Identifier: Apache-2.0

package tcprtt

import (
	"fmt"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "minimum", Run: trial.Undisturbed(exchange(lab.TCP4, true))},
		{Name: "segments", Hosts: lab.TwoHosts, Run: trial.Undisturbed(segments)},
	}
}

// segments: a histogram of each peer has as many times as it received segments.
func segments(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 7, Send: 20001, Recv: 50003, Close: lab.ByReset})
	if err != nil {
		return err
	}
	want := map[string]int64{}
	rows, err := x.Rows(func() error {
		before := map[string]lab.Counters{}
		for _, h := range lab.TwoHosts {
			if before[h], err = x.World.Counters(h); err != nil {
				return err
			}
		}
		if _, err := t.Run(); err != nil {
			return err
		}
		if err := x.World.Quiet(); err != nil {
			return err
		}
		for h, handshake := range map[string]int64{"client": 1, "server": 2} {
			after, err := x.World.Counters(h)
			if err != nil {
				return err
			}
			c := after.Since(before[h])
			want[fmt.Sprint(x.World.Netns(h))] = c["TcpInSegs"] - c["TcpExtTCPBacklogCoalesce"] - 7*handshake
		}
		return nil
	}, "--by=netns,port,raddr")
	if err != nil {
		return err
	}
	if len(rows) != 2 {
		return fmt.Errorf("%d rows, want 2", len(rows))
	}
	for _, r := range rows {
		x.Want(r, "port", t.Port) // of the service, at both ends
		n := int64(r.Get("rtt_us").Ref.(*kern.Hist).Count)
		w := want[trial.Value(r.Get("netns"))]
		x.Fail(trial.Fewer(int(n), int(w), "%s: %d segments, want %d", trial.Dump(r), n, w))
	}
	x.NoneLost(tool.LossOwner)
	return nil
}
