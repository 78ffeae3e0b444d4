// SPDX-License-Identifier: Apache-2.0

package front

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	gort "runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"seine/internal/kern"
)

func get(t *testing.T, url string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

// TestOpenAPI holds the description against what the handlers answer: every path, every field.
func TestOpenAPI(t *testing.T) {
	w := newWorld(t, nil)
	w.fill()
	var doc struct {
		Paths map[string]struct {
			Get struct {
				Parameters []struct{ Name string }
				Responses  map[string]struct {
					Content map[string]struct{ Schema map[string]any }
				}
			}
		}
	}
	_, b := get(t, w.server.URL+"/api/openapi.json")
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile("../../docs/openapi.json", b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile("../../docs/openapi.json"); err != nil || !bytes.Equal(kept, b) {
		t.Errorf("docs/openapi.json is not what the handlers have: UPDATE=1 writes it (%v)", err)
	}
	ids := map[string]string{"/api/v1/connection": "1|127.0.0.1:40001|127.0.0.1:8080"}
	for path, p := range doc.Paths {
		if path == "/api/v1/events" || path == "/api/v1/query" {
			continue // tests of their own
		}
		url := w.server.URL + path
		if ids[path] != "" {
			url += "?id=" + strings.ReplaceAll(ids[path], "|", "%7C")
		}
		resp, body := get(t, url)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s", path, resp.Status, body)
			continue
		}
		for kind, c := range p.Get.Responses["200"].Content {
			if !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) {
				t.Errorf("%s is %s, said to be %s", path, resp.Header.Get("Content-Type"), kind)
			}
			if c.Schema == nil {
				continue
			}
			var got any
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			for _, wrong := range against(c.Schema, got, path) {
				t.Error(wrong)
			}
			if resp, _ := get(t, w.server.URL+path+"?nosuch=1"); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s takes a parameter that it has not: %s", path, resp.Status)
			}
		}
	}
}

// against says where a value is not as a schema has it.
func against(schema map[string]any, v any, at string) (wrong []string) {
	kind := schema["type"]
	is := ""
	switch v := v.(type) {
	case map[string]any:
		is = "object"
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range list(schema["required"]) {
			if _, ok := v[name]; !ok {
				wrong = append(wrong, at+" has no "+name)
			}
		}
		for name, one := range v {
			sub, ok := properties[name].(map[string]any)
			if !ok {
				if sub, ok = schema["additionalProperties"].(map[string]any); !ok {
					wrong = append(wrong, at+" has "+name+", which is not described")
					continue
				}
			}
			wrong = append(wrong, against(sub, one, at+"."+name)...)
		}
	case []any:
		is = "array"
		items, _ := schema["items"].(map[string]any)
		for i, one := range v {
			wrong = append(wrong, against(items, one, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case string:
		is = "string"
	case bool:
		is = "boolean"
	case float64:
		is = "number"
		if kind == "integer" && v == math.Trunc(v) {
			is = "integer"
		}
	}
	if is != kind {
		wrong = append(wrong, fmt.Sprintf("%s is a %s, said to be %v", at, is, kind))
	}
	return wrong
}

func list(v any) (out []string) {
	all, _ := v.([]any)
	for _, one := range all {
		out = append(out, one.(string))
	}
	return out
}

func TestAnswers(t *testing.T) {
	w := newWorld(t, nil)
	w.fill()
	var services struct {
		Services []struct {
			ID, Service, Side string
			Turns             int
			P99               float64            `json:"p99_us"`
			Parts             map[string]float64 `json:"parts_ms"`
			Finding           *struct{ Class, Severity string }
		}
	}
	ask(t, w, "/api/v1/services", &services)
	i := slices.IndexFunc(services.Services, func(s struct {
		ID, Service, Side string
		Turns             int
		P99               float64            `json:"p99_us"`
		Parts             map[string]float64 `json:"parts_ms"`
		Finding           *struct{ Class, Severity string }
	}) bool {
		return s.Service == "slowd :8080"
	})
	if i < 0 || services.Services[i].Turns != 50 || services.Services[i].Parts["app"] != 14800 || services.Services[i].P99 != 300_000 {
		t.Fatalf("%+v", services)
	}
	if f := services.Services[i].Finding; f == nil || f.Class != "app-slow" {
		t.Errorf("finding %+v, want app-slow", f)
	}
	var graph struct {
		Nodes []struct{ ID, Label, Kind string }
		Edges []struct{ From, To string }
	}
	ask(t, w, "/api/v1/map", &graph)
	var said []string
	label := func(id string) string {
		for _, n := range graph.Nodes {
			if n.ID == id {
				return n.Label
			}
		}
		return "?"
	}
	for _, e := range graph.Edges {
		said = append(said, label(e.From)+" > "+label(e.To))
	}
	slices.Sort(said)
	if want := []string{hostile + " > 192.0.2.5:5432", "client > slowd"}; !slices.Equal(said, want) {
		t.Errorf("the map says %q, want %q", said, want)
	}
	var line struct {
		Seconds []struct{ Turns, Retrans int }
	}
	ask(t, w, "/api/v1/timeline?window=300", &line)
	sum := 0
	for _, s := range line.Seconds {
		sum += s.Turns
	}
	if sum != 20*17 || len(line.Seconds) != 20 {
		t.Errorf("%d turns in %d seconds, want 340 in 20", sum, len(line.Seconds))
	}
	for _, bad := range []string{"services?window=0", "services?window=301", "services?limit=x", "connections?limit=100001"} {
		if resp, _ := get(t, w.server.URL+"/api/v1/"+bad); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", bad, resp.Status)
		}
	}
	if resp, _ := get(t, w.server.URL+"/api/v1/connection?id=x"); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.Status)
	}
}

