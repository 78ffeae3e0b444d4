// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	objects "seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

// base is what all workers share: binaries of the project as it is.
type base struct {
	dir     string
	gen     string              // compiles objects
	live    string              // the live tests
	objects map[string]programs // of each tool
	mu      sync.Mutex
	tests   map[string]string // test binaries of packages, for -go
}

// tree is a copy of the project that mutants are put into.
type tree struct {
	*base
	dir string
}

// programs are the instructions of an object's programs, by name.
type programs map[string]string

// mapPrefix distinguishes maps from programs.
const mapPrefix = "map "

// prepare builds what the workers share.
func prepare(ctx context.Context) (*base, error) {
	dir, err := os.MkdirTemp("", "seine-mutants-")
	if err != nil {
		return nil, err
	}
	b := &base{dir: dir, gen: filepath.Join(dir, "gen"), live: filepath.Join(dir, "objects.test"), objects: map[string]programs{}, tests: map[string]string{}}
	for _, c := range [][]string{{"build", "-trimpath", "-o", b.gen, "./internal/gen"}, {"test", "-c", "-trimpath", "-o", b.live, "./test/live"}} {
		if out, err := output(ctx, ".", nil, "go", c...); err != nil {
			return nil, fmt.Errorf("go %s: %w: %s", c[0], err, out)
		}
	}
	objects, err := filepath.Glob(object("*"))
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		name, _, _ := strings.Cut(filepath.Base(o), ".")
		if b.objects[name], err = read(object(name)); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// tree copies the files that git knows, as they are in the working tree.
func (b *base) tree(ctx context.Context) (*tree, error) {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	dir, err := os.MkdirTemp("", "seine-mutants-tree-")
	if err != nil {
		return nil, err
	}
	for f := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return nil, err
		}
		to := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			return nil, err
		}
	}
	return &tree{b, dir}, nil
}

// output runs a command in a folder and returns all that it printed.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	c.WaitDelay = 10 * time.Second // a child may hold the pipe
	b, err := c.CombinedOutput()
	return string(b), err
}

// object is where a tool's object for this machine is kept.
func object(name string) string {
	return filepath.Join("internal/object", runtime.GOARCH, name+".o.zst")
}

// read returns the programs of an object.
func read(file string) (programs, error) {
	packed, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	b, err := objects.Unpack(packed)
	if err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out := programs{}
	for n, p := range spec.Programs {
		var text strings.Builder
		for _, ins := range p.Instructions { // without the source lines beside them
			fmt.Fprintln(&text, ins)
		}
		out[n] = text.String()
	}
	for n, m := range spec.Maps {
		// Constants and the sizes of maps matter to every program.
		out[mapPrefix+n] = fmt.Sprint(m.Type, m.KeySize, m.ValueSize, m.MaxEntries, m.Contents)
	}
	return out, nil
}

