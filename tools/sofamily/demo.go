// SPDX-License-Identifier: Apache-2.0

package sofamily

import (
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// names are the families of the mix.
var names = map[int]string{0: "AF_UNSPEC", 1: "AF_UNIX", 2: "AF_INET", 10: "AF_INET6"}

// mix: every connect and accept is counted with its family.
func mix(x *trial.Trial) error {
	return x.Mix(func(c lab.MixCount) string {
		if c.Op != "connect" && c.Op != "accept" {
			return ""
		}
		return fmt.Sprint(c.Op, " ", trial.MixComm, " ", c.Family, " ", names[c.Family])
	}, func(r *row.Row) string { return trial.Values(r, "op", "comm", "family", "family_name") })
}

// Demo is the traffic of seine demo.
var Demo = trial.MixDemo

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "mix", Run: mix},
}
