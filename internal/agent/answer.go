// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"seine/internal/kern"
	"seine/internal/watch"
	"seine/internal/why"
)

// Answers answers the front's questions about a model and a meter.
type Answers struct {
	Model *watch.Model
	Meter *Meter
	Host  string
	Fresh func() // called before each scrape; may be nil
	Ready func() error

	mu     sync.Mutex
	judged time.Time // the second that answer is about
	answer *why.Answer
}

// Windows and counts that questions can ask for.
const (
	usualWindow = 10 * time.Second
	mostWindow  = 300 * time.Second
	usualRows   = 1000
	mostRows    = 100_000
)

// asked are the questions, by name.
var asked = map[string]func(a *Answers, q *query) (any, error){
	"services":    (*Answers).services,
	"connections": (*Answers).connections,
	"connection":  (*Answers).connection,
	"findings":    (*Answers).findings,
	"timeline":    (*Answers).timeline,
	"map":         (*Answers).graph,
	"status":      (*Answers).status,
}

// Answer answers one question.
func (a *Answers) Answer(_ context.Context, what string, params url.Values) (int, []byte) {
	if what == "metrics" {
		if a.Fresh != nil {
			a.Fresh()
		}
		var b bytes.Buffer
		for _, f := range a.Meter.Gather() {
			if _, err := protodelim.MarshalTo(&b, f); err != nil {
				return fault(http.StatusInternalServerError, err)
			}
		}
		return http.StatusOK, b.Bytes()
	}
	do := asked[what]
	if do == nil {
		return fault(http.StatusNotFound, fmt.Errorf("there is no %q", what))
	}
	q, err := newQuery(params)
	if err != nil {
		return fault(http.StatusBadRequest, err)
	}
	out, err := do(a, q)
	if err != nil {
		return fault(http.StatusNotFound, err)
	}
	b, err := json.Marshal(out)
	if err != nil {
		return fault(http.StatusInternalServerError, err)
	}
	return http.StatusOK, b
}

func fault(status int, err error) (int, []byte) {
	b, _ := json.Marshal(map[string]string{"error": err.Error()})
	return status, b
}

// A query is the parameters of a question.
type query struct {
	window time.Duration
	at     time.Time // end of the window; zero: now
	limit  int
	id     string
	text   string // names must contain it
}

func newQuery(p url.Values) (*query, error) {
	q := &query{window: usualWindow, limit: usualRows, id: p.Get("id"), text: strings.ToLower(p.Get("q"))}
	number := func(name string, into *int, least, most int) error {
		if p.Get(name) == "" {
			return nil
		}
		n, err := strconv.Atoi(p.Get(name))
		if err != nil || n < least || n > most {
			return fmt.Errorf("%s: want a number from %d to %d", name, least, most)
		}
		*into = n
		return nil
	}
	seconds, at := int(usualWindow/time.Second), 0
	if err := number("window", &seconds, 1, int(mostWindow/time.Second)); err != nil {
		return nil, err
	}
	q.window = time.Duration(seconds) * time.Second
	if err := number("at", &at, 1, 1<<40); err != nil {
		return nil, err
	}
	if at != 0 {
		q.at = time.Unix(int64(at), 0)
	}
	return q, number("limit", &q.limit, 1, mostRows)
}

// view returns the window of a question.
func (a *Answers) view(q *query) *watch.View {
	if q.at.IsZero() {
		return a.Model.Window(q.window)
	}
	return a.Model.At(q.at, q.window)
}

// findingsNow judges the last ten seconds, once a second.
func (a *Answers) findingsNow() *why.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, last := a.Model.Span()
	if a.answer == nil || !last.Equal(a.judged) {
		a.answer, a.judged = why.Judge(a.Model.Window(usualWindow), why.Options{}), last
	}
	return a.answer
}

func (a *Answers) judge(q *query, v *watch.View) *why.Answer {
	if q.at.IsZero() && q.window == usualWindow {
		return a.findingsNow()
	}
	return why.Judge(v, why.Options{})
}

// header is the fields that all answers about a window have.
type header struct {
	Host string  `json:"host"`
	From float64 `json:"from"` // seconds since 1970
	To   float64 `json:"to"`
}

func (a *Answers) header(v *watch.View) header {
	return header{a.Host, float64(v.From.Unix()), float64(v.To.Unix())}
}