// attached returns the programs of a tool that this kernel attaches, by each way; ""
// is the best one.
func attached(name string) (map[string][]string, error) {
	all := append(slices.Clone(tools.All), tool.Owners)
	i := slices.IndexFunc(all, func(t *tool.Tool) bool { return t.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("no tool %s", name)
	}
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	spec, err := objects.Spec(name)
	if err != nil {
		return nil, err
	}
	points := all[i].AllPoints(spec, all[i].NewConfig())
	forces := []string{""}
	for _, p := range points {
		for _, w := range p.WaysIn(spec) {
			forces = append(forces, w.Name)
		}
	}
	out := map[string][]string{}
	for _, f := range forces {
		for _, c := range probe.Predict(k, spec, points, probe.Force{All: f}) {
			out[f] = append(out[f], c.Programs...)
		}
	}
	return out, nil
}

// A change is a tool whose object a mutant changed.
type change struct {
	tool string
	best bool // programs that the best way attaches, or maps
}

// try puts one mutant into the tree, finds the test that notices it, and
// removes it again.
func (t *tree) try(ctx context.Context, m mutant) (verdict, error) {
	v := verdict{mutant: m}
	path := filepath.Join(t.dir, m.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	if err := os.WriteFile(path, []byte(m.apply(string(text))), 0o644); err != nil {
		return v, err
	}
	defer os.WriteFile(path, text, 0o644)
	j := &judge{tree: t, v: &v}
	if *engine {
		j.engine(ctx)
		return v, nil
	}
	names, err := includes(t.dir, m.File)
	if err != nil {
		return v, err
	}
	defer t.restore(names)
	v.Ended = stillborn
	var untried []string
	for i, name := range names {
		c, ended, err := t.compile(ctx, name)
		if err != nil {
			return v, err
		}
		if c == nil {
			if v.Ended == stillborn || ended == elsewhere {
				v.Ended = ended // no object has changed, so far
			}
			continue
		}
		v.Tools = append(v.Tools, name)
		if j.changes = append(j.changes, *c); j.live(ctx, *c) {
			return v, nil
		}
		if len(j.changes) == *enough {
			untried = names[i+1:]
			break
		}
	}
	if len(j.changes) > 0 {
		err = j.rest(ctx, untried)
	}
	return v, err
}

// compile compiles the object of a tool. If the change affects this kernel, it
// returns the change, else the reason why not.
func (t *tree) compile(ctx context.Context, name string) (c *change, ended string, err error) {
	out, err := output(ctx, t.dir, nil, t.gen, "-lax", "-arch", runtime.GOARCH, name)
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if err != nil {
		if !strings.Contains(out, "clang") {
			return nil, "", fmt.Errorf("%w: %s", err, out)
		}
		return nil, stillborn, nil
	}
	now, err := read(filepath.Join(t.dir, object(name)))
	if err != nil {
		return nil, "", err
	}
	before := t.objects[name]
	if reflect.DeepEqual(now, before) {
		return nil, same, nil
	}
	ways, err := attached(name)
	if err != nil {
		return nil, "", err
	}
	best := differ(now, before, ways[""])
	if !best && !differ(now, before, slices.Concat(slices.Collect(maps.Values(ways))...)) {
		return nil, elsewhere, nil
	}
	return &change{name, best}, "", nil
}

// differ reports whether a map or one of the programs changed.
func differ(now, base programs, of []string) bool {
	for n, ins := range now {
		if ins != base[n] && (slices.Contains(of, n) || strings.HasPrefix(n, mapPrefix)) {
			return true
		}
	}
	return len(now) != len(base)
}

// restore puts the objects of the working tree back.
func (t *tree) restore(names []string) {
	for _, name := range names {
		if b, err := os.ReadFile(object(name)); err == nil {
			os.WriteFile(filepath.Join(t.dir, object(name)), b, 0o644)
		}
	}
}

// includes lists the objects whose source is file or includes it, at any depth: those of tools,
// and those that tools share.
func includes(dir, file string) ([]string, error) {
	if name, ok := strings.CutSuffix(filepath.Base(file), ".bpf.c"); ok {
		return []string{name}, nil
	}
	sources, err := filepath.Glob(filepath.Join(dir, "tools/*/*.bpf.c"))
	if err != nil {
		return nil, err
	}
	shared, err := filepath.Glob(filepath.Join(dir, "bpf/*.bpf.c"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, src := range append(sources, shared...) {
		seen := map[string]bool{}
		if err := headersOf(dir, src, seen); err != nil {
			return nil, err
		}
		if seen[filepath.Base(file)] {
			out = append(out, strings.TrimSuffix(filepath.Base(src), ".bpf.c"))
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(soon(a)-soon(b), strings.Compare(a, b)) })
	return out, nil
}

// quick are tools whose live cases take a few seconds, slow those that take more than
// ten.
var (
	quick = []string{"solisten", "tcpbind", "udpconnect", "socksize", "tcpaccept", "skbdrop", "soaccept", "socketio", "tcpsnoop"}
	slow  = []string{"filetype", "qdisclat", "soconnect", "profile", "tcplife", "gethostlatency", "solife"}
)

// soon orders tools.
func soon(name string) int {
	if i := slices.Index(quick, name); i >= 0 {
		return i - len(quick)
	}
	return slices.Index(slow, name) + 1 // 0: neither
}

// headersOf adds the headers of bpf/ that src includes to seen.
func headersOf(dir, src string, seen map[string]bool) error {
	text, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), `#include "`)
		if !ok {
			continue
		}
		name = strings.TrimSuffix(name, `"`)
		if seen[name] {
			continue
		}
		seen[name] = true
		if err := headersOf(dir, filepath.Join(dir, "bpf", name), seen); err != nil {
			return err
		}
	}
	return nil
}
