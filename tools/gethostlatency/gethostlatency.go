// SPDX-License-Identifier: Apache-2.0

// Package gethostlatency shows how long it takes to look up a host, by calls of
// the C library.
package gethostlatency

import (
	"bytes"
	_ "embed"
	"math"
	"net/netip"
	"strconv"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	tool.Latency
	Lib string `flag:"lib" help:"PATH[:SYMBOL],…: resolvers in these files too; SYMBOL takes and returns what getaddrinfo does"`

	libs *libraries
}

// made is a column whose text Each makes.
type made[T any] struct{ V T }

func (made[T]) Kind() row.Kind    { return row.Text }
func (*made[T]) Cell(c *row.Cell) { *c = row.Cell{} }
func (call) Kind() row.Kind       { return row.Text }
func (n *call) Cell(c *row.Cell)  { c.SetText(calls[min(int(*n), len(calls)-1)]) }

// lookup is struct lookup_event of gethostlatency.bpf.c.
type lookup struct {
	kern.Head
	Latency  kern.Nanos      `col:"latency_us,div=1000,head=LATms,scale=1000,prec=2,width=8,age" help:"from the call to its return"`
	Inflight uint32          `col:"inflight,width=8" help:"lookups that were under way when this one began, itself included"`
	Code     made[int32]     `col:"result,width=14,key" help:"success, or what the resolver says: EAI_* of getaddrinfo, h_errno of the others; failed if it gives no reason"`
	Call     call            `col:"call,width=16,key" help:"function that was called"`
	AddrLen  uint32          `col:"-"`
	Host     made[[256]byte] `col:"host,width=30,key" help:"name or address that was looked up; absent if the call had none"`
	Pending  kern.Pending    `col:"pending,width=7" help:"true if the call has not returned: the latency is its age"`
	Pad      uint32          `col:"-"`
}

// calls is enum call of gethostlatency.bpf.c. The last one stands for the
// functions of --lib.
var calls = [...]string{
	"getaddrinfo", "gethostbyname", "gethostbyname2", "gethostbyname_r", "gethostbyname2_r", "gethostbyaddr", "gethostbyaddr_r",
	"other",
}

type call uint32

// The return values of getaddrinfo and the values of h_errno, in glibc and
// musl.
var (
	eai = map[int32]string{
		-1: "EAI_BADFLAGS", -2: "EAI_NONAME", -3: "EAI_AGAIN", -4: "EAI_FAIL", -5: "EAI_NODATA", -6: "EAI_FAMILY", -7: "EAI_SOCKTYPE",
		-8: "EAI_SERVICE", -9: "EAI_ADDRFAMILY", -10: "EAI_MEMORY", -11: "EAI_SYSTEM", -12: "EAI_OVERFLOW",
		-100: "EAI_INPROGRESS", -101: "EAI_CANCELED", -102: "EAI_NOTCANCELED", -103: "EAI_ALLDONE", -104: "EAI_INTR", -105: "EAI_IDN_ENCODE",
	}
	herrno = map[int32]string{-1: "NETDB_INTERNAL", 1: "HOST_NOT_FOUND", 2: "TRY_AGAIN", 3: "NO_RECOVERY", 4: "NO_DATA"}
)

// finish makes the texts of a lookup.
func finish(l *lookup, r *row.Row) {
	names := herrno
	if c := calls[min(int(l.Call), len(calls)-1)]; c == "getaddrinfo" || c == "other" {
		names = eai
	}
	result := names[l.Code.V]
	switch {
	case l.Pending != 0:
		result = "pending"
	case l.Code.V == 0:
		result = "success"
	case l.Code.V == math.MinInt32: // CODE_FAILED
		result = "failed"
	case result == "":
		result = strconv.Itoa(int(l.Code.V))
	}
	r.Get("result").SetText(result)
	name, _, _ := bytes.Cut(l.Host.V[:], []byte{0})
	if l.AddrLen != 0 {
		a, _ := netip.AddrFromSlice(l.Host.V[:min(max(l.AddrLen, 4), 16)&^3])
		name = []byte(a.String())
	}
	if len(name) > 0 {
		r.Get("host").SetText(string(name))
	}
}

func check(cfg any) error {
	return newLibraries(cfg.(*config).Lib).check()
}

const (
	instead = "seine dns shows DNS queries without them"
	slow    = "nothing, but takes a tenth of a second for each function of each library to end"
)

func views(cfg any) []tool.View {
	c := cfg.(*config)
	if c.libs == nil || c.libs.lib != c.Lib { // the views may be asked for before the flags are known
		c.libs = newLibraries(c.Lib)
	}
	return []tool.View{{
		Points: []probe.Point{
			{Name: "exec", Optional: true, Misses: "C libraries that no process uses yet"},
			{Name: "gone"},
			{Name: "lookup", Attach: c.libs.attach, Ways: []probe.Way{
				{Name: "multi", Programs: []string{"lookup__multi__*"}, Fits: probe.HasFunctions("bpf_uprobe_multi_link_attach")},
				{Name: "uprobe", Programs: []string{"lookup__uprobe__*"}, Fits: probe.HasUprobes(instead), Misses: slow},
			}},
			tool.Pending,
		},
		Output: tool.Stream[lookup]{Type: "lookup_event", Each: finish, Notices: tool.Notice[kern.Head]{
			Type: "head", Do: func(h *kern.Head) { c.libs.look(int(h.PID)) },
		}},
		Show: "time pid comm latency_us result host",
		Says: "{host} after {latency_us} us[: {result}]",
	}}
}

// Tool is gethostlatency.
var Tool = &tool.Tool{
	Name: "gethostlatency", Layer: tool.Socket, Short: "how long name lookups take, and how they end",
	Banner:  "Tracing name lookups.",
	Doc:     readme,
	Filters: tool.ByWho | tool.FilterNetns,
	Config:  func() any { return &config{} },
	Check:   check,
	Views:   views,
}
