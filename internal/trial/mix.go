// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"seine/internal/lab"
	"seine/internal/row"
)

// MixComm is the name of the process that makes a mix.
const MixComm = "mixer"

// MixDemo is the demo of tools that count socket calls.
var MixDemo = Workload{
	Run: func(w *lab.World) error {
		m, err := lab.StartMix(w, "", MixComm)
		if err != nil {
			return err
		}
		_, err = m.Run()
		return err
	},
}

// Mix makes socket calls of many kinds, and compares the tool's counts with them
// by key. want returns the key of a call, empty if the tool does not count it.
// got returns the key of a row. Every call must be counted, and no other.
func (x *Trial) Mix(want func(lab.MixCount) string, got func(*row.Row) string, flags ...string) error {
	m, err := lab.StartMix(x.World, "", MixComm)
	if err != nil {
		return err
	}
	if err := x.Attach(flags...); err != nil {
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
	all := map[string]lab.MixCount{}
	for _, c := range made {
		if k := want(c); k != "" {
			sum := all[k]
			sum.Count += c.Count
			sum.Errors += c.Errors
			sum.Bytes += c.Bytes
			all[k] = sum
		}
	}
	for _, r := range rows {
		c := all[got(r)]
		x.Want(r, "count", c.Count)
		x.Want(r, "errors", c.Errors)
		if r.Get("bytes") != nil {
			x.Want(r, "bytes", c.Bytes)
		}
		delete(all, got(r))
	}
	if len(all) > 0 {
		x.Errorf("not counted: %v; %d lost, %d runs of programs skipped", all, x.Report.Lost(), x.Report.Missed)
	}
	return nil
}

// Values are some cells of a row, with spaces between them.
func Values(r *row.Row, ids ...string) (s string) {
	for i, id := range ids {
		if i > 0 {
			s += " "
		}
		s += Value(r.Get(id))
	}
	return s
}
