// SPDX-License-Identifier: Apache-2.0

// Package gethostlatency shows how long it takes to look up a host: by calls of
// the C library, or by DNS messages.
package gethostlatency

import (
	"bytes"
	_ "embed"
	"math"
	"net/netip"
	"strconv"
	"time"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	tool.Latency
	Lib     string        `flag:"lib" help:"PATH[:SYMBOL],…: resolvers in these files too; SYMBOL takes and returns what getaddrinfo does"`
	Packets bool          `flag:"packets" help:"DNS queries and answers in place of calls of the C library"`
	Timeout time.Duration `flag:"timeout" help:"with --packets, a query without an answer for so long has timed out"`

	libs *libraries
}

// made is a field of which Each makes the text.
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
	Code     made[int32]     `col:"result,width=14,key" help:"success, or what the resolver says: EAI_* of getaddrinfo, h_errno of the others; failed if it does not say why"`
	Call     call            `col:"call,width=16,key" help:"function that was called"`
	AddrLen  uint32          `col:"-"`
	Host     made[[256]byte] `col:"host,width=30,key" help:"name or address that was looked up; absent if the call had none"`
	Pending  kern.Pending    `col:"pending,width=7" help:"true if the call has not returned: the latency is its age"`
	Pad      uint32          `col:"-"`
}

// calls is enum call of gethostlatency.bpf.c. The last one stands for what --lib
// names.
var calls = [...]string{
	"getaddrinfo", "gethostbyname", "gethostbyname2", "gethostbyname_r", "gethostbyname2_r", "gethostbyaddr", "gethostbyaddr_r",
	"other",
}

type call uint32

// What getaddrinfo returns, and what h_errno holds, as glibc and musl have them.
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

// message is struct dns_event of gethostlatency.bpf.c.
type message struct {
	kern.Head
	Laddr    kern.Addr       `col:"laddr,width=15,key" help:"address that asked"`
	Raddr    kern.Addr       `col:"raddr,head=SERVER,width=15,key" help:"name server"`
	Sock     kern.ID         `col:"sock" help:"stable id of the socket (its cookie)"`
	Latency  kern.Nanos      `col:"latency_us,div=1000,head=LATms,scale=1000,prec=2,width=8,age" help:"from the query to its answer; absent when there was none"`
	Lport    uint16          `col:"lport,width=5,key" help:"port that asked"`
	Rport    uint16          `col:"rport,width=5,key" help:"port of the name server"`
	Proto    kern.Proto      `col:"proto,width=5,key" help:"udp or tcp"`
	ID       uint16          `col:"id,width=5" help:"number of the query"`
	Flags    made[uint16]    `col:"result,width=10,key" help:"the answer's code, TRUNCATED if the rest is to be had over TCP, or TIMEOUT"`
	Answers  uint16          `col:"answers,width=7" help:"records in the answer"`
	Len      uint16          `col:"-"`
	Pad      uint16          `col:"-"`
	Question made[[272]byte] `col:"type,width=5,key;host,width=30,key" help:"type of the record: A, AAAA, PTR; name that was asked for"`
	Pending  kern.Pending    `col:"pending,width=7" help:"true if there is no answer yet, and it has not timed out either: the latency is its age"`
	Pad2     uint32          `col:"-"`
}

const truncated = 0x0200 // DNS_TRUNCATED of dns.h

// describe makes the texts of a message.
func describe(m *message, r *row.Row) {
	switch {
	case m.Pending != 0:
		r.Get("result").SetText("pending")
		*r.Get("answers") = row.Cell{}
	case uint64(m.Latency) == kern.None:
		r.Get("result").SetText("TIMEOUT")
		*r.Get("answers") = row.Cell{}
	case m.Flags.V&truncated != 0:
		r.Get("result").SetText("TRUNCATED")
	default:
		r.Get("result").SetText(kern.DNSCode(m.Flags.V))
	}
	name, typ, ok := kern.DNSQuestion(m.Question.V[:min(int(m.Len), len(m.Question.V))])
	if name != "" {
		r.Get("host").SetText(name)
	}
	if ok {
		r.Get("type").SetText(kern.DNSType(typ))
	}
}

// queryKey and query are struct query_key and struct query.
type queryKey struct {
	Sock      uint64
	Server    kern.Addr
	Proto, ID uint16
	Pad       uint32
}

type query struct {
	Start      kern.Mono
	Who        kern.Who
	Laddr      kern.Addr
	Netns      uint32
	Lport, Len uint16
	Question   [272]byte
}

func unanswered(k *queryKey, q *query, m *message) {
	m.TS, m.Netns, m.Who = kern.MonoNow(), kern.ID32(q.Netns), q.Who
	m.Laddr, m.Raddr, m.Sock = q.Laddr, k.Server, kern.ID(k.Sock)
	m.Latency, m.Lport, m.Rport = kern.Nanos(kern.None), q.Lport, 53
	m.Proto, m.ID, m.Len, m.Question.V = kern.Proto(k.Proto), k.ID, q.Len, q.Question
}

func check(cfg any) error {
	c := cfg.(*config)
	if c.Packets && c.Lib != "" {
		return tool.Usagef("--lib: --packets looks into no library")
	}
	return newLibraries(c.Lib).check()
}

const (
	instead = "--packets shows DNS queries without them"
	slow    = "nothing, but takes a tenth of a second for each function of each library to end"
)

func views(cfg any) []tool.View {
	c := cfg.(*config)
	if c.Packets {
		return []tool.View{{
			Points: []probe.Point{{Name: "answer"}, {Name: "query"}, tool.PendingAt("pending_query")},
			Output: tool.Stream[message]{Type: "dns_event", Each: describe, Late: tool.Overdue[queryKey, query, message]{
				Map: "queries", After: c.Timeout, Row: unanswered,
				Since: func(q *query) kern.Mono { return q.Start },
			}},
			Show: "time pid comm latency_us raddr proto type result host",
			Says: "{host} {type} after {latency_us} us[: {result}]",
		}}
	}
	if c.libs == nil || c.libs.lib != c.Lib { // the views may be asked for before the flags are known
		c.libs = newLibraries(c.Lib)
	}
	return []tool.View{{
		Points: []probe.Point{
			{Name: "exec", Optional: true, Misses: "C libraries that nobody has in use yet"},
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
	Config:  func() any { return &config{Timeout: 5 * time.Second} },
	Check:   check,
	Views:   views,
}