// The answers.
type (
	servicesAnswer struct {
		header
		Total    int        `json:"total"` // before limit
		Services []*service `json:"services"`
	}
	connectionsAnswer struct {
		header
		Total       int           `json:"total"`
		Connections []*connection `json:"connections"`
	}
	connectionAnswer struct {
		header
		Connection *connection `json:"connection"`
	}
	findingsAnswer struct {
		header
		Findings []found    `json:"findings"`
		Judged   []string   `json:"judged"`
		Unjudged []unjudged `json:"unjudged"`
	}
	timelineAnswer struct {
		header
		Settled int64    `json:"settled"` // later seconds may still change
		ID      string   `json:"id,omitempty"`
		Seconds []second `json:"seconds"`
	}
	mapAnswer struct {
		header
		Total int     `json:"total"`
		Nodes []node  `json:"nodes"`
		Edges []*edge `json:"edges"`
	}
	statusAnswer struct {
		Host    string   `json:"host"`
		Ready   bool     `json:"ready"`
		Why     string   `json:"why,omitempty"` // reason why it is not ready
		First   int64    `json:"first"`         // first second of the model
		Last    int64    `json:"last"`
		Sources []source `json:"sources"`
		Series  int      `json:"series"`
		Limit   int      `json:"series_limit"`
	}
	// A found is a finding as in seine why -o json, with its title and the reason for its confidence.
	found struct {
		ID         string         `json:"id"`
		Rank       int            `json:"rank"`
		Class      string         `json:"class"`
		Severity   why.Severity   `json:"severity"`
		Object     string         `json:"object"`
		Confidence why.Confidence `json:"confidence"`
		Evidence   []why.Evidence `json:"evidence"`
		Advice     string         `json:"advice"`
		Next       string         `json:"next"`
		Rule       string         `json:"rule"`
		Causes     []int          `json:"causes"`
		Title      string         `json:"title"`
		Reason     string         `json:"reason,omitempty"`
	}
	unjudged struct {
		Class string `json:"class"`
		Why   string `json:"why"`
	}
	source struct {
		Name string `json:"name"`
		Rows uint64 `json:"rows"`
		Lost uint64 `json:"lost"`
		Why  string `json:"missing,omitempty"`
	}
)

// Shapes are the types of the answers, for the description of the API.
var Shapes = map[string]reflect.Type{
	"services": reflect.TypeFor[servicesAnswer](), "connections": reflect.TypeFor[connectionsAnswer](), "connection": reflect.TypeFor[connectionAnswer](),
	"findings": reflect.TypeFor[findingsAnswer](), "timeline": reflect.TypeFor[timelineAnswer](), "map": reflect.TypeFor[mapAnswer](), "status": reflect.TypeFor[statusAnswer](),
}

// A service is a service as the API shows it.
type service struct {
	ID        string             `json:"id"`
	Service   string             `json:"service"`
	Side      string             `json:"side"`
	Comm      string             `json:"comm"`
	Container string             `json:"container,omitempty"`
	Netns     uint32             `json:"netns,omitempty"`
	Lport     uint16             `json:"lport,omitempty"`
	Raddr     string             `json:"raddr,omitempty"`
	Rport     uint16             `json:"rport,omitempty"`
	Conns     uint64             `json:"conns"`
	Turns     *uint64            `json:"turns,omitempty"` // absent if both directions overlap
	TurnsS    *float64           `json:"turns_s,omitempty"`
	P50       *float64           `json:"p50_us,omitempty"`
	P90       *float64           `json:"p90_us,omitempty"`
	P99       *float64           `json:"p99_us,omitempty"`
	TX        uint64             `json:"tx_bytes"`
	RX        uint64             `json:"rx_bytes"`
	Retrans   uint64             `json:"retrans"`
	Parts     map[string]float64 `json:"parts_ms"`
	Finding   *verdict           `json:"finding,omitempty"`
}

// A verdict is the worst finding about a service or a connection.
type verdict struct {
	ID       string       `json:"id"`
	Class    string       `json:"class"`
	Severity why.Severity `json:"severity"`
	Title    string       `json:"title"`
}

// serviceID is the name of a service in URLs of the API.
func serviceID(k watch.ServiceKey) string {
	side := "in"
	if k.Out {
		side = "out"
	}
	raddr := ""
	if k.Raddr.IsValid() {
		raddr = k.Raddr.String()
	}
	return strings.Join([]string{side, strconv.FormatUint(uint64(k.Netns), 10), strconv.Itoa(int(k.Lport)), raddr, strconv.Itoa(int(k.Rport)), k.Container, k.Comm}, "|")
}

