// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A Choice is the way that a point took, or why it has none.
type Choice struct {
	Point    string
	Way      string   // empty: none
	Programs []string // that were attached
	Misses   string   // what is not seen by that way, or without the point
	Nested   bool     // as of the way
	Refused  []Refusal
}

// A Refusal says why a way was not taken.
type Refusal struct {
	Way string
	Err error
}

// refuse notes why a way is not taken, once: a way may come in several forms.
func (c *Choice) refuse(way string, err error) {
	if !slices.ContainsFunc(c.Refused, func(r Refusal) bool { return r.Way == way && Reason(r.Err) == Reason(err) }) {
		c.Refused = append(c.Refused, Refusal{way, err})
	}
}

// A Set is the points of one tool, attached.
type Set struct {
	Maps     map[string]*ebpf.Map
	Vars     map[string]*ebpf.Variable
	Choices  []Choice
	Programs map[string]*ebpf.Program
	Iters    map[string][]*link.Iter // by point, for the way iter: run them to see what is there

	coll      *ebpf.Collection
	opts      ebpf.CollectionOptions // for its programs
	constants constants
	other     func(Point, *ebpf.Program, *ebpf.ProgramSpec) io.Closer
	links     []placed

	mu     sync.Mutex                               // guards Programs and what follows while programs are loaded
	loaded map[string]func() (*ebpf.Program, error) // classic tracepoints, by their code
	twice  *Twice
}

// Force is --way: a way for all points that have it, and for single points.
type Force struct {
	All     string
	ByPoint map[string]string
}

func (f Force) of(point string, ways []Way) (string, error) {
	way, one := f.ByPoint[point]
	if !one {
		way = f.All
	}
	has := slices.ContainsFunc(ways, func(w Way) bool { return w.Name == way })
	if way != "" && !has && one {
		return "", fmt.Errorf("point %s has no way %s: %w", point, way, ErrNoWay)
	}
	if !has {
		return "", nil
	}
	return way, nil
}

// ErrNoWay is the error of a --way that no point here has.
var ErrNoWay = errors.New("no such way")

// CheckForce returns an error if f names a way that none of these points has.
func CheckForce(spec *ebpf.CollectionSpec, points []Point, f Force) error {
	known := map[string]bool{}
	used := f.All == ""
	for _, p := range points {
		known[p.Name] = true
		ways := p.resolve(spec)
		if _, err := f.of(p.Name, ways); err != nil {
			return err
		}
		used = used || slices.ContainsFunc(ways, func(w Way) bool { return w.Name == f.All })
	}
	for name := range f.ByPoint {
		if !known[name] {
			return fmt.Errorf("there is no point %s: %w", name, ErrNoWay)
		}
	}
	if !used {
		return fmt.Errorf("no point has the way %s: %w", f.All, ErrNoWay)
	}
	return nil
}

// Options say how a tool is attached. The zero value works.
type Options struct {
	Force Force
	Log   ebpf.LogLevel                         // of the verifier, for -vv
	Fill  func(maps map[string]*ebpf.Map) error // called before any program runs; nil: nothing to do
	// Loaded is called when all programs are loaded, before any is attached; nil: nothing to do.
	Loaded func()
	// Share are maps that others use too. They replace the maps of the same name in the
	// object, which are not created.
	Share map[string]*ebpf.Map
	// Instead attaches a program elsewhere than its section says. It returns nil if it does not; may
	// be nil.
	Instead func(Point, *ebpf.Program, *ebpf.ProgramSpec) io.Closer
	// Ahead is what Begin has begun for this object; nil: the types are decoded now.
	Ahead *Ahead
	// Once attaches each program once, even where the kernel skips programs and several copies
	// would be needed to see everything.
	Once bool
}

// shared are the maps of spec that o has. Their sizes do not change.
func (o *Options) shared(spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name, m := range o.Share {
		if s := spec.Maps[name]; s != nil {
			s.MaxEntries = m.MaxEntries()
			out[name] = m
		}
	}
	return out
}

