// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"seine/internal/kern"
)

// Type is the type of a metric.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// A Desc describes a metric.
type Desc struct {
	Name, Help string
	Type       Type
	Labels     []string
	Wide       int               // the first Wide labels can have any number of values
	OTLP       string            // OpenTelemetry's name; "": the same name, with dots
	Attributes map[string]string // OpenTelemetry's names of labels, where it has or proposes others
	Unit       string            // OTLP's unit, in UCUM: s, By, {connection}
	From       string            // tool or file that is its source
}

// series is the number of series of one label set.
func (d *Desc) series() int {
	if d.Type == Histogram {
		return histSeries
	}
	return 1
}

// Limits are the bounds of a Meter. The zero value works.
type Limits struct {
	Series int           // most series in all; 0: 5,000
	Idle   time.Duration // a label set without a count for this long is removed; 0: 10 min
}

// Other is the label value for all label sets without a series of their own.
const Other = "other"

// Every promoteEvery, label sets without a series can get one. A label set must have had
// promoteFrom counts in that time.
const (
	promoteEvery = 10 * time.Second
	promoteFrom  = 10
	mostWaiting  = 10_000
)

// A Meter adds up metrics. It has a hard limit of series. Up to three quarters of the limit,
// every label set gets a series of its own. Above that a new label set is counted as "other".
// Every ten seconds the busiest of these get series of their own, until a sixteenth of the limit
// is left. This last part is for metrics without a wide label, such as those about the agent
// itself, which show what is missing. Counts never move: a new series starts at zero.
type Meter struct {
	mu       sync.Mutex
	limits   Limits
	families map[string]*family
	used     int // series of all label sets, those of reserve included
	waiting  map[string]*waits
	promoted time.Time
	now      func() time.Time

	refused  uint64 // label sets that got no series
	overflow uint64 // values that were counted as "other"
	evicted  uint64 // label sets that were removed because they were idle
}

// A family is one metric with its label sets.
type family struct {
	Desc
	sets map[string]*set
	last *set // all labels are "other"; it has a series from the start
}

// A set is one label set.
type set struct {
	values []string
	heard  time.Time
	since  time.Time
	fresh  bool // a gauge that has been set since the last Begin
	value  float64
	hist   *hist
}

// waits is a label set without a series of its own.
type waits struct {
	family *family
	values []string
	times  int
}

// NewMeter makes a meter with the given metrics.
func NewMeter(limits Limits, descs ...Desc) (*Meter, error) {
	if limits.Series == 0 {
		limits.Series = 5000
	}
	if limits.Idle == 0 {
		limits.Idle = 10 * time.Minute
	}
	m := &Meter{limits: limits, families: map[string]*family{}, waiting: map[string]*waits{}, now: time.Now}
	for _, d := range descs {
		if m.families[d.Name] != nil {
			return nil, fmt.Errorf("metric %s twice", d.Name)
		}
		f := &family{Desc: d, sets: map[string]*set{}}
		m.families[d.Name] = f
		m.used += d.series() // for last, or for the one set of a metric without labels
	}
	if m.used > limits.Series/2 {
		return nil, fmt.Errorf("%d series are too few: these metrics take at least %d", limits.Series, 2*m.used)
	}
	return m, nil
}

// Add adds to a counter.
func (m *Meter) Add(name string, by float64, values ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.get(name, values).value += by
}

// observe counts a value of a histogram.
func (m *Meter) observe(name string, e example, values ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.get(name, values).hist.observe(e)
}

// Merge counts the values of a histogram of microseconds.
func (m *Meter) Merge(name string, h *kern.Hist, values ...string) {
	if h == nil || h.Count == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.get(name, values).hist.merge(h)
}

// Set sets a gauge.
func (m *Meter) Set(name string, value float64, values ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.get(name, values)
	if f := m.families[name]; s == f.last && s.fresh { // several label sets share it
		s.value = max(s.value, value)
	} else {
		s.value = value
	}
	s.fresh = true
}

// Replace sets all label sets of a gauge. It removes the ones that each does not set.
func (m *Meter) Replace(name string, each func(set func(value float64, values ...string))) {
	m.mu.Lock()
	f := m.families[name]
	for _, s := range f.sets {
		s.fresh = false
	}
	m.mu.Unlock()
	each(func(value float64, values ...string) { m.Set(name, value, values...) })
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, s := range f.sets {
		if !s.fresh {
			m.drop(f, key)
		}
	}
}

