// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"seine/internal/kern"
	"seine/internal/row"
)

// parts is the time of a connection by enum flow_part of flow.h, in nanoseconds.
type parts struct {
	Connect   kern.Nanos `col:"connect_ms,div=1000000,prec=1,width=7,sum" help:"client: from the SYN until the connection was established"`
	Accept    kern.Nanos `col:"accept_ms,div=1000000,prec=1,width=7,sum" help:"server: from the established connection until accept returned it"`
	App       kern.Nanos `col:"app_ms,div=1000000,prec=1,width=7,sum" help:"the application: from reading the last byte of a request to sending the first byte of the answer"`
	Unread    kern.Nanos `col:"unread_ms,div=1000000,prec=1,width=7,sum" help:"data had come and were not read"`
	Peer      kern.Nanos `col:"peer_ms,div=1000000,prec=1,width=7,sum" help:"client: the request had been delivered and no answer had come"`
	Receiving kern.Nanos `col:"receiving_ms,div=1000000,prec=1,width=7,sum" help:"between pieces of one message that arrived"`
	Window    kern.Nanos `col:"window_ms,div=1000000,prec=1,width=7,sum" help:"sending: the peer's receive window was closed"`
	Buffer    kern.Nanos `col:"buffer_ms,div=1000000,prec=1,width=7,sum" help:"sending: our own send buffer was too small"`
	Loss      kern.Nanos `col:"loss_ms,div=1000000,prec=1,width=7,sum" help:"sending: segments were lost and sent again"`
	Network   kern.Nanos `col:"network_ms,div=1000000,prec=1,width=7,sum" help:"sending: the path, the congestion window, pacing"`
	Idle      kern.Nanos `col:"idle_ms,div=1000000,prec=1,width=7,sum" help:"between turns"`
	Closing   kern.Nanos `col:"closing_ms,div=1000000,prec=1,width=7,sum" help:"after the FIN"`
	Unknown   kern.Nanos `col:"unknown_ms,div=1000000,prec=1,width=7,sum" help:"time that cannot be split"`
}

// partNames are the parts in their order.
var partNames = [...]string{"connect", "accept", "app", "unread", "peer", "receiving", "window", "buffer", "loss", "network", "idle", "closing", "unknown"}

// each is the same parts as numbers.
func (p *parts) each() *[len(partNames)]uint64 {
	return (*[len(partNames)]uint64)(unsafe.Pointer(p))
}

// sum is the time of all parts.
func (p *parts) sum() (n uint64) {
	for _, v := range p.each() {
		n += v
	}
	return n
}

// add adds the time of o.
func (p *parts) add(o *parts) {
	to, from := p.each(), o.each()
	for i := range to {
		to[i] += from[i]
	}
}

// String names the largest parts: "app 91 %  network 6 %".
func (p *parts) String() string { return p.largest(3, func(int) bool { return true }) }

// largest names the n largest of some parts with their shares, without those
// below one percent.
func (p *parts) largest(n int, of func(part int) bool) string {
	var all uint64
	var order []int
	for i, v := range p.each() {
		if of(i) {
			all += v
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.each()[b], p.each()[a]) })
	var out []string
	for _, i := range order[:min(n, len(order))] {
		if share := float64(p.each()[i]) / float64(all) * 100; share >= 0.5 {
			out = append(out, fmt.Sprintf("%s %.0f %%", partNames[i], share))
		}
	}
	return strings.Join(out, "  ")
}

// where is the type of the column with that text.
type where uint64

func (where) Kind() row.Kind { return row.Text }

func (*where) Cell(c *row.Cell) { *c = row.Cell{} }