func quantiles(h *kern.Hist) (p50, p90, p99 *float64) {
	if h.Count == 0 {
		return nil, nil, nil
	}
	at := func(q float64) *float64 { v := h.Quantile(q); return &v }
	return at(0.5), at(0.9), at(0.99)
}

// partsMS are the parts that are not zero.
func partsMS(p *watch.Parts) map[string]float64 {
	out := map[string]float64{}
	for i, ms := range p {
		if ms > 0 {
			out[watch.Part(i).String()] = ms
		}
	}
	return out
}

func newService(s *watch.Service, seconds float64, f *why.Finding) *service {
	o := &service{
		ID: serviceID(s.ServiceKey), Service: name(s.ServiceKey), Side: "in", Comm: s.Comm, Container: s.Container, Netns: s.Netns,
		Lport: s.Lport, Rport: s.Rport, Conns: s.Conns, TX: s.TX, RX: s.RX, Retrans: s.Retrans, Parts: partsMS(&s.Parts),
	}
	if s.Out {
		o.Side = "out"
	}
	if s.Raddr.IsValid() {
		o.Raddr = s.Raddr.String()
	}
	if !s.Mixed() {
		turns, rate := s.Turns, float64(s.Turns)/seconds
		o.Turns, o.TurnsS = &turns, &rate
		var turn kern.Hist
		s.Turn.AddTo(&turn)
		o.P50, o.P90, o.P99 = quantiles(&turn)
	}
	if f != nil {
		o.Finding = &verdict{f.ID, f.Class, f.Severity, f.Title}
	}
	return o
}

// about returns the worst finding about a service, nil if there is none.
func about(all []*why.Finding, k watch.ServiceKey) *why.Finding {
	for _, f := range all {
		o := &f.Object
		if o.Who == k.Who && (!k.Out && o.Lport == k.Lport && o.Lport != 0 || k.Out && o.Lport == 0 && o.Raddr == k.Raddr && o.Rport == k.Rport) {
			return f
		}
	}
	return nil
}

func (a *Answers) services(q *query) (any, error) {
	v := a.view(q)
	findings := a.judge(q, v).Findings
	out := servicesAnswer{header: a.header(v), Services: []*service{}}
	seconds := max(v.Seconds(), 1)
	for _, s := range v.Services {
		if q.id != "" && serviceID(s.ServiceKey) != q.id || !q.matches(name(s.ServiceKey)+" "+s.Container) {
			continue
		}
		out.Services = append(out.Services, newService(s, seconds, about(findings, s.ServiceKey)))
	}
	out.Total = len(out.Services)
	slices.SortStableFunc(out.Services, func(x, y *service) int { // those with findings first, then the busiest
		return compare(y.weight(), x.weight())
	})
	out.Services = out.Services[:min(len(out.Services), q.limit)]
	return out, nil
}

func (s *service) weight() float64 {
	w := float64(s.Conns)
	if s.Turns != nil {
		w += float64(*s.Turns)
	}
	if s.Finding != nil {
		w += 1e12 * float64(s.Finding.Severity+1)
	}
	return w
}