func ask(t *testing.T, w *world, path string, into any) {
	t.Helper()
	resp, b := get(t, w.server.URL+path)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", path, resp.Status, b)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

// TestSecurity: who asks by another name, wants to change something, or is too slow.
func TestSecurity(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Hosts = []string{"seine.example"} })
	for host, want := range map[string]int{"localhost:7346": 200, "127.0.0.1": 200, "[::1]:7346": 200, "10.1.2.3:80": 200, "seine.example": 200, "SEINE.example:1": 200, "evil.example": 421, "localhost.evil.example": 421, "": 200} {
		if host == "" {
			continue
		}
		for _, path := range []string{"/", "/metrics", "/api/v1/services", "/healthz"} {
			resp, _ := get(t, w.server.URL+path, "Host", host)
			if resp.StatusCode != want {
				t.Errorf("%s%s: %s, want %d", host, path, resp.Status, want)
			}
			for _, h := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy"} {
				if resp.Header.Get(h) == "" {
					t.Errorf("%s%s has no %s", host, path, h)
				}
			}
			if resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("others may read it")
			}
		}
	}
	resp, err := http.Post(w.server.URL+"/api/v1/services", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
	for _, path := range []string{"/../front.go", "/page/", "/nosuch", "/api/v1/nosuch", "/%2e%2e/front.go"} {
		if resp, _ := get(t, w.server.URL+path); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// TestCrowd has 1,000 clients that say nothing, and one that asks when they have been cut off.
func TestCrowd(t *testing.T) {
	t.Parallel() // it waits more than it works
	w := newWorld(t, nil)
	w.fill()
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	go func() {
		done <- Run(ctx, Options{Listen: address, Client: w.client, Log: slog.New(slog.DiscardHandler)})
	}()
	defer func() { stop(); <-done }()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for i := range 1000 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
		held = append(held, c)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) { // they have 5 s for their headers
		resp, err := (&http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + address + "/healthz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody is served any more: %v", err)
		}
	}
}

// protobuf is what a scraper of native histograms accepts.
const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"

// TestScrape compares text and protobuf.
func TestScrape(t *testing.T) {
	w := newWorld(t, nil)
	w.fill()
	_, text := get(t, w.server.URL+"/metrics")
	for _, want := range []string{
		`seine_turn_seconds_count{service="slowd :8080",side="in"} 100`, `seine_turn_seconds_bucket{service="slowd :8080",side="in",le="0.262144"} 0`, `seine_turn_seconds_bucket{service="slowd :8080",side="in",le="1.048576"} 100`,
		`seine_tcp_time_seconds_total{part="app",service="slowd :8080",side="in"} 29.6`, `seine_tcp_retransmits_total{cause="fast",service="client → 127.0.0.1:8080",side="out"} 20`,
		`seine_finding{class="app-slow",object="slowd :8080",severity=`, `seine_agent_build_info{version="test"} 1`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
	resp, b := get(t, w.server.URL+"/metrics", "Accept", protobuf)
	dec := expfmt.NewDecoder(bytes.NewReader(b), expfmt.ResponseFormat(resp.Header))
	for {
		var f dto.MetricFamily
		if err := dec.Decode(&f); err == io.EOF {
			t.Fatal("there is no seine_turn_seconds")
		} else if err != nil {
			t.Fatal(err)
		}
		if f.GetName() != "seine_turn_seconds" {
			continue
		}
		for _, m := range f.Metric {
			h := m.GetHistogram()
			if h.GetSchema() != 3 || len(h.PositiveDelta) == 0 || len(h.Bucket) == 0 {
				t.Errorf("%v has no native or no classic buckets", m.Label)
			}
		}
		return
	}
}

func TestEvents(t *testing.T) {
	w := newWorld(t, nil)
	w.fill()
	resp, err := http.Get(w.server.URL + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 64)
	if _, err := io.ReadFull(resp.Body, b); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte("event: status\ndata: {\"host\":\"testhost\",\"ready\":true")) {
		t.Errorf("%s", b)
	}
}

