// SPDX-License-Identifier: Apache-2.0

package front

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"

	"seine/internal/agent"
)

// An OTLP pushes metrics to a collector, by OTLP over HTTP with protobuf. Pushes that cannot be
// delivered wait in a bounded queue; those that do not fit are dropped and counted.
type OTLP struct {
	URL      string // of the collector, with or without /v1/metrics
	Every    time.Duration
	Host     string
	Version  string
	Client   *http.Client
	pause    time.Duration
	notUntil time.Time
	gauges   []*metricspb.Metric // of the push before

	mu      sync.Mutex // of what follows
	queue   [][]byte
	dropped uint64
	began   time.Time // of the count
}

// mostQueued is how many pushes wait: an hour of them at the usual minute.
const (
	mostQueued = 60
	firstRetry = time.Second
	mostRetry  = time.Minute
)

// run pushes until ctx ends. A collector that is slow to answer does not hold up the next push.
func (o *OTLP) run(ctx context.Context, c *agent.Client, log *slog.Logger) {
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second}
	}
	more := make(chan struct{}, 1)
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { o.deliver(ctx, more, log) })
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			families, err := Gather(ctx, c)
			if err != nil {
				log.Warn("metrics could not be gathered for the collector", "reason", err.Error())
				continue
			}
			o.add(o.encode(families, now), log)
			select {
			case more <- struct{}{}:
			default:
			}
		}
	}
}

// deliver sends what waits, until ctx ends.
func (o *OTLP) deliver(ctx context.Context, more <-chan struct{}, log *slog.Logger) {
	for {
		for o.waiting() > 0 && !time.Now().Before(o.notUntil) && ctx.Err() == nil {
			o.push(ctx, log)
		}
		var retry <-chan time.Time
		if o.waiting() > 0 {
			retry = time.After(time.Until(o.notUntil))
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		case <-retry:
		}
	}
}

// waiting is how many pushes wait.
func (o *OTLP) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue)
}

// add queues a push. If there is no room, the oldest is dropped.
func (o *OTLP) add(body []byte, log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= mostQueued {
		o.queue = o.queue[1:]
		o.drop(log)
	}
	o.queue = append(o.queue, body)
}

// again puts a push back that the collector did not take. It is the oldest, so it goes if there is no room.
func (o *OTLP) again(body []byte, log *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= mostQueued {
		o.drop(log)
		return
	}
	o.queue = slices.Insert(o.queue, 0, body)
}

// drop counts a push that found no room.
func (o *OTLP) drop(log *slog.Logger) {
	o.dropped++
	log.Warn("a push of metrics is dropped: the collector does not take them", "dropped", o.dropped)
}

// with adds the number of dropped pushes to metrics. Without a collector there is none.
func (o *OTLP) with(families []*dto.MetricFamily) []*dto.MetricFamily {
	if o == nil {
		return families
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.began.IsZero() {
		o.began = time.Now()
	}
	return append(families, agent.OTLPDropped(o.dropped, o.began))
}

// push sends the oldest.
func (o *OTLP) push(ctx context.Context, log *slog.Logger) {
	o.mu.Lock()
	body, waiting := o.queue[0], len(o.queue)
	o.queue = o.queue[1:]
	o.mu.Unlock()
	url := strings.TrimSuffix(o.URL, "/")
	if !strings.HasSuffix(url, "/v1/metrics") {
		url += "/v1/metrics"
	}
	later, err := func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return false, err
		}
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Content-Encoding", "gzip")
		resp, err := o.Client.Do(req)
		if err != nil {
			return true, err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		switch {
		case resp.StatusCode/100 == 2:
			return false, nil
		case resp.StatusCode == 429, resp.StatusCode == 502, resp.StatusCode == 503, resp.StatusCode == 504: // as the protocol says
			return true, fmt.Errorf("the collector says %s", resp.Status)
		}
		return false, fmt.Errorf("the collector says %s", resp.Status)
	}()
	if err != nil {
		log.Warn("metrics could not be pushed", "reason", err.Error(), "waiting", waiting)
	}
	if later {
		o.pause = min(max(2*o.pause, firstRetry), mostRetry)
		o.notUntil = time.Now().Add(o.pause/2 + rand.N(o.pause/2))
		o.again(body, log)
		return
	}
	if err != nil {
		o.mu.Lock()
		o.dropped++
		o.mu.Unlock()
	}
	o.pause = 0
}

// names are the descriptions with OpenTelemetry's names and units, by our name.
var names = sync.OnceValue(func() map[string]agent.Desc {
	out := map[string]agent.Desc{}
	for _, d := range agent.Table {
		if d.OTLP == "" {
			d.OTLP = strings.Replace(strings.TrimSuffix(d.Name, "_total"), "_", ".", 1)
		}
		out[d.Name] = d
	}
	return out
})