func compare(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// matches reports whether a text contains the text of the question.
func (q *query) matches(text string) bool {
	return q.text == "" || strings.Contains(strings.ToLower(text), q.text)
}

// A connection is a connection as the API shows it.
type connection struct {
	ID        string             `json:"id"`
	PID       uint32             `json:"pid,omitempty"`
	Comm      string             `json:"comm"`
	Container string             `json:"container,omitempty"`
	Netns     uint32             `json:"netns,omitempty"`
	Role      string             `json:"role"`
	Laddr     string             `json:"laddr"`
	Lport     uint16             `json:"lport"`
	Raddr     string             `json:"raddr"`
	Rport     uint16             `json:"rport"`
	Last      int64              `json:"last"` // second since 1970
	Closed    bool               `json:"closed"`
	Older     bool               `json:"older"` // than the agent: its time counts from the start of the agent
	Turns     uint64             `json:"turns"`
	TX        uint64             `json:"tx_bytes"`
	RX        uint64             `json:"rx_bytes"`
	Fast      uint64             `json:"retrans_fast"`
	TLP       uint64             `json:"retrans_tlp"`
	RTO       uint64             `json:"retrans_rto"`
	SRTT      uint64             `json:"srtt_us"`
	MinRTT    uint64             `json:"min_rtt_us"`
	WallMS    float64            `json:"wall_ms"`
	Parts     map[string]float64 `json:"parts_ms"`
	History   []moment           `json:"history,omitempty"`
}

// A moment is one second of a connection.
type moment struct {
	At      int64              `json:"t"`
	Turns   uint64             `json:"turns"`
	TX      uint64             `json:"tx_bytes"`
	RX      uint64             `json:"rx_bytes"`
	Retrans uint64             `json:"retrans"`
	SRTT    uint64             `json:"srtt_us"`
	Parts   map[string]float64 `json:"parts_ms"`
}

func connID(k watch.ConnKey) string {
	return fmt.Sprintf("%d|%s|%s", k.Netns, netip.AddrPortFrom(k.Laddr, k.Lport), netip.AddrPortFrom(k.Raddr, k.Rport))
}

func newConnection(c *watch.Conn) *connection {
	return &connection{
		ID: connID(c.ConnKey), PID: c.PID, Comm: c.Who.Comm, Container: c.Who.Container, Netns: c.Netns, Role: c.Role,
		Laddr: c.Laddr.String(), Lport: c.Lport, Raddr: c.Raddr.String(), Rport: c.Rport, Last: c.Last, Closed: c.Closed, Older: c.Older,
		Turns: c.Turns, TX: c.TX, RX: c.RX, Fast: c.Fast, TLP: c.TLP, RTO: c.RTO, SRTT: c.SRTT, MinRTT: c.MinRTT, WallMS: c.WallMS, Parts: partsMS(&c.Parts),
	}
}

func (a *Answers) connections(q *query) (any, error) {
	v := a.Model.Window(time.Second)
	out := connectionsAnswer{header: a.header(v), Connections: []*connection{}}
	v.Conns(func(c *watch.Conn) {
		if q.text != "" && !q.matches(fmt.Sprintf("%s %s %s %s", c.Who.Comm, c.Who.Container, netip.AddrPortFrom(c.Laddr, c.Lport), netip.AddrPortFrom(c.Raddr, c.Rport))) || q.id != "" && !ofService(c, q.id) {
			return
		}
		if out.Total++; len(out.Connections) < q.limit {
			out.Connections = append(out.Connections, newConnection(c))
		}
	})
	return out, nil
}

// ofService reports whether a connection belongs to the service with the id.
func ofService(c *watch.Conn, id string) bool {
	return serviceID(watch.ServiceKey{Who: c.Who, Lport: c.Lport}) == id || serviceID(watch.ServiceKey{Who: c.Who, Out: true, Raddr: c.Raddr, Rport: c.Rport}) == id
}

func (a *Answers) connection(q *query) (any, error) {
	var found *watch.Conn
	v := a.Model.Window(time.Second)
	v.Conns(func(c *watch.Conn) {
		if found == nil && connID(c.ConnKey) == q.id {
			one := *c
			found = &one
		}
	})
	if found == nil {
		return nil, fmt.Errorf("there is no connection %q: it has ended and was forgotten, or it never existed", q.id)
	}
	a.Model.Follow(found.ConnKey)
	o := newConnection(found)
	for _, m := range a.Model.History(found.ConnKey, v.To) {
		o.History = append(o.History, moment{m.At, m.Turns, m.TX, m.RX, m.Retrans, m.SRTT, partsMS(&m.Parts)})
	}
	return connectionAnswer{a.header(v), o}, nil
}

func (a *Answers) findings(q *query) (any, error) {
	v := a.view(q)
	answer := a.judge(q, v)
	out := findingsAnswer{header: a.header(v), Findings: []found{}, Judged: answer.Judged, Unjudged: []unjudged{}}
	for _, f := range answer.Findings[:min(len(answer.Findings), q.limit)] {
		one := found{f.ID, f.Rank, f.Class, f.Severity, f.Object.Name, f.Confidence, f.Evidence, f.Advice, f.Next, f.Rule, f.Causes, f.Title, f.Reason}
		if one.Causes == nil {
			one.Causes = []int{}
		}
		out.Findings = append(out.Findings, one)
	}
	if out.Judged == nil {
		out.Judged = []string{}
	}
	for _, u := range answer.Unjudged {
		out.Unjudged = append(out.Unjudged, unjudged{u.Class, u.Why})
	}
	return out, nil
}
