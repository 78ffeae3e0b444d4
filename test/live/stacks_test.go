// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// TestStackTables: there are four tables of stacks. With room for one stack each, four
// stacks are shown, and the others are reported as lost.
func TestStackTables(t *testing.T) {
	if lab.Emulated() {
		t.Skip("how stacks are kept does not depend on the kernel")
	}
	tl := named(t, "skbdrop")
	p, err := tool.Prepare(tl, tl.NewConfig(), tool.Options{By: []string{"kstack"}})
	if err != nil {
		t.Fatal(err)
	}
	var rows []*row.Row
	x, err := trial.RunCase(t.Context(), tl, trial.Case{Hosts: lab.TwoHosts, Run: func(x *trial.Trial) (err error) {
		rows, err = x.Rows(func() error {
			return errors.Join(x.World.Inject("client", dropsOfSixKinds(x.World)...), x.World.Settle())
		}, "--by=kstack", fmt.Sprint("--memory=", p.Least()+2048)) // and filters
		return err
	}}, "")
	if errors.Is(err, probe.ErrNotSupported) || errors.Is(err, lab.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, r := range rows {
		if c := r.Get("kstack"); c != nil {
			if st, ok := c.Ref.(*kern.Stack); ok && len(st.Frames) > 0 {
				shown++
			}
		}
	}
	if shown != 4 || x.Report.Losses[tool.LossStack] == 0 {
		t.Errorf("%d stacks are shown and %d are lost, want 4 and some", shown, x.Report.Losses[tool.LossStack])
	}
}

// dropsOfSixKinds are packets that the server drops in six functions.
func dropsOfSixKinds(w *lab.World) (all []lab.Packet) {
	const closed = 9
	var none = lab.Packet{}.Src
	for _, p := range []lab.Packet{
		{Proto: unix.IPPROTO_UDP, Payload: lab.UDPHeader(7, closed)},
		{Proto: unix.IPPROTO_TCP, Payload: lab.TCPHeader(none, none, 7, closed, 1, lab.SYN)},
		{Proto: unix.IPPROTO_UDP, Payload: lab.UDPHeader(7, closed), BadSum: true},
		{Proto: 253, Payload: make([]byte, 20)},
	} {
		p.Src, p.Dst = w.Addr4("client"), w.Addr4("server")
		all = append(all, slices.Repeat([]lab.Packet{p}, 3)...)
	}
	for _, p := range []lab.Packet{
		{Proto: unix.IPPROTO_UDP, Payload: lab.UDPHeader(7, closed)},
		{Proto: 60, Payload: make([]byte, 4)},
	} {
		p.Src, p.Dst = w.Addr6("client"), w.Addr6("server")
		all = append(all, slices.Repeat([]lab.Packet{p}, 3)...)
	}
	return all
}
