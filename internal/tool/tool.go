// SPDX-License-Identifier: Apache-2.0

// Package tool says what a tool is, and runs one.
package tool

import (
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/probe"
	"seine/internal/row"
)

// A Tool is one question about the network and how it is answered. It is
// declared in tools/<name>/; everything else follows from the declaration.
type Tool struct {
	Name    string  // the folder, the object, the command: as the book spells it
	Aliases []Alias // other names, with preset flags
	Layer   Layer
	Short   string // one line
	Banner  string // what is being traced: "Tracing TCP sessions."
	Doc     string // README.md, embedded

	Filters  Filter               // which filters its programs test
	Keeps    []Privilege          // capabilities needed after attaching that cannot be derived from columns or programs
	Config   func() any           // a fresh config struct; nil: no flags of its own
	Check    func(cfg any) error  // flags that do not go together; nil: all do
	Shorts   map[string]string    // letters that BCC gave to common flags: L is lport
	Once     bool                 // without an interval there is one output, at once
	Names    bool                 // on a terminal the names of remote addresses are shown without --names
	Arg      string               // the flag that the first word sets if it is not an interval: kind
	Families []uint16             // shown unless --family names others; nil: all
	Sockets  Sockets              // the sockets that rows can be about; zero: all
	Points   []probe.Point        // events that every view needs
	Views    func(cfg any) []View // what a run shows; flags choose
	Formats  []string             // output formats besides table, json and csv
	Format   string               // the one that is written unless -o says otherwise; empty: table
	Buffer   uint64               // bytes between kernel and tool unless --buffer says otherwise; 0: 4 MiB
	Graph    *Graph               // for -o dot
	Plot     func(cfg any) Plot   // for -o svg and -o png

	// Look checks, before anything is attached, whether the machine lacks something that rows
	// need. It returns notes for the user, or an error if there can never be a row.
	Look func(cfg any, w *Wanted) (notes []string, err error)

	// Narrow gives cheaper points if the filters allow it; nil: the points are always the same.
	Narrow func([]probe.Point, *Wanted) []probe.Point
}

// An Alias is another name for a tool with some of its flags preset.
type Alias struct {
	Name  string
	Flags []string
	Short string
}

// Layer groups tools by where they look.
type Layer string

// The layers, from the application down.
const (
	Socket Layer = "socket"
	TCP    Layer = "tcp"
	UDP    Layer = "udp"
	IP     Layer = "ip"
	Queue  Layer = "queue"
	Device Layer = "device"
	CPU    Layer = "cpu"
)

// Layers is all of them in order.
var Layers = []Layer{Socket, TCP, UDP, IP, Queue, Device, CPU}

// A View is one kind of row and what feeds it. Most tools have one.
type View struct {
	Name    string        // empty for a tool that has but one
	Points  []probe.Point // events that only this view needs
	Output  Output
	Show    string                 // columns of the table, in order: "pid comm:PROCESS raddr"
	Line    string                 // a sentence in place of the table
	Says    string                 // what a row says beside other tools' rows, besides who and where: see sink.Timeline
	NoStack string                 // what the table says where a row has no kernel stack; empty: nothing
	Time    string                 // how the time column reads unless --time says otherwise; empty: clock
	By      []string               // of a counting view: key fields unless --by names others
	Always  []string               // key fields that are filled whatever --by says
	Stacks  []string               // key fields for -o folded unless --by names others; nil: By
	Merge   bool                   // rows of one output that have the same names are one
	Where   string                 // keeps rows, as --where does
	Format  string                 // the one that is written unless -o says otherwise; empty: the tool's
	Sort    string                 // of an output: the column it is sorted by, largest first
	Ticks   string                 // the flag that makes no sense without an interval; empty: there is none
	Above   func(time.Time) string // a line above each output: a load average
	Book    func(*row.Row)         // for -o book: what the book's form has otherwise; nil: nothing
}

// Kind says when a view prints.
type Kind int

