// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"seine/internal/row"
)

// A File is a config file: settings under the names of flags, tools to run besides the usual
// ones, and metrics to make from their rows.
type File struct {
	Settings []Setting
	Tools    []string // tools with their flags, which are recorded too
	Metrics  []*Custom
}

// A Setting is a key with the value of a flag.
type Setting struct {
	Key, Value string
	Line       int
}

// A Custom is a metric that the config file defines from the rows of a tool.
type Custom struct {
	Name   string            `yaml:"name" help:"name of the metric; a counter's ends in _total"`
	Help   string            `yaml:"help" help:"what it means, in one line"`
	Type   Type              `yaml:"type" help:"counter, gauge or histogram (of seconds)"`
	Tool   string            `yaml:"tool" help:"tool with its flags, as in 'seine with'"`
	View   string            `yaml:"view" help:"the view, where the tool has several"`
	Labels map[string]string `yaml:"labels" help:"label: column. The column can be service, which is made of process, port and address"`
	Value  string            `yaml:"value" help:"column with the value; a counter without one counts rows"`
	Scale  float64           `yaml:"scale" help:"factor of the value, such as 0.000001 to turn latency_us into seconds (default 1)"`
}

// structured are the keys that are not flags.
var structured = []string{"tools", "metrics"}

// Structured are the keys that are not flags.
func Structured() []string { return slices.Clone(structured) }

// Parse reads a config file. Flags are the names of the keys that are flags.
func Parse(b []byte, flags []string) (*File, error) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return &File{}, nil
	} else if err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("more than one document: everything after the second --- would be ignored")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return &File{}, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want keys with values", root.Line)
	}
	f := &File{}
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if line := seen[key.Value]; line != 0 {
			return nil, fmt.Errorf("line %d: key %s is there already, in line %d", key.Line, key.Value, line)
		}
		seen[key.Value] = key.Line
		if err := f.key(key, value, flags); err != nil {
			return nil, err
		}
	}
	for _, c := range f.Metrics {
		if err := c.check(); err != nil {
			return nil, fmt.Errorf("metric %s: %w", c.Name, err)
		}
	}
	return f, nil
}

func (f *File) key(key, value *yaml.Node, flags []string) error {
	strict := func(into any) error {
		b, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		dec := yaml.NewDecoder(bytes.NewReader(b))
		dec.KnownFields(true)
		if err := dec.Decode(into); err != nil {
			var types *yaml.TypeError
			if errors.As(err, &types) {
				err = errors.New(strings.Join(types.Errors, "; "))
			}
			return fmt.Errorf("line %d: %s: %w", key.Line, key.Value, err)
		}
		return nil
	}
	switch {
	case key.Value == "tools":
		return strict(&f.Tools)
	case key.Value == "metrics":
		return strict(&f.Metrics)
	case !slices.Contains(flags, key.Value):
		all := slices.Concat(flags, structured)
		if near := row.Nearest(key.Value, all); near != "" {
			return fmt.Errorf("line %d: there is no key %q: did you mean %s?", key.Line, key.Value, near)
		}
		return fmt.Errorf("line %d: there is no key %q: the keys are %s", key.Line, key.Value, strings.Join(all, ", "))
	case value.Kind == yaml.ScalarNode:
		f.Settings = append(f.Settings, Setting{key.Value, value.Value, key.Line})
		return nil
	case value.Kind == yaml.SequenceNode:
		for _, one := range value.Content {
			if one.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: %s: want a list of values", one.Line, key.Value)
			}
			f.Settings = append(f.Settings, Setting{key.Value, one.Value, one.Line})
		}
		return nil
	}
	return fmt.Errorf("line %d: %s: want a value", key.Line, key.Value)
}

