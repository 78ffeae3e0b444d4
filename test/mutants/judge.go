// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"seine/internal/tool"
)

// A judge finds out whether a test notices a mutant.
type judge struct {
	*tree
	v       *verdict
	changes []change
}

// A trial is tests of one binary, with the mutant and without it.
type trial struct {
	flags         []string
	run           string // names, as for -test.run
	with, without command
}

// command runs a test binary with flags.
type command func(ctx context.Context, flags ...string) (string, error)

var failed = regexp.MustCompile(`--- FAIL: (\S+)`)

// limit is the time limit of the tests of one tool. A mutant may make them wait for
// rows that never come; without a mutant they take less than a minute.
const limit = 6 * time.Minute

// notices reports whether a test of the trial fails because of the mutant. A test
// that also fails without it, or fails only once, proves nothing: the load of the
// machine may be the reason. The rest of the trial is then run without that test.
func (j *judge) notices(ctx context.Context, t trial) bool {
	var skip []string
	for len(skip) < 5 {
		if ctx.Err() != nil {
			return false
		}
		name, ok := fails(ctx, t.with, t.flags, t.run, skip)
		if !ok {
			return false
		}
		run := t.run
		if name != "" {
			run = exactly(name)
		}
		_, before := fails(ctx, t.without, t.flags, run, nil)
		again := false
		if !before {
			_, again = fails(ctx, t.with, t.flags, run, nil)
		}
		if again {
			j.v.Ended, j.v.By = killed, name
			if name == "" {
				j.v.By = t.run + " ends early"
			}
			return true
		}
		j.v.Doubtful = append(j.v.Doubtful, name)
		if name == "" {
			return false
		}
		skip = append(skip, exactly(name))
	}
	return false
}

// fails runs tests and returns the first that failed, "" if the binary ended in
// another way.
func fails(ctx context.Context, do command, flags []string, run string, skip []string) (name string, failed bool) {
	all := append(slices.Clone(flags), "-test.v", "-test.failfast", fmt.Sprint("-test.timeout=", limit), "-test.run="+run)
	if len(skip) > 0 {
		all = append(all, "-test.skip="+strings.Join(skip, "|"))
	}
	out, err := do(ctx, all...)
	if err == nil {
		return "", false
	}
	return leaf(out), true
}

// leaf is the first failed test that has no failed test below it.
func leaf(out string) string {
	var names []string
	for _, m := range failed.FindAllStringSubmatch(out, -1) {
		names = append(names, m[1])
	}
	for _, n := range names {
		if !slices.ContainsFunc(names, func(other string) bool { return strings.HasPrefix(other, n+"/") }) {
			return n
		}
	}
	return ""
}

// exactly is the pattern of -test.run for one test.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// binary is a command that runs a test binary in a folder.
func binary(file, dir string, env ...string) command {
	return func(ctx context.Context, flags ...string) (string, error) {
		return output(ctx, dir, env, file, flags...)
	}
}

// byTool are live tests with a part for each tool, besides its cases; general are
// those of what tools share.
const (
	byTool  = "^Test(Load|Keys|Accounts|Forgets|Threads|Agree|Leaderless|Between|Slots|OwnersShared)$/^"
	general = "^Test(IdleKeys|Turns|LossesTold|StackTables|OwnerWhole|Apart|SameName|KernelThread)$"
)

// generalTools are those that the general tests look at.
var generalTools = []string{"skbdrop", "skblife", "socketio", "socksize", "tcplife", "tcpretrans", "tcptop"}

// objectTests are live tests with the objects of the tree.
func (j *judge) objectTests(run string, flags ...string) trial {
	return trial{flags, run, binary(j.base.live, j.tree.dir, j.theirObjects()), binary(j.base.live, ".")}
}

// declared are the tests of ring 1 that look at objects, but for those that relocate
// each one for each kernel, which take long.
func (j *judge) declared() trial {
	t := j.pkg("./tools", "tools")
	t.run = "^Test(Layout|Constants|Points|Uses|Declared|Order|UprobeStacks|Scratch)$"
	t.with = func(ctx context.Context, flags ...string) (string, error) {
		b, err := j.original(ctx, "./tools")
		if err != nil {
			return "", err
		}
		return output(ctx, filepath.Join(j.tree.dir, "tools"), []string{j.theirObjects()}, b, flags...)
	}
	return t
}

// theirObjects makes tests use the objects of the tree, so that nothing has to be
// linked for a mutant.
func (j *judge) theirObjects() string {
	return "SEINE_TEST_OBJECTS=" + filepath.Join(j.tree.dir, "internal/object")
}

