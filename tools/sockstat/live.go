// SPDX-License-Identifier: Apache-2.0

package sockstat

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

var live = []tool.Case{
	{Name: "mix", Run: mix},
	{Name: "by-comm", Run: byComm},
	{Name: "sessions", Hosts: []string{"client", "server"}, Run: sessions},
}

// mix: calls of many kinds; every one is counted, and no other.
func mix(x *tool.Trial) error {
	return counted(x, "op", func(c lab.MixCount) string { return c.Op })
}

// byComm: the same by process and family.
func byComm(x *tool.Trial) error {
	return counted(x, "comm,op,family", func(c lab.MixCount) string { return fmt.Sprint("mixer ", c.Op, " ", c.Family) })
}

func counted(x *tool.Trial, by string, key func(lab.MixCount) string) error {
	m, err := lab.StartMix(x.World, "", "mixer")
	if err != nil {
		return err
	}
	if err := x.Attach("--by="+by, "--interval=1h"); err != nil {
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
	want := map[string]lab.MixCount{}
	for _, c := range made {
		w := want[key(c)]
		w.Count += c.Count
		w.Errors += c.Errors
		w.Bytes += c.Bytes
		want[key(c)] = w
	}
	for _, r := range rows {
		var k []string
		for id := range strings.SplitSeq(by, ",") {
			k = append(k, tool.Value(r.Get(id)))
		}
		w := want[strings.Join(k, " ")]
		x.Want(r, "count", w.Count)
		x.Want(r, "errors", w.Errors)
		x.Want(r, "bytes", w.Bytes)
		delete(want, strings.Join(k, " "))
	}
	if len(want) > 0 {
		x.Errorf("not counted: %v; %d lost, %d runs of programs skipped", want, x.Report.Lost(), x.Report.Missed)
	}
	return nil
}

// sessions: 23 connects, 23 accepts, 46 sends of known size.
func sessions(x *tool.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 23, Send: 1000, Recv: 777})
	if err != nil {
		return err
	}
	if err := x.Attach("--interval=1h"); err != nil {
		return err
	}
	if _, err := t.Run(); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	want := map[string][2]int{"connect": {23, 0}, "accept": {23, 0}, "socket": {23, 0}, "send": {46, 23 * 1777}, "receive": {69, 23 * 1777}}
	for _, r := range rows {
		op := tool.Value(r.Get("op"))
		x.Want(r, "count", want[op][0])
		x.Want(r, "bytes", want[op][1])
		x.Want(r, "errors", 0)
		delete(want, op)
	}
	if len(want) > 0 {
		x.Errorf("not counted: %v", want)
	}
	return nil
}
