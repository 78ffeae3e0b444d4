// SPDX-License-Identifier: Apache-2.0

package soprotocol

import (
	"fmt"
	"strings"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// names are the protocols of the mix, by family and number.
var names = map[[2]int][2]string{
	{0, 0}: {"-", "-"}, {1, 0}: {"-", "UNIX"}, {2, 6}: {"IPPROTO_TCP", "TCP"}, {10, 6}: {"IPPROTO_TCP", "TCPv6"},
	{2, 17}: {"IPPROTO_UDP", "UDP"}, {10, 17}: {"IPPROTO_UDP", "UDPv6"}, {2, 1}: {"IPPROTO_ICMP", "RAW"},
	{10, 58}: {"IPPROTO_ICMPV6", "RAWv6"}, {2, 262}: {"IPPROTO_MPTCP", "MPTCP"},
}

// mix: every connect and accept is counted with its protocol.
func mix(x *trial.Trial) error {
	return x.Mix(func(c lab.MixCount) string {
		if c.Op != "connect" && c.Op != "accept" {
			return ""
		}
		n := names[[2]int{c.Family, c.Proto}]
		return fmt.Sprint(c.Op, " ", trial.MixComm, " ", c.Proto, " ", n[0], " ", n[1])
	}, func(r *row.Row) string {
		prot, _ := strings.CutSuffix(trial.Value(r.Get("prot")), "-STREAM") // UNIX-STREAM since 5.15
		return trial.Values(r, "op", "comm", "proto", "proto_name") + " " + prot
	})
}

// Demo is the traffic of seine demo.
var Demo = trial.MixDemo

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "mix", Run: mix},
}
