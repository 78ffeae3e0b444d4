// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/object"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

// tree is a copy of the project that mutants are put into.
type tree struct {
	dir  string
	base map[string]programs // of each tool's object as it is
}

// programs are the instructions of an object's programs, by name.
type programs map[string]string

// mapPrefix tells maps from programs.
const mapPrefix = "map "

// copyTree copies the files that git knows, as they are in the working tree.
func copyTree(ctx context.Context) (*tree, error) {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	dir, err := os.MkdirTemp("", "seine-mutants-")
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
	return &tree{dir: dir, base: map[string]programs{}}, nil
}

// output runs a command in the tree and returns all that it printed.
func (t *tree) output(ctx context.Context, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = t.dir
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	b, err := c.CombinedOutput()
	return string(b), err
}

// baseline reads the objects as they are without a mutant.
func (t *tree) baseline() error {
	objects, err := filepath.Glob(filepath.Join(t.dir, t.object("*")))
	if err != nil {
		return err
	}
	for _, o := range objects {
		name, _, _ := strings.Cut(filepath.Base(o), ".")
		if t.base[name], err = t.read(name); err != nil {
			return err
		}
	}
	return nil
}

// object is where a tool's object for this machine is kept.
func (t *tree) object(name string) string {
	return filepath.Join("internal/object", runtime.GOARCH, name+".o.gz")
}

// read returns the programs of a tool's object.
func (t *tree) read(name string) (programs, error) {
	f, err := os.Open(filepath.Join(t.dir, t.object(name)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(z); err != nil {
		return nil, err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b.Bytes()))
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

// reachable returns the names of the programs of a tool that this kernel attaches
// by some way.
func reachable(name string) (map[string]bool, error) {
	i := slices.IndexFunc(tools.All, func(t *tool.Tool) bool { return t.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("no tool %s", name)
	}
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	spec, err := object.Spec(name)
	if err != nil {
		return nil, err
	}
	points := tools.All[i].AllPoints(spec, tools.All[i].NewConfig())
	forces := []string{""}
	for _, p := range points {
		for _, w := range p.WaysIn(spec) {
			forces = append(forces, w.Name)
		}
	}
	out := map[string]bool{}
	for _, f := range forces {
		for _, c := range probe.Predict(k, spec, points, probe.Force{All: f}) {
			for _, p := range c.Programs {
				out[p] = true
			}
		}
	}
	return out, nil
}

// try puts one mutant into the tree, looks who notices, and takes it out again.
func (t *tree) try(ctx context.Context, m mutant, engine bool) (verdict, error) {
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
	if engine {
		v.Tools = engineTools
	} else {
		names, err := includes(t.dir, m.File)
		if err != nil {
			return v, err
		}
		if v.Ended, v.Tools, err = t.compile(ctx, names); err != nil || v.Ended != "" {
			return v, err
		}
		defer t.restore(v.Tools)
	}
	v.Ended, v.By = t.test(ctx, v.Tools, engine)
	return v, nil
}

// compile makes the objects of tools anew and returns those that changed.
func (t *tree) compile(ctx context.Context, names []string) (ended string, changed []string, err error) {
	out, err := t.output(ctx, "go", append([]string{"run", "./internal/gen"}, names...)...)
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}
	if err != nil {
		if !strings.Contains(out, "clang") {
			return "", nil, fmt.Errorf("%w: %s", err, out)
		}
		t.restore(names)
		return stillborn, nil, nil
	}
	ended = equivalent
	for _, name := range names {
		now, err := t.read(name)
		if err != nil {
			return "", nil, err
		}
		if reflect.DeepEqual(now, t.base[name]) {
			continue
		}
		here, err := reachable(name)
		if err != nil {
			return "", nil, err
		}
		if !differ(now, t.base[name], here) {
			if ended == equivalent {
				ended = elsewhere
			}
			continue
		}
		changed = append(changed, name)
	}
	if len(changed) > 0 {
		return "", changed, nil
	}
	t.restore(names)
	return ended, nil, nil
}

// differ tells whether a map changed, or a program that this kernel attaches.
func differ(now, base programs, here map[string]bool) bool {
	for n, ins := range now {
		if ins != base[n] && (here[n] || strings.HasPrefix(n, mapPrefix)) {
			return true
		}
	}
	return len(now) != len(base)
}

// restore puts the objects of the working tree back.
func (t *tree) restore(names []string) {
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range names {
			at := filepath.Join("internal/object", arch, name+".o.gz")
			if b, err := os.ReadFile(at); err == nil {
				os.WriteFile(filepath.Join(t.dir, at), b, 0o644)
			}
		}
	}
}

// engineTools are those whose live tests look at the engine's Go: one of each kind
// of output.
var engineTools = []string{"tcplife", "socketio", "so1stbyte", "tcptop", "skbdrop", "sockstat"}

// enginePackages have unit tests of it.
var enginePackages = []string{"./internal/tool", "./internal/row", "./internal/kern", "./internal/probe", "./internal/sink", "./tools"}

var failed = regexp.MustCompile(`--- FAIL: (\S+)`)

// test runs what should notice: the best way first, then the others.
func (t *tree) test(ctx context.Context, names []string, engine bool) (ended, by string) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	notices := func(out string, err error) bool {
		if err == nil {
			return false
		}
		by = "exit"
		if m := failed.FindAllStringSubmatch(out, -1); m != nil {
			by = m[len(m)-1][1]
		}
		return true
	}
	if engine && notices(t.output(ctx, "go", append([]string{"test", "-failfast"}, enginePackages...)...)) {
		return killed, by
	}
	live := filepath.Join(t.dir, "live.test")
	if notices(t.output(ctx, "go", "test", "-c", "-o", live, "./test/live")) {
		return killed, "build"
	}
	run := "-test.run=^TestLive$/^(" + strings.Join(names, "|") + ")$"
	for _, ways := range [][]string{{"-best"}, {}} {
		if notices(t.output(ctx, live, append(ways, "-test.v", "-test.failfast", "-test.timeout=14m", run)...)) {
			return killed, by
		}
	}
	if !engine && notices(t.output(ctx, "go", "test", "./tools")) {
		return killed, by
	}
	return survived, ""
}