// TestQuery: two at once, errors, rows.
func TestQuery(t *testing.T) {
	block := make(chan struct{})
	w := newWorld(t, func(o *Options) {
		o.Query = func(ctx context.Context, out io.Writer, q Question) error {
			switch q.Tool {
			case "wait":
				<-block
			case "bad":
				return fmt.Errorf("no such column")
			}
			_, err := fmt.Fprintf(out, "{\"where\":%q,\"limit\":%d}\n", q.Where, q.Limit)
			return err
		}
	})
	resp, b := get(t, w.server.URL+"/api/v1/query?tool=tcplife&where=a%3E1&limit=7")
	if resp.StatusCode != 200 || string(b) != "{\"where\":\"a>1\",\"limit\":7}\n" {
		t.Errorf("%s: %s", resp.Status, b)
	}
	for _, bad := range []string{"", "?tool=bad", "?tool=a&limit=0", "?tool=a&nosuch=1"} {
		if resp, _ := get(t, w.server.URL+"/api/v1/query"+bad); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", bad, resp.Status)
		}
	}
	began := make(chan struct{})
	for range mostQueries {
		go func() {
			began <- struct{}{}
			if resp, err := http.Get(w.server.URL + "/api/v1/query?tool=wait"); err == nil {
				resp.Body.Close()
			}
			began <- struct{}{}
		}()
		<-began
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		resp, _ := get(t, w.server.URL+"/api/v1/query?tool=a")
		if resp.StatusCode == http.StatusTooManyRequests {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a third query is taken")
		}
	}
	close(block)
	<-began
	<-began
}

// TestScrapeDropped: a scrape has the pushes that were dropped, and has none of that without a collector.
func TestScrapeDropped(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.OTLP = &OTLP{dropped: 7} })
	if _, text := get(t, w.server.URL+"/metrics"); !bytes.Contains(text, []byte("\nseine_agent_otlp_dropped_total 7\n")) {
		t.Errorf("%s", text)
	}
	w = newWorld(t, nil)
	if _, text := get(t, w.server.URL+"/metrics"); bytes.Contains(text, []byte("otlp_dropped")) {
		t.Errorf("%s", text)
	}
}

// TestOTLPEnded: a gauge that goes is pushed once more, without a value.
func TestOTLPEnded(t *testing.T) {
	push := func(o *OTLP, objects ...string) (said string) {
		var families []*dto.MetricFamily
		if len(objects) > 0 {
			f := &dto.MetricFamily{Name: proto.String("seine_finding"), Type: dto.MetricType_GAUGE.Enum()}
			for _, object := range objects {
				f.Metric = append(f.Metric, &dto.Metric{Label: []*dto.LabelPair{{Name: proto.String("object"), Value: proto.String(object)}}, Gauge: &dto.Gauge{Value: proto.Float64(1)}})
			}
			families = append(families, f)
		}
		z, err := gzip.NewReader(bytes.NewReader(o.encode(families, time.Now())))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(z)
		m := &metricspb.MetricsData{}
		if err := proto.Unmarshal(b, m); err != nil {
			t.Fatal(err)
		}
		for _, one := range m.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			for _, p := range one.GetGauge().GetDataPoints() {
				said += fmt.Sprintf("%s %s %v %d\n", one.Name, p.Attributes[0].Value.GetStringValue(), p.GetAsDouble(), p.Flags)
			}
		}
		return said
	}
	o := &OTLP{}
	for i, c := range []struct {
		objects []string
		want    string
	}{
		{[]string{"a", "b"}, "seine.finding a 1 0\nseine.finding b 1 0\n"},
		{[]string{"b"}, "seine.finding b 1 0\nseine.finding a 0 1\n"},
		{[]string{"b"}, "seine.finding b 1 0\n"},
		{nil, "seine.finding b 0 1\n"},
		{nil, ""},
	} {
		if got := push(o, c.objects...); got != c.want {
			t.Errorf("push %d:\n%swant\n%s", i, got, c.want)
		}
	}
}

