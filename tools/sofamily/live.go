// SPDX-License-Identifier: Apache-2.0

package sofamily

import (
	"fmt"

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

// names are the families of the mix.
var names = map[int]string{0: "AF_UNSPEC", 1: "AF_UNIX", 2: "AF_INET", 10: "AF_INET6"}

// mix: calls of many kinds; every one is counted with its family, and no other.
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
			k := fmt.Sprint(c.Op, " mixer ", c.Family, " ", names[c.Family])
			want[k] = [2]int{want[k][0] + c.Count, want[k][1] + c.Errors}
		}
	}
	for _, r := range rows {
		k := fmt.Sprint(tool.Value(r.Get("op")), " ", tool.Value(r.Get("comm")), " ", r.Get("family").N, " ", tool.Value(r.Get("family_name")))
		x.Want(r, "count", want[k][0])
		x.Want(r, "errors", want[k][1])
		delete(want, k)
	}
	if len(want) > 0 {
		x.Errorf("not counted: %v", want)
	}
	return nil
}
