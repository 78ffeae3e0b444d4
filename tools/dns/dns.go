// SPDX-License-Identifier: Apache-2.0

// Package dns shows each DNS query with its answer.
package dns

import (
	_ "embed"
	"net/netip"
	"slices"
	"strings"
	"time"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	tool.Latency
	Timeout time.Duration `flag:"timeout" help:"a query without an answer for this long has timed out"`
}

// made is a column whose text Each makes.
type made[T any] struct{ V T }

func (made[T]) Kind() row.Kind    { return row.Text }
func (*made[T]) Cell(c *row.Cell) { *c = row.Cell{} }

// exchange is struct dns_event of dns.bpf.c.
type exchange struct {
	kern.Head
	kern.Tuple
	Latency     kern.Nanos      `col:"latency_us,div=1000,head=LATms,scale=1000,prec=2,width=8,age" help:"from the first time the query was sent to its answer; absent when there was none"`
	Retries     uint32          `col:"retries,width=7,sum" help:"how often the query was sent again to this server, from the same socket"`
	Pending     kern.Pending    `col:"pending,width=7" help:"true if there is no answer yet and the query has not timed out: the latency is its age"`
	ID          uint16          `col:"id,width=5" help:"number of the query"`
	Flags       made[uint16]    `col:"rcode,width=10,key" help:"the answer's code, TRUNCATED if the client must ask again over TCP, or TIMEOUT; absent while the query is pending"`
	Answers     uint16          `col:"answers,width=7" help:"records in the answer"`
	QuestionLen uint16          `col:"-"`
	AnswerLen   uint16          `col:"-"`
	Pad         [3]uint16       `col:"-"`
	Question    made[[272]byte] `col:"type,width=5,key;name,width=30,key" help:"type of the record: A, AAAA, PTR; name that was asked for"`
	Answer      made[[904]byte] `col:"addrs,width=15" help:"addresses in the answer"`
}

const (
	truncated = 0x0200 // TC in the flags of an answer
	timeout   = "TIMEOUT"
)

// describe makes the texts of an exchange.
func describe(e *exchange, r *row.Row) {
	switch rcode := r.Get("rcode"); {
	case e.Pending != 0:
		*r.Get("answers") = row.Cell{}
	case uint64(e.Latency) == kern.None:
		rcode.SetText(timeout)
		*r.Get("answers") = row.Cell{}
	case e.Flags.V&truncated != 0:
		rcode.SetText("TRUNCATED")
	default:
		rcode.SetText(kern.DNSCode(e.Flags.V))
	}
	answer := e.Answer.V[:min(int(e.AnswerLen), len(e.Answer.V))]
	name, typ, ok := kern.DNSQuestion(e.Question.V[:min(int(e.QuestionLen), len(e.Question.V))])
	if !ok && len(answer) > 0 { // the question was cut into several segments; its answer repeats it
		name, typ, ok = kern.DNSQuestion(answer)
	}
	if name != "" {
		r.Get("name").SetText(name)
	}
	if ok {
		r.Get("type").SetText(kern.DNSType(typ))
	}
	if text := list(kern.DNSAddrs(answer)); text != "" {
		r.Get("addrs").SetText(text)
	}
}

func list(addrs []netip.Addr) string {
	var b strings.Builder
	for i, a := range addrs {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(a.String())
	}
	return b.String()
}

func unanswered(k *family.DNSKey, q *family.DNSQuery, e *exchange) {
	e.TS, e.Netns, e.Who = kern.MonoNow(), kern.ID32(q.Netns), q.Who
	e.Laddr, e.Raddr, e.Sock = q.Laddr, k.Server, kern.ID(k.Sock)
	e.Latency, e.Lport, e.Rport = kern.Nanos(kern.None), q.Lport, 53
	e.Family, e.Proto = kern.Family(q.Family), kern.Proto(k.Proto)
	e.Retries, e.ID, e.QuestionLen, e.Question.V = q.Retries, k.ID, q.Len, q.Question
}

func views(cfg any) []tool.View {
	return []tool.View{{
		Output: tool.Stream[exchange]{Type: "dns_event", Each: describe, Late: tool.Overdue[family.DNSKey, family.DNSQuery, exchange]{
			Map: "queries", After: cfg.(*config).Timeout, Row: unanswered,
			Since: func(q *family.DNSQuery) kern.Mono { return q.Last },
		}},
		Show: "time pid comm latency_us raddr:SERVER proto::5 retries:RETRY:5 type rcode name addrs",
		Says: "{name} {type} from {raddr}[: {rcode}][ {addrs}][ after {latency_us} us]",
	}}
}

// Tool is dns.
var Tool = &tool.Tool{
	Name: "dns", Layer: tool.Socket, Short: "DNS queries and their answers",
	Banner:  "Tracing DNS queries.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Sockets: tool.OfIP("udp", "tcp", "mptcp"),
	Config:  func() any { return &config{Timeout: 6 * time.Second} },
	Points:  append(slices.Clone(family.DNSQueries), tool.Pending),
	Views:   views,
}
