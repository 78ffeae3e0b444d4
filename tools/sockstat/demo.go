// SPDX-License-Identifier: Apache-2.0

package sockstat

import (
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// mix: calls of many kinds. Each is counted, and no other call is.
func mix(x *trial.Trial) error {
	return x.Mix(func(c lab.MixCount) string { return c.Op },
		func(r *row.Row) string { return trial.Values(r, "op") }, "--by=op", "--interval=1h")
}

// byComm: the same by process and family.
func byComm(x *trial.Trial) error {
	return x.Mix(func(c lab.MixCount) string { return fmt.Sprint(trial.MixComm, " ", c.Op, " ", c.Family) },
		func(r *row.Row) string { return trial.Values(r, "comm", "op", "family") }, "--by=comm,op,family", "--interval=1h")
}

// Demo is the traffic of seine demo.
var Demo = trial.MixDemo

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "mix", Run: mix},
	{Name: "by-comm", Run: byComm},
}