// TestOTLPSlow: while a collector does not answer, metrics are gathered and wait as usual.
func TestOTLPSlow(t *testing.T) {
	w := newWorld(t, nil)
	w.fill()
	answer := make(chan struct{})
	var taken atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		<-answer
		taken.Add(1)
	}))
	defer collector.Close()
	ctx, stop := context.WithCancel(t.Context())
	o := &OTLP{URL: collector.URL, Every: 10 * time.Millisecond}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.run(ctx, w.client, slog.New(slog.DiscardHandler))
	}()
	defer func() { stop(); <-ended }()
	const n = 7
	late := time.Now().Add(20 * time.Second)
	for o.waiting() < n && time.Now().Before(late) {
		time.Sleep(time.Millisecond)
	}
	if got := o.waiting(); got < n {
		t.Errorf("%d pushes wait, want %d", got, n)
	}
	close(answer)
	for taken.Load() < n && time.Now().Before(late) {
		time.Sleep(time.Millisecond)
	}
	if got := taken.Load(); got < n {
		t.Errorf("%d pushes arrived, want %d", got, n)
	}
}

// TestOTLP pushes to a receiver that decodes with the official protobufs. It is down at first:
// what waits is bounded, and arrives when it is back.
func TestOTLP(t *testing.T) {
	w := newWorld(t, nil)
	w.fill()
	var down atomic.Bool
	down.Store(true)
	got := make(chan *metricspb.MetricsData, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if down.Load() {
			rw.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		b, _ := io.ReadAll(z)
		m := &metricspb.MetricsData{}
		if err := proto.Unmarshal(b, m); err != nil || r.URL.Path != "/v1/metrics" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%v, %s, %s", err, r.URL.Path, r.Header.Get("Content-Type"))
		}
		got <- m
	}))
	defer collector.Close()
	log := slog.New(slog.DiscardHandler)
	o := &OTLP{URL: collector.URL, Host: "testhost", Version: "test", Client: http.DefaultClient}
	families, err := Gather(t.Context(), w.client)
	if err != nil {
		t.Fatal(err)
	}
	for range mostQueued + 5 {
		o.add(o.encode(families, time.Now()), log)
	}
	if len(o.queue) != mostQueued || o.dropped != 5 {
		t.Errorf("%d wait, %d dropped; want %d and 5", len(o.queue), o.dropped, mostQueued)
	}
	o.push(t.Context(), log)
	if len(o.queue) != mostQueued || o.notUntil.IsZero() {
		t.Error("what a collector refuses for now is not kept")
	}
	down.Store(false)
	for len(o.queue) > 0 {
		o.push(t.Context(), log)
	}
	m := <-got
	found := 0
	for _, one := range m.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		switch one.Name {
		case "seine.turn_seconds":
			for _, p := range one.GetExponentialHistogram().DataPoints {
				if p.Attributes[0].Value.GetStringValue() != "slowd :8080" {
					continue
				}
				found++
				// 0.3 s lies in the bucket whose number n has 2^(n/8) < 0.3 <= 2^((n+1)/8).
				want := int32(math.Ceil(math.Log2(0.3)*8)) - 1
				if p.Count != 100 || math.Abs(p.GetSum()-30) > 1e-9 || p.Scale != 3 || p.Positive.Offset < want-1 || p.Positive.Offset > want+1 || p.Positive.BucketCounts[0] != 100 || p.StartTimeUnixNano == 0 {
					t.Errorf("%v, want 100 in bucket %d", p, want)
				}
			}
		case "system.network.tcp.handshake.duration":
			found++
			p := one.GetExponentialHistogram().DataPoints[0]
			if e := p.Exemplars; len(e) != 1 || e[0].GetAsDouble() != lastConnect || e[0].TimeUnixNano == 0 || e[0].FilteredAttributes[1].Value.GetStringValue() != fmt.Sprint(connectSock) {
				t.Errorf("exemplars %v", e)
			}
		case "system.network.tcp.retransmits":
			found++
			if s := one.GetSum(); !s.IsMonotonic || s.DataPoints[0].GetAsDouble() != 20 || s.DataPoints[0].Attributes[0].Key != "network.tcp.retransmit.type" {
				t.Errorf("%v", s)
			}
		case "seine.agent.otlp.dropped":
			found++
			if p := one.GetSum().DataPoints[0]; p.StartTimeUnixNano == 0 || p.StartTimeUnixNano > p.TimeUnixNano {
				t.Errorf("%v", p)
			}
		}
	}
	if found != 4 {
		t.Errorf("%d of 4 metrics found", found)
	}
}

