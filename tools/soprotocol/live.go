// SPDX-License-Identifier: Apache-2.0

package soprotocol

import (
	"fmt"
	"strings"

	"seine/internal/lab"
	"seine/internal/tool"
)

var demo = tool.Workload{
	Run: func(w *lab.World) error {
		m, err := lab.StartMix(w, "", "mixer")
		if err != nil {
			return err
		}
		_, err = m.Run()
		return err
	},
}

var live = []tool.Case{{Name: "mix", Run: mix}}

// names are the protocols of the mix, by family and number.
var names = map[[2]int][2]string{
	{0, 0}: {"-", "-"}, {1, 0}: {"-", "UNIX"}, {2, 6}: {"IPPROTO_TCP", "TCP"}, {10, 6}: {"IPPROTO_TCP", "TCPv6"},
	{2, 17}: {"IPPROTO_UDP", "UDP"}, {10, 17}: {"IPPROTO_UDP", "UDPv6"}, {2, 1}: {"IPPROTO_ICMP", "RAW"},
	{2, 262}: {"IPPROTO_MPTCP", "MPTCP"},
}

// mix: calls of many kinds; every one is counted with its protocol, and no other.
func mix(x *tool.Trial) error {
	m, err := lab.StartMix(x.World, "", "mixer")
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	made, err := m.Run()
	if err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	want := map[string][2]int{}
	for _, c := range made {
		if c.Op == "connect" || c.Op == "accept" {
			n := names[[2]int{c.Family, c.Proto}]
			k := fmt.Sprint(c.Op, " mixer ", c.Proto, " ", n[0], " ", n[1])
			want[k] = [2]int{want[k][0] + c.Count, want[k][1] + c.Errors}
		}
	}
	for _, r := range rows {
		prot, _ := strings.CutSuffix(tool.Value(r.Get("prot")), "-STREAM") // UNIX-STREAM since 5.15
		k := fmt.Sprint(tool.Value(r.Get("op")), " ", tool.Value(r.Get("comm")), " ", r.Get("proto").N, " ", tool.Value(r.Get("proto_name")), " ", prot)
		x.Want(r, "count", want[k][0])
		x.Want(r, "errors", want[k][1])
		delete(want, k)
	}
	if len(want) > 0 {
		x.Errorf("not counted: %v", want)
	}
	return nil
}