// Attach makes the maps of spec once, loads the programs of all points, and then attaches them in
// order. It attaches quickly, since events meanwhile are seen by some programs and not by others.
// For the same reason points that see the end of something come before those that see its
// beginning. A way that does not fit, or that the verifier or the attach refuses, is replaced by
// the next one, and the reason is kept.
func Attach(k *Kernel, spec *ebpf.CollectionSpec, points []Point, o Options) (_ *Set, err error) {
	bare := &ebpf.CollectionSpec{Maps: spec.Maps, Types: spec.Types, ByteOrder: spec.ByteOrder, Variables: spec.Variables}
	coll, err := ebpf.NewCollectionWithOptions(bare, ebpf.CollectionOptions{MapReplacements: o.shared(spec)})
	if err != nil {
		return nil, fmt.Errorf("making maps: %w", err)
	}
	s := &Set{
		Maps: coll.Maps, Vars: coll.Variables, coll: coll, constants: constantsOf(spec), other: o.Instead,
		Programs: map[string]*ebpf.Program{}, Iters: map[string][]*link.Iter{}, loaded: map[string]func() (*ebpf.Program, error){},
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.opts, err = k.load(spec, o.Ahead); err != nil {
		return nil, err
	}
	s.opts.Programs.LogLevel = o.Log
	if o.Fill != nil {
		if err := o.Fill(s.Maps); err != nil {
			return nil, err
		}
	}
	if !o.Once {
		if s.twice, err = NewTwice(); err != nil {
			return nil, err
		}
	}
	all, err := s.candidates(k, spec, points, o.Force)
	if err != nil {
		return nil, err
	}
	if o.Loaded != nil {
		o.Loaded()
	}
	for _, c := range all {
		err := c.attach(s)
		s.Choices = append(s.Choices, c.Choice)
		if err != nil {
			return nil, err
		}
	}
	s.twice.Begin()
	s.opts = ebpf.CollectionOptions{} // types of the kernel: nothing is loaded any more
	return s, nil
}

// A candidate is a point on its way to be attached.
type candidate struct {
	Choice
	point Point
	must  bool // it is an error if no way works
	ways  []Way
	load  func(Way) ([]loaded, error)
	ready []loaded // programs of the first of the ways
}

// A loaded program is in the kernel, and is to be attached.
type loaded struct {
	prog  *ebpf.Program
	spec  *ebpf.ProgramSpec
	again bool // not the first copy
}

// A placed program is attached.
type placed struct {
	io.Closer
	again bool
}

// candidates loads the programs of all points, as many at once as there are processors: the verifier takes most of the
// time. Long programs are loaded first: if one of them came last, the other processors would wait for it.
func (s *Set) candidates(k *Kernel, spec *ebpf.CollectionSpec, points []Point, f Force) ([]*candidate, error) {
	all, errs := make([]*candidate, len(points)), make([]error, len(points))
	todo := make(chan int, len(points))
	for _, i := range longestFirst(spec, points) {
		todo <- i
	}
	close(todo)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range todo {
				all[i], errs[i] = s.candidate(k, spec, points[i], f)
			}
		})
	}
	wg.Wait()
	for _, err := range errs { // the first point's, whichever was first in time
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// longestFirst orders points, by index, by the length of the programs of their first way.
func longestFirst(spec *ebpf.CollectionSpec, points []Point) []int {
	order, length := make([]int, len(points)), make([]int, len(points))
	for i, p := range points {
		order[i] = i
		if ways := p.resolve(spec); len(ways) > 0 {
			for _, name := range ways[0].Programs {
				if ps := spec.Programs[name]; ps != nil {
					length[i] += len(ps.Instructions)
				}
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(length[b], length[a]) })
	return order
}

// candidate loads the programs of the first way to p that can be loaded.
func (s *Set) candidate(k *Kernel, spec *ebpf.CollectionSpec, p Point, f Force) (*candidate, error) {
	ways := p.resolve(spec)
	forced, err := f.of(p.Name, ways)
	if err != nil {
		return nil, err
	}
	_, named := f.ByPoint[p.Name]
	c := &candidate{
		Choice: Choice{Point: p.Name, Misses: p.Misses}, point: p, must: !p.Optional || named, ways: only(ways, forced),
		load: func(w Way) ([]loaded, error) { return s.loadWay(k, spec, p, w) },
	}
	return c, c.next()
}

// next loads programs until it has those of a whole way.
func (c *candidate) next() error {
	for len(c.ways) > 0 {
		var err error
		if c.ready, err = c.load(c.ways[0]); err == nil {
			return nil
		}
		if err := c.refused(err); err != nil {
			return err
		}
	}
	if c.must {
		return &PointError{c.Choice}
	}
	return nil
}

// refused goes on to the next way.
func (c *candidate) refused(err error) error {
	// EMFILE is our own limit of open files, not a refusal by the kernel: another way would
	// not help. Where cilium/ebpf copies the descriptor of a map, its error has only the text.
	if strings.Contains(err.Error(), unix.EMFILE.Error()) {
		return fmt.Errorf("point %s: %w: raise the limit (ulimit -n)", c.Point, unix.EMFILE)
	}
	c.refuse(c.ways[0].Name, err)
	c.ways = c.ways[1:]
	return nil
}

func (c *candidate) attach(s *Set) error {
	for len(c.ways) > 0 {
		err := s.place(c.point, c.ready)
		if err == nil {
			w := c.ways[0]
			c.Way, c.Programs, c.Misses, c.Nested = w.Name, w.Programs, w.Misses, w.Nested
			return nil
		}
		if err := c.refused(err); err != nil {
			return err
		}
		if err := c.next(); err != nil {
			return err
		}
	}
	return nil
}

// only keeps the ways called name; all if name is empty.
func only(ways []Way, name string) []Way {
	if name == "" {
		return ways
	}
	return slices.DeleteFunc(slices.Clone(ways), func(w Way) bool { return w.Name != name })
}

// A PointError is the error of a point without a way.
type PointError struct{ Choice Choice }

func (e *PointError) Error() string {
	msg := "point " + e.Choice.Point + ": no way works here"
	last := ""
	for _, r := range e.Choice.Refused {
		why := Reason(r.Err)
		if why == last { // said already
			continue
		}
		msg += "; " + r.Way + ": " + why
		last = why
	}
	return msg
}

// Unwrap gives the reasons.
func (e *PointError) Unwrap() []error {
	var errs []error
	for _, r := range e.Choice.Refused {
		errs = append(errs, r.Err)
	}
	return errs
}

func (s *Set) loadWay(k *Kernel, spec *ebpf.CollectionSpec, p Point, w Way) ([]loaded, error) {
	if w.Fits != nil {
		if err := w.Fits(k); err != nil {
			return nil, err
		}
	}
	if len(w.Programs) == 0 {
		return nil, fmt.Errorf("%w: no programs", ErrNotSupported)
	}
	var out []loaded
	for _, name := range w.Programs {
		ps := spec.Programs[name]
		err := k.can(kindOf(ps))
		if err == nil && ps.Type == ebpf.Tracing { // cilium/ebpf would look for it in every module
			err = k.target(ps)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, c := range s.copies(p, w, ps) {
			l := loaded{spec: c.ProgramSpec, again: c.Again > 0}
			if l.prog, err = s.load(spec, l.spec, nameOf(name, c)); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func (s *Set) copies(p Point, w Way, ps *ebpf.ProgramSpec) []Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.Attach != nil:
		return []Copy{{ps, 0}}
	case w.Nested:
		return s.twice.Uncounted(ps)
	}
	return s.twice.Copies(ps)
}

// place attaches programs, all or none.
func (s *Set) place(p Point, all []loaded) error {
	attach := p.Attach
	if attach == nil {
		attach = func(prog *ebpf.Program, ps *ebpf.ProgramSpec) (io.Closer, error) {
			if s.other != nil {
				if where := s.other(p, prog, ps); where != nil {
					return where, nil
				}
			}
			return bySection(prog, ps, s.Maps)
		}
	}
	attached := len(s.links)
	for _, l := range all {
		where, err := attach(l.prog, l.spec)
		if err != nil {
			for _, l := range slices.Backward(s.links[attached:]) {
				l.Close()
			}
			s.links = s.links[:attached]
			return fmt.Errorf("%s: attaching: %w", l.spec.Name, err)
		}
		if it, ok := where.(*link.Iter); ok {
			s.Iters[p.Name] = append(s.Iters[p.Name], it)
		}
		s.links = append(s.links, placed{where, l.again})
	}
	return nil
}

// load brings a program into the kernel. Programs on classic tracepoints do not
// know where they are attached, so those of the same code are loaded once: the
// exits of a dozen system calls are one program.
func (s *Set) load(spec *ebpf.CollectionSpec, ps *ebpf.ProgramSpec, name string) (*ebpf.Program, error) {
	load := func() (*ebpf.Program, error) {
		folded := s.constants.fold(ps)
		one := &ebpf.CollectionSpec{
			Maps: map[string]*ebpf.MapSpec{}, Types: spec.Types, ByteOrder: spec.ByteOrder,
			Programs: map[string]*ebpf.ProgramSpec{name: folded},
		}
		opts := s.opts
		opts.MapReplacements = map[string]*ebpf.Map{}
		for _, m := range mapsOf(folded) { // cilium/ebpf copies the descriptors of all maps, used or not
			one.Maps[m], opts.MapReplacements[m] = spec.Maps[m], s.Maps[m]
		}
		coll, err := ebpf.NewCollectionWithOptions(one, opts)
		if err != nil {
			return nil, err
		}
		defer coll.Close()
		prog := coll.DetachProgram(name)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Programs[name] = prog
		return prog, nil
	}
	if ps.Type != ebpf.TracePoint {
		return load()
	}
	code := codeOf(ps)
	s.mu.Lock()
	once := s.loaded[code]
	if once == nil {
		once = sync.OnceValues(load)
		s.loaded[code] = once
	}
	s.mu.Unlock()
	return once()
}

// mapsOf are the maps that a program refers to.
func mapsOf(ps *ebpf.ProgramSpec) (names []string) {
	for i := range ps.Instructions {
		if ins := &ps.Instructions[i]; ins.IsLoadFromMap() && ins.Reference() != "" && !slices.Contains(names, ins.Reference()) {
			names = append(names, ins.Reference())
		}
	}
	return names
}

// codeOf is equal for programs of the same instructions.
func codeOf(ps *ebpf.ProgramSpec) string {
	var b []byte
	for i := range ps.Instructions {
		ins := &ps.Instructions[i]
		b = binary.LittleEndian.AppendUint64(b, uint64(ins.Constant))
		b = binary.LittleEndian.AppendUint16(b, uint16(ins.Offset))
		b = binary.LittleEndian.AppendUint16(b, uint16(ins.OpCode))
		b = append(b, byte(ins.Dst|ins.Src<<4))
		b = append(b, ins.Reference()...)
		if r := btf.CORERelocationMetadata(ins); r != nil {
			b = append(b, r.String()...)
		}
		b = append(b, '\n')
	}
	return string(b)
}

// again is in the names of all copies but the first.
const again = "__again"

func nameOf(name string, c Copy) string {
	if c.Again > 0 {
		name += again + fmt.Sprint(c.Again)
	}
	return name
}

// Missed is how many events were lost because the kernel skipped a program.
func (s *Set) Missed() uint64 {
	var progs []*ebpf.Program
	for name, p := range s.Programs {
		nested := slices.ContainsFunc(s.Choices, func(c Choice) bool { return c.Nested && slices.Contains(c.Programs, name) })
		if !nested && !strings.Contains(name, again) {
			progs = append(progs, p)
		}
	}
	return s.twice.Missed(progs)
}

// Detach detaches all programs but iterators. Each detach waits for the kernel's grace period, so
// they wait together. First copies are detached last: another copy that is alone would count the
// events that it sees as skipped by the first.
func (s *Set) Detach() {
	s.detach(func(l placed) bool { return l.again })
	s.detach(func(l placed) bool { _, iter := l.Closer.(*link.Iter); return !iter })
}

// detach detaches some programs.
func (s *Set) detach(which func(placed) bool) {
	var wg sync.WaitGroup
	for _, l := range s.links {
		if which(l) {
			wg.Go(func() { l.Close() })
		}
	}
	wg.Wait()
	s.links = slices.DeleteFunc(s.links, which)
}

// Close detaches the points and frees programs and maps.
func (s *Set) Close() {
	s.Detach()
	for _, l := range s.links {
		l.Close()
	}
	for _, p := range s.Programs {
		p.Close()
	}
	s.twice.Close()
	s.coll.Close()
}
