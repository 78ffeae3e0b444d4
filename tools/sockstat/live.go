// SPDX-License-Identifier: Apache-2.0

package sockstat

import (
	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyCompat, doCompat)
	return []trial.Case{
		{Name: "refused", Run: refused},
		{Name: "compat", Run: compat},
		{Name: "sessions", Hosts: lab.TwoHosts, Run: sessions},
	}
}

// sessions: 23 connects, 23 accepts, 46 sends of known size.
func sessions(x *trial.Trial) error {
	t, err := lab.StartTCP(x.World, lab.Sessions{Count: 23, Send: 1000, Recv: 777})
	if err != nil {
		return err
	}
	rows, _, err := trial.RowsOf(x, 0, t.Run, "--interval=1h")
	if err != nil {
		return err
	}
	want := map[string][2]int{"connect": {23, 0}, "accept": {23, 0}, "socket": {23, 0}, "send": {46, 23 * 1777}, "receive": {69, 23 * 1777}}
	for _, r := range rows {
		op := trial.Value(r.Get("op"))
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

// refused: a read of the error queue is a call without bytes.
func refused(x *trial.Trial) error {
	f, err := lab.StartRefused(x.World, "sender", 3, 101)
	if err != nil {
		return err
	}
	rows, err := x.Rows(f.Run, "--interval=1h")
	want := map[string]int{"send": 303, "receive": 0}
	for _, r := range rows {
		op := trial.Value(r.Get("op"))
		if bytes, ok := want[op]; ok {
			x.Want(r, "count", 3)
			x.Want(r, "bytes", bytes)
			delete(want, op)
		}
	}
	if len(want) > 0 {
		x.Errorf("not counted: %v", want)
	}
	return err
}