// The kinds of views.
const (
	Events   Kind = iota // rows as they happen
	Interval             // an output at each tick
	Counting             // one output at the end, or one per tick
)

// Output reads what the kernel side of a view produces.
type Output interface {
	Kind() Kind
	Schema() (*row.Schema, error)
	Check(*ebpf.CollectionSpec) error // do Go and C agree? needs no kernel
	open(*Session, *View, int) (reader, error)
}

// A reader is an Output at work. It hands rows to the session's sink.
type reader interface {
	event(raw []byte) error // one record of the ring that is for this view
	output(last bool) error // all rows of one output
}

// Graph says how rows become a graph, for -o dot.
type Graph struct {
	From, To []string // columns that name a node
	Sum      []string // columns that are added up on an edge
	Unit     string   // what a row is: "sessions"
}

// Plot says how rows become a picture, for -o svg and -o png: of each thing that
// Key names a panel for each list of columns, over the column X.
type Plot struct {
	Key          []string   // columns that tell things apart
	Title        []string   // columns that head them
	X            string     // microseconds
	Panels       [][]string // columns to draw as lines
	Units        []string   // of each panel
	Mark, Marked string     // rows whose column Mark holds Marked get a cross
	Busiest      int        // how many things are drawn; 0: the one whose lines move most
	Shares       bool       // columns are milliseconds of the time that a row covers, drawn as shares of it
	Ended        string     // a column that is true in the last row of a thing
}

// Viewer is a config whose run shows one view: the one that --view names, or the tool's choice for
// "". Until SetView is called the tool has all of its views.
type Viewer interface{ SetView(name string) error }

// AllViews is the --view of a [Viewer] that shows all of its views.
const AllViews = "all"

// One makes a Views function of a single view.
func One(v View) func(any) []View { return func(any) []View { return []View{v} } }

// Kind is when the tool prints with this config: that of its first view.
func (t *Tool) Kind(cfg any) Kind { return t.Views(cfg)[0].Output.Kind() }

// NewConfig returns a fresh config, an empty struct for tools without one.
func (t *Tool) NewConfig() any {
	if t.Config == nil {
		return &struct{}{}
	}
	return t.Config()
}

// AllPoints lists the points that the views of cfg need on the running kernel, each once, in the
// order in which they are attached.
func (t *Tool) AllPoints(spec *ebpf.CollectionSpec, cfg any) []probe.Point {
	k, err := probe.Running()
	if err == nil {
		if names, err := asked(t.Name); err == nil {
			k.Types.Look(names...)
		}
	}
	return t.points(spec, cfg, func(p probe.Point) bool { return err != nil || p.Needed == nil || p.Needed(k) })
}

// EveryPoint lists the points that the views of cfg need on any kernel.
func (t *Tool) EveryPoint(spec *ebpf.CollectionSpec, cfg any) []probe.Point {
	return t.points(spec, cfg, func(probe.Point) bool { return true })
}

func (t *Tool) points(spec *ebpf.CollectionSpec, cfg any, needed func(probe.Point) bool) []probe.Point {
	points := held(spec, ownersFirst)
	seen := map[string]bool{}
	add := func(ps []probe.Point) {
		for _, p := range ps {
			if !seen[p.Name] {
				seen[p.Name] = true
				points = append(points, p)
			}
		}
	}
	add(t.Points)
	for _, v := range t.Views(cfg) {
		add(v.Points)
	}
	points = append(points, held(spec, ownersLast)...)
	return slices.DeleteFunc(points, func(p probe.Point) bool { return !needed(p) })
}

// Schemas returns the schemas of views, with names and default columns filled in.
func (t *Tool) Schemas(views []View) ([]*row.Schema, error) {
	var out []*row.Schema
	for i := range views {
		s, err := views[i].Output.Schema()
		if err != nil {
			return nil, err
		}
		s.Tool, s.View, s.Line, s.NoStack = t.Name, views[i].Name, views[i].Line, views[i].NoStack
		if err := s.SetShow(views[i].Show); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