// live runs the live cases of a tool by its best way, or those of the object that tools share.
func (j *judge) live(ctx context.Context, c change) bool {
	if c.tool == tool.Owners.Name {
		return j.notices(ctx, j.objectTests("^TestOwners(Once|Full|Cgroups)$")) || j.notices(ctx, j.objectTests("^TestOwnersShared$", "-best"))
	}
	return c.best && j.notices(ctx, j.objectTests("^TestLive$/^"+c.tool+"$", "-best"))
}

// rest runs tests that may notice what live cases by the best way do not: tests over
// all tools, and other ways if only their programs changed. untried are other tools
// that the mutant may have changed.
func (j *judge) rest(ctx context.Context, untried []string) error {
	for i, c := range j.changes {
		if c.best && i < 3 && j.notices(ctx, j.objectTests(byTool+c.tool, "-best")) {
			return nil
		}
	}
	for _, c := range j.changes {
		if (!c.best || *every) && j.notices(ctx, j.objectTests("^Test(Live|Load|Threads)$/^"+c.tool+"$")) {
			return nil
		}
	}
	for _, name := range untried {
		if slices.Contains(generalTools, name) {
			if _, _, err := j.compile(ctx, name); err != nil {
				return err
			}
		}
	}
	if len(j.changes) > 1 && j.notices(ctx, j.objectTests(general)) || j.notices(ctx, j.declared()) {
		return nil
	}
	j.v.Ended = survived
	return nil
}

// engineTools are those whose live tests look at the engine's Go: one of each kind
// of output.
var engineTools = []string{"udpconnect", "so1stbyte", "socketio", "sockstat", "skbdrop", "tcptop", "tcplife", "profile"}

// enginePackages have unit tests of it.
var enginePackages = []string{"./internal/kern", "./internal/row", "./internal/probe", "./internal/tool", "./internal/sink", "./tools", "./internal/cli"}

// engine runs the tests that should notice a defect in the engine's Go: those of
// its own package, those of other packages, and live cases.
func (j *judge) engine(ctx context.Context) {
	own := "./" + path.Dir(j.v.File)
	if out, err := output(ctx, j.tree.dir, nil, "go", "build", own); err != nil {
		if j.v.Ended = stillborn; !strings.Contains(out, j.v.File) {
			j.v.By = "build"
		}
		return
	}
	for _, p := range slices.Concat([]string{own}, slices.DeleteFunc(slices.Clone(enginePackages), func(p string) bool { return p == own })) {
		if j.notices(ctx, j.pkg(p, p)) {
			return
		}
	}
	for _, name := range engineTools {
		t := j.pkg("./test/live", ".")
		t.flags, t.run = []string{"-best"}, "^TestLive$/^"+name+"$"
		if j.notices(ctx, t) {
			return
		}
	}
	t := j.pkg("./test/live", ".")
	if t.run = general; j.notices(ctx, t) {
		return
	}
	j.v.Ended = survived
}

// pkg is all tests of a package, which are built with the mutant when they first run.
func (j *judge) pkg(name, dir string) trial {
	mutated := filepath.Join(j.tree.dir, filepath.Base(name)+".mutated.test")
	with := func(ctx context.Context, flags ...string) (string, error) {
		if out, err := j.tree.build(ctx, mutated, name, j.tree.dir); err != nil {
			return out, err
		}
		return output(ctx, filepath.Join(j.tree.dir, dir), nil, mutated, flags...)
	}
	without := func(ctx context.Context, flags ...string) (string, error) {
		b, err := j.original(ctx, name)
		if err != nil {
			return "", err
		}
		return output(ctx, dir, nil, b, flags...)
	}
	return trial{nil, ".", with, without}
}

// build makes the test binary of a package. The trees share what Go has compiled,
// which takes -trimpath.
func (b *base) build(ctx context.Context, file, name, dir string) (string, error) {
	return output(ctx, dir, nil, "go", "test", "-c", "-trimpath", "-ldflags=-s=false -w=false", "-o", file, name)
}

// original is a package's test binary without a mutant.
func (b *base) original(ctx context.Context, name string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	file := b.tests[name]
	if file == "" {
		file = filepath.Join(b.dir, filepath.Base(name)+".test")
		if out, err := b.build(ctx, file, name, "."); err != nil {
			return "", fmt.Errorf("%s: %w: %s", name, err, out)
		}
		b.tests[name] = file
	}
	return file, nil
}