// get returns the label set that counts a value.
func (m *Meter) get(name string, values []string) *set {
	f := m.families[name]
	if f == nil || len(values) != len(f.Labels) {
		panic(fmt.Sprintf("agent: metric %s has no labels %q", name, values))
	}
	now := m.now()
	if now.Sub(m.promoted) >= promoteEvery {
		m.promote(now)
	}
	key := strings.Join(values, "\x00")
	if s := f.sets[key]; s != nil {
		s.heard = now
		return s
	}
	room := m.limits.Series
	if f.Wide > 0 {
		room = room * 3 / 4
	}
	if len(values) == 0 || m.used+f.series() <= room {
		return m.admit(f, key, values, now)
	}
	m.overflow++
	if w := m.waiting[name+"\x00"+key]; w != nil {
		w.times++
	} else {
		m.refused++
		if len(m.waiting) < mostWaiting {
			m.waiting[strings.Clone(name+"\x00"+key)] = &waits{f, cloned(values), 1}
		}
	}
	// The other labels, which have few values, keep theirs while there is room.
	most := slices.Clone(values)
	for i := range f.Wide {
		most[i] = Other
	}
	key = strings.Join(most, "\x00")
	if s := f.sets[key]; s != nil {
		s.heard = now
		return s
	}
	if f.Wide < len(values) && m.used+f.series() <= m.limits.Series*7/8 {
		return m.admit(f, key, most, now)
	}
	if f.last == nil {
		for i := range most {
			most[i] = Other
		}
		key = strings.Join(most, "\x00")
		if f.last = f.sets[key]; f.last == nil {
			f.last = m.admit(f, key, most, now)
		}
	}
	f.last.heard = now
	return f.last
}

// admit gives a label set its series.
func (m *Meter) admit(f *family, key string, values []string, now time.Time) *set {
	s := &set{values: cloned(values), heard: now, since: now}
	for i, v := range s.values {
		s.values[i] = strings.ToValidUTF8(v, "\uFFFD")
	}
	if f.Type == Histogram {
		s.hist = newHist()
	}
	f.sets[strings.Clone(key)] = s
	if !f.isLast(s) {
		m.used += f.series()
	}
	return s
}

// isLast reports whether a set is the one that its family has from the start.
func (f *family) isLast(s *set) bool {
	return !slices.ContainsFunc(s.values, func(v string) bool { return v != Other })
}

// drop removes a label set and its series.
func (m *Meter) drop(f *family, key string) {
	s := f.sets[key]
	if s == f.last {
		f.last = nil
	}
	if !f.isLast(s) {
		m.used -= f.series()
	}
	delete(f.sets, key)
}

// promote removes idle label sets and gives their series to waiting ones, the busiest first.
func (m *Meter) promote(now time.Time) {
	m.promoted = now
	for _, f := range m.families {
		if len(f.Labels) == 0 {
			continue
		}
		for key, s := range f.sets {
			if now.Sub(s.heard) >= m.limits.Idle {
				m.drop(f, key)
				m.evicted++
			}
		}
	}
	all := slices.SortedFunc(maps.Values(m.waiting), func(a, b *waits) int {
		return cmp.Or(cmp.Compare(b.times, a.times), strings.Compare(a.family.Name, b.family.Name), slices.Compare(a.values, b.values))
	})
	clear(m.waiting)
	for _, w := range all {
		key := strings.Join(w.values, "\x00")
		if w.times < promoteFrom {
			break
		}
		if w.family.sets[key] == nil && m.used+w.family.series() <= m.limits.Series*15/16 {
			m.admit(w.family, key, w.values, now)
		}
	}
}

func cloned(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strings.Clone(v)
	}
	return out
}

// Count is the meter's counts of itself.
type Count struct {
	Series, Limit, Sets        int
	Refused, Overflow, Evicted uint64
}

// Count returns the present numbers.
func (m *Meter) Count() Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := Count{Limit: m.limits.Series, Refused: m.refused, Overflow: m.overflow, Evicted: m.evicted}
	for _, f := range m.families {
		c.Sets += len(f.sets)
		c.Series += len(f.sets) * f.series()
	}
	return c
}

// Gather returns all metrics, sorted by name, in the scraper's format.
func (m *Meter) Gather() []*dto.MetricFamily {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*dto.MetricFamily
	for _, name := range slices.Sorted(maps.Keys(m.families)) {
		f := m.families[name]
		if len(f.sets) == 0 {
			continue
		}
		mf := &dto.MetricFamily{Name: proto.String(f.Name), Help: proto.String(f.Help), Type: f.proto().Enum()}
		order := make([]int, len(f.Labels)) // by name, as the format requires
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return strings.Compare(f.Labels[a], f.Labels[b]) })
		for _, key := range slices.Sorted(maps.Keys(f.sets)) {
			s := f.sets[key]
			one := &dto.Metric{}
			for _, i := range order {
				if s.values[i] != "" { // an empty label is left out
					one.Label = append(one.Label, &dto.LabelPair{Name: proto.String(f.Labels[i]), Value: proto.String(s.values[i])})
				}
			}
			switch f.Type {
			case Histogram:
				one.Histogram = s.hist.proto()
				one.Histogram.CreatedTimestamp = timestamppb.New(s.since)
			case Gauge:
				one.Gauge = &dto.Gauge{Value: proto.Float64(s.value)}
			default:
				one.Counter = &dto.Counter{Value: proto.Float64(s.value), CreatedTimestamp: timestamppb.New(s.since)}
			}
			mf.Metric = append(mf.Metric, one)
		}
		out = append(out, mf)
	}
	return out
}

func (d *Desc) proto() dto.MetricType {
	switch d.Type {
	case Histogram:
		return dto.MetricType_HISTOGRAM
	case Gauge:
		return dto.MetricType_GAUGE
	}
	return dto.MetricType_COUNTER
}