var (
	metricName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) })
	labelName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`) })
)

// check refuses an invalid metric.
func (c *Custom) check() error {
	switch {
	case !metricName().MatchString(c.Name):
		return fmt.Errorf("%q is not a valid name: use letters, digits and _", c.Name)
	case slices.ContainsFunc(Table, func(d Desc) bool { return d.Name == c.Name }):
		return fmt.Errorf("the agent has a metric of this name already")
	case c.Help == "":
		return fmt.Errorf("help is missing: one line that says what it means")
	case c.Tool == "":
		return fmt.Errorf("tool is missing: a tool with its flags, such as 'tcplife --port 443'")
	case c.Type != Counter && c.Type != Gauge && c.Type != Histogram:
		return fmt.Errorf("type %q: one of counter, gauge, histogram", c.Type)
	case (c.Type == Counter) != strings.HasSuffix(c.Name, "_total"):
		return fmt.Errorf("names of counters end in _total, others do not")
	case c.Value == "" && c.Type != Counter:
		return fmt.Errorf("value is missing: the column that has it")
	}
	for l := range c.Labels {
		if !labelName().MatchString(l) || l == "le" {
			return fmt.Errorf("label %q: use letters, digits and _, but not le alone", l)
		}
	}
	return nil
}

// serviceColumn is a name that a label can use in place of a column.
const serviceColumn = "service"

// Bind checks the metric against the schemas of the tool.
func (c *Custom) Bind(schemas []*row.Schema) error {
	var mine []*row.Schema
	var views []string
	for _, s := range schemas {
		views = append(views, s.View)
		if c.View == "" || s.View == c.View {
			mine = append(mine, s)
		}
	}
	switch {
	case len(mine) == 0:
		return fmt.Errorf("metric %s: %s has no view %q: it has %s", c.Name, c.Tool, c.View, strings.Join(views, ", "))
	case len(mine) > 1:
		return fmt.Errorf("metric %s: view is missing: %s has %s", c.Name, c.Tool, strings.Join(views, ", "))
	}
	c.View = mine[0].View
	for l, column := range c.Labels {
		if mine[0].Index(column) < 0 && column != serviceColumn {
			return fmt.Errorf("metric %s: label %s: %w", c.Name, l, row.Unknown(column, mine...))
		}
	}
	if c.Value == "" {
		return nil
	}
	i := mine[0].Index(c.Value)
	if i < 0 {
		return fmt.Errorf("metric %s: value: %w", c.Name, row.Unknown(c.Value, mine...))
	}
	hist := mine[0].Columns[i].IsHist() || mine[0].Columns[i].Inner
	if kind := mine[0].Columns[i].Kind; kind == row.Text || kind == row.Addr || kind == row.Time || hist && c.Type != Histogram {
		return fmt.Errorf("metric %s: %s is not a number", c.Name, c.Value)
	}
	if hist && mine[0].Columns[i].Unit != "us" {
		return fmt.Errorf("metric %s: %s is a histogram of %s: only those of us can be exported", c.Name, c.Value, mine[0].Columns[i].Unit)
	}
	return nil
}

// Desc describes the metric. All of its labels can have any number of values.
func (c *Custom) Desc() Desc {
	return Desc{Name: c.Name, Help: c.Help, Type: c.Type, Labels: c.labels(), Wide: len(c.Labels), From: c.Tool}
}

func (c *Custom) labels() (out []string) {
	for l := range c.Labels {
		out = append(out, l)
	}
	slices.Sort(out)
	return out
}

// Into is the sink that makes the metric from rows.
func (c *Custom) Into(counts *Counts) row.Sink { return &customSink{c, c.labels(), counts} }

type customSink struct {
	*Custom
	names  []string
	counts *Counts
}

func (s *customSink) End(row.End) error { return nil }

func (s *customSink) Row(r *row.Row) error {
	if r.Schema.View != s.View || r.Pending() {
		return nil
	}
	read := reader{r}
	values := make([]string, len(s.names))
	for i, l := range s.names {
		values[i] = s.label(read, s.Labels[l])
	}
	scale := s.Scale
	if scale == 0 {
		scale = 1
	}
	if s.Value == "" {
		s.counts.Add(s.Name, scale, values...)
		return nil
	}
	if h := read.hist(s.Value); h != nil {
		s.counts.Merge(s.Name, h, values...)
		return nil
	}
	n, ok := read.value(s.Value)
	switch {
	case !ok:
	case s.Type == Counter:
		s.counts.Add(s.Name, max(n*scale, 0), values...) // a counter never falls
	case s.Type == Gauge:
		s.counts.Set(s.Name, n*scale, values...)
	default:
		s.counts.observe(s.Name, read.example(n*scale), values...)
	}
	return nil
}

// label is the value of a column as a label.
func (s *customSink) label(r reader, column string) string {
	c := r.Get(column)
	if c == nil && column == serviceColumn {
		return name(s.counts.sideNow(r))
	}
	if c == nil {
		return ""
	}
	switch c.Kind {
	case row.Text:
		return c.S
	case row.Addr:
		return c.IP().String()
	case row.Uint, row.Int:
		return fmt.Sprint(r.number(column))
	case row.Bool:
		return fmt.Sprint(c.N != 0)
	}
	return ""
}