// encode makes a push of metrics, compressed.
func (o *OTLP) encode(families []*dto.MetricFamily, now time.Time) []byte {
	// A request to export has the same bytes as MetricsData. Prometheus makes the label instance of service.instance.id.
	b, err := proto.Marshal(&metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{attribute("service.name", "seine"), attribute("service.version", o.Version),
			attribute("service.instance.id", o.Host), attribute("host.name", o.Host)}},
		ScopeMetrics: []*metricspb.ScopeMetrics{{
			Scope: &commonpb.InstrumentationScope{Name: "seine", Version: o.Version}, Metrics: o.ended(convert(o.with(families), now), now),
		}},
	}}})
	if err != nil {
		panic(err)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

func attribute(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// convert turns Prometheus metrics into OTLP. Counters and histograms are cumulative, each with
// its start time.
func convert(families []*dto.MetricFamily, now time.Time) (out []*metricspb.Metric) {
	at := uint64(now.UnixNano())
	for _, f := range families {
		d, ok := names()[f.GetName()]
		if !ok { // of the config file
			d = agent.Desc{OTLP: strings.TrimSuffix(f.GetName(), "_total")}
		}
		m := &metricspb.Metric{Name: d.OTLP, Description: f.GetHelp(), Unit: d.Unit}
		var points []*metricspb.NumberDataPoint
		var hists []*metricspb.ExponentialHistogramDataPoint
		for _, one := range f.Metric {
			var attrs []*commonpb.KeyValue
			for _, l := range one.Label {
				attrs = append(attrs, attribute(cmp.Or(d.Attributes[l.GetName()], l.GetName()), l.GetValue()))
			}
			switch f.GetType() {
			case dto.MetricType_HISTOGRAM:
				hists = append(hists, exponential(one.Histogram, attrs, at))
			case dto.MetricType_COUNTER:
				points = append(points, &metricspb.NumberDataPoint{Attributes: attrs, StartTimeUnixNano: uint64(one.Counter.CreatedTimestamp.AsTime().UnixNano()), TimeUnixNano: at,
					Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: one.Counter.GetValue()}})
			default:
				points = append(points, &metricspb.NumberDataPoint{Attributes: attrs, TimeUnixNano: at, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: one.Gauge.GetValue()}})
			}
		}
		const cumulative = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
		switch f.GetType() {
		case dto.MetricType_HISTOGRAM:
			m.Data = &metricspb.Metric_ExponentialHistogram{ExponentialHistogram: &metricspb.ExponentialHistogram{DataPoints: hists, AggregationTemporality: cumulative}}
		case dto.MetricType_COUNTER:
			m.Data = &metricspb.Metric_Sum{Sum: &metricspb.Sum{DataPoints: points, AggregationTemporality: cumulative, IsMonotonic: true}}
		default:
			m.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: points}}
		}
		out = append(out, m)
	}
	return out
}

// ended adds a point without a value for each label set of a gauge that the push before had and
// this one has not: the series has ended, as a finding does. Without it Prometheus takes the last
// value for five minutes.
func (o *OTLP) ended(metrics []*metricspb.Metric, now time.Time) []*metricspb.Metric {
	var gauges []*metricspb.Metric
	there := map[string]*metricspb.Gauge{}
	for _, m := range metrics {
		if g := m.GetGauge(); g != nil {
			there[m.Name] = g
			gauges = append(gauges, &metricspb.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit, Data: &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: slices.Clip(g.DataPoints)}}})
		}
	}
	for _, before := range o.gauges {
		g := there[before.Name]
		has := map[string]bool{}
		for _, p := range g.GetDataPoints() {
			has[labelKey(p)] = true
		}
		var gone []*metricspb.NumberDataPoint
		for _, p := range before.GetGauge().DataPoints {
			if !has[labelKey(p)] {
				gone = append(gone, &metricspb.NumberDataPoint{Attributes: p.Attributes, TimeUnixNano: uint64(now.UnixNano()),
					Flags: uint32(metricspb.DataPointFlags_DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)})
			}
		}
		switch {
		case len(gone) == 0:
		case g != nil:
			g.DataPoints = append(g.DataPoints, gone...)
		default:
			before.Data = &metricspb.Metric_Gauge{Gauge: &metricspb.Gauge{DataPoints: gone}}
			metrics = append(metrics, before)
		}
	}
	o.gauges = gauges
	return metrics
}

// labelKey tells label sets apart.
func labelKey(p *metricspb.NumberDataPoint) string {
	var b strings.Builder
	for _, a := range p.Attributes {
		b.WriteString(a.Key + "\x00" + a.Value.GetStringValue() + "\x00")
	}
	return b.String()
}

// exponential makes an exponential histogram of native buckets, with the exemplars of classic ones. A bucket has another number
// there: number i of ours ends at 2^(i/8), theirs begins there.
func exponential(h *dto.Histogram, attrs []*commonpb.KeyValue, at uint64) *metricspb.ExponentialHistogramDataPoint {
	out := &metricspb.ExponentialHistogramDataPoint{
		Attributes: attrs, StartTimeUnixNano: uint64(h.CreatedTimestamp.AsTime().UnixNano()), TimeUnixNano: at, Count: h.GetSampleCount(), Sum: proto.Float64(h.GetSampleSum()),
		Scale: h.GetSchema(), ZeroCount: h.GetZeroCount(), ZeroThreshold: h.GetZeroThreshold(),
	}
	for _, b := range h.Bucket {
		if e := b.Exemplar; e != nil {
			one := &metricspb.Exemplar{TimeUnixNano: uint64(e.Timestamp.AsTime().UnixNano()), Value: &metricspb.Exemplar_AsDouble{AsDouble: e.GetValue()}}
			for _, l := range e.Label {
				one.FilteredAttributes = append(one.FilteredAttributes, attribute(l.GetName(), l.GetValue()))
			}
			out.Exemplars = append(out.Exemplars, one)
		}
	}
	var n int64
	i, number := 0, int32(0)
	for s, span := range h.PositiveSpan {
		if span.GetLength() == 0 {
			continue
		}
		number += span.GetOffset()
		if s == 0 {
			out.Positive = &metricspb.ExponentialHistogramDataPoint_Buckets{Offset: number - 1}
		} else {
			for range span.GetOffset() {
				out.Positive.BucketCounts = append(out.Positive.BucketCounts, 0)
			}
		}
		for range span.GetLength() {
			n += h.PositiveDelta[i]
			out.Positive.BucketCounts = append(out.Positive.BucketCounts, uint64(n))
			i++
			number++
		}
	}
	return out
}