// scrapeBudget is the promise: a scrape at the limit of series takes at most this.
const scrapeBudget = 100 * time.Millisecond

// TestScrapeBudget: a scrape at the limit of series takes at most scrapeBudget of processor time, of
// holder and front together, in each format. Histograms have values in every bucket, and exemplars.
func TestScrapeBudget(t *testing.T) {
	w := newWorld(t, nil)
	wide := &kern.Hist{}
	for us := 50.0; us < 30e6; us *= 1.05 {
		wide.Add(uint64(us))
	}
	at := time.Now()
	for i := range 500 {
		who := map[string]any{"comm": fmt.Sprintf("p%d", i), "netns": 1, "raddr": netip.MustParseAddr("192.0.2.5"), "rport": 1000 + i}
		row := func(tool, view string, values map[string]any) {
			maps.Copy(values, who)
			w.row(tool, view, at, values)
		}
		row("flows", "services", map[string]any{"side": "out", "conns": 1, "turns": 1, "turn_us": wide, "app_ms": 1})
		for us := 50; us < 30e6; us *= 2 {
			row("soconnect", "", map[string]any{"pid": 1 + i, "sock": 1 + i, "latency_us": us})
		}
	}
	for i := range w.counts.Count().Limit { // a metric without a wide label may take what is left
		w.row("skbdrop", "drops", at, map[string]any{"reason": fmt.Sprintf("REASON_%d", i), "proto": "tcp", "count": 1})
	}
	w.answers.Fresh() // as the holder does now and then
	w.answers.Fresh = nil
	if n := w.counts.Count(); n.Series < n.Limit*95/100 { // the rest is reserved for label sets that do not exist yet
		t.Errorf("%d series, limit %d", n.Series, n.Limit)
	}
	for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0", protobuf} {
		const times = 5
		var size int
		before := processorTime(t)
		for range times {
			resp, b := get(t, w.server.URL+"/metrics", "Accept", accept)
			if kind, _, _ := strings.Cut(accept, ";"); resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), kind) {
				t.Fatalf("%s: %s, %s", accept, resp.Status, resp.Header.Get("Content-Type"))
			}
			size = len(b)
		}
		took := (processorTime(t) - before) / times
		t.Logf("%s: %d bytes in %v", accept, size, took)
		if took > scrapeBudget {
			t.Errorf("a scrape as %s takes %v of processor time, want at most %v", accept, took, scrapeBudget)
		}
	}
}

// processorTime is what this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestRoom: with 10,000 services and 100,000 connections the holder stays within its memory.
func TestRoom(t *testing.T) {
	w := newWorld(t, nil)
	at := time.Now().Truncate(time.Second).Add(-60 * time.Second)
	for second := range 20 {
		for i := range 10_000 {
			w.row("flows", "services", at.Add(time.Duration(second)*time.Second), map[string]any{"side": "in", "comm": fmt.Sprintf("p%d", i), "netns": 1, "lport": 1000 + i, "conns": 1, "turns": 1, "turn_us": turns(1, time.Millisecond), "app_ms": 1})
		}
	}
	for i := range 100_000 {
		w.row("flows", "connections", at, map[string]any{"comm": fmt.Sprintf("p%d", i%10_000), "netns": 1, "role": "server", "laddr": netip.MustParseAddr("10.0.0.1"), "lport": 1000 + i%10_000,
			"raddr": netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), "rport": 1024 + i%50_000, "turns": 1, "tx_bytes": 1})
	}
	w.answers.Fresh() // as the holder does now and then
	w.answers.Fresh = nil
	gort.GC()
	var mem gort.MemStats
	gort.ReadMemStats(&mem)
	n := w.counts.Count()
	t.Logf("%d series, heap %d MB", n.Series, mem.HeapAlloc>>20)
	if mem.HeapAlloc > 135<<20 {
		t.Errorf("the heap is %d MB", mem.HeapAlloc>>20)
	}
	if n.Series < n.Limit/2 || n.Series > n.Limit {
		t.Errorf("%d series, limit %d", n.Series, n.Limit)
	}
}
