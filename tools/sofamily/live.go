// SPDX-License-Identifier: Apache-2.0

package sofamily

import (
	"fmt"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
)

var live = []tool.Case{{Name: "mix", Run: mix}}

// names are the families of the mix.
var names = map[int]string{0: "AF_UNSPEC", 1: "AF_UNIX", 2: "AF_INET", 10: "AF_INET6"}

// mix: every connect and accept is counted with its family.
func mix(x *tool.Trial) error {
	return x.Mix(func(c lab.MixCount) string {
		if c.Op != "connect" && c.Op != "accept" {
			return ""
		}
		return fmt.Sprint(c.Op, " ", tool.MixComm, " ", c.Family, " ", names[c.Family])
	}, func(r *row.Row) string { return tool.Values(r, "op", "comm", "family", "family_name") })
}
