// SPDX-License-Identifier: Apache-2.0

// Command mutants asks whether the tests notice defects. It puts one defect at a
// time into BPF C (or, with -go, into Go of the engine), at random but seeded, runs
// the tests that should notice, and lists the defects that no test noticed. Run it
// from the project's root as root, by make mutants.
//
// A mutant that does not compile, or whose objects are the same bytes, is not
// counted; nor is one that changes only programs of attach types that this kernel
// refuses. A mutant is killed by a test that fails with it, passes without it, and
// fails with it again. Survivors that survivors.txt explains as equivalent are
// counted separately.
//
// The result of each mutant is kept in a file, so that a stopped run can continue.
// The run of the C code writes test/proof/mutants.json.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"seine/internal/host"
	"seine/test/proof"
)

// How a mutant ended.
const (
	killed    = "killed"
	survived  = "survived"
	stillborn = "do not compile"
	same      = "same objects"
	elsewhere = "other kernels only"
)

// notEquivalent begins the reason of a survivor that counts.
const notEquivalent = "Not equivalent"

// most is how many of 100 mutants may survive without being equivalent.
const most = 5

var (
	many   = flag.Int("n", 100, "how many mutants to try")
	seed   = flag.Uint64("seed", 1, "of the random choice")
	engine = flag.Bool("go", false, "mutate Go of the engine, not BPF C")
	match  = flag.String("files", "", "only files whose path contains this")
	jobs   = flag.Int("j", 2, "how many mutants at a time")
	keep   = flag.Bool("keep", false, "take over from earlier trees what became of mutants in files that are the same, but for survivors that are not explained")
	every  = flag.Bool("ways", false, "let survivors of the best way go through all others")
	enough = flag.Int("tools", 6, "of a mutant that changes more tools than this, try so many")
	keptIn = flag.String("state", statePath(), "the `file` that keeps what became of each mutant")
	only   = flag.String("only", "", "try the mutants whose text, file:line and all, matches this `expression`, whatever became of them before; no proof is written")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// sources are the files that are mutated.
var (
	cSources  = []string{"bpf/*.h", "tools/*/*.bpf.c"}
	goSources = []string{"internal/tool/*.go", "internal/row/*.go", "internal/kern/*.go", "internal/probe/*.go"}
)

// all lists every mutant of the tree in the order of the seed.
func all() ([]mutant, error) {
	patterns := cSources
	if *engine {
		patterns = goSources
	}
	var out []mutant
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") || !strings.Contains(f, *match) {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			out = append(out, mutants(f, string(text))...)
		}
	}
	shuffle(out, *seed)
	return out, nil
}

func run(ctx context.Context) error {
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	queue, err := all()
	if err != nil {
		return err
	}
	known, err := explained()
	if err != nil {
		return err
	}
	for _, gone := range notIn(known, queue) {
		fmt.Printf("%s explains what is not there any more: %s\n", survivorsFile, gone)
	}
	p, err := proof.Of(".", "mutants", host.KernelVersion())
	if err != nil {
		return err
	}
	st, err := openState(*keptIn, p.Hash)
	if err != nil {
		return err
	}
	defer st.close()
	fmt.Printf("%d mutants possible, seed %d; kept in %s\n", len(queue), *seed, *keptIn)
	base, err := prepare(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(base.dir)
	r := &tally{only: chosen, known: known, began: time.Now(), count: map[string]int{}}
	if err := r.all(ctx, base, queue, st); err != nil {
		return err
	}
	r.print()
	if *engine || *match != "" || *only != "" || r.tried() < *many {
		return ctx.Err()
	}
	p.OK = len(r.open)*100 <= most*r.tried()
	p.Figures = r.figures()
	if err := p.Write("."); err != nil {
		return err
	}
	if !p.OK {
		return fmt.Errorf("%d mutants survived that are not explained as equivalent: more than %d of 100", len(r.open), most)
	}
	return nil
}

// notIn lists the keys of known that no mutant has, if all mutants are
// considered.
func notIn(known map[string]string, queue []mutant) (out []string) {
	if *match != "" {
		return nil
	}
	left := maps.Clone(known)
	for _, m := range queue {
		delete(left, m.key())
	}
	for key := range left {
		if file, _, _ := strings.Cut(key, ":"); strings.HasSuffix(file, ".go") == *engine {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// tally adds up the results of the mutants.
type tally struct {
	mu      sync.Mutex
	only    *regexp.Regexp
	known   map[string]string
	began   time.Time
	count   map[string]int
	next    int // of the queue
	running int
	fresh   int // tried in this run
	kept    int // verdicts of earlier trees
	open    []verdict
	closed  []verdict // survivors that are equivalent
	wrong   []verdict // killed, though said to be equivalent
}

func (r *tally) tried() int { return r.count[killed] + r.count[survived] }

// all tries mutants of the queue until enough were tried. Some end without a trial,
// so workers may try a few more than are asked for.
func (r *tally) all(ctx context.Context, base *base, queue []mutant, st *state) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range *jobs {
		wg.Go(func() {
			t, err := base.tree(ctx)
			if err != nil {
				cancel(err)
				return
			}
			defer os.RemoveAll(t.dir)
			for {
				m, ok := r.take(queue)
				if !ok || ctx.Err() != nil {
					return
				}
				began := time.Now()
				v, found := st.find(m, r.known[m.key()] != "")
				if !found {
					if v, err = t.try(ctx, m); ctx.Err() != nil {
						return // it was not tried to the end
					} else if err == nil {
						err = st.add(v)
					}
					if err != nil {
						cancel(fmt.Errorf("%v: %w", m, err))
						return
					}
				}
				r.add(v, found, time.Since(began))
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// take gives a worker its next mutant.
func (r *tally) take(queue []mutant) (mutant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.next < len(queue) && r.tried()+r.running < *many {
		m := queue[r.next]
		r.next++
		if r.only.MatchString(m.String()) {
			r.running++
			return m, true
		}
	}
	return mutant{}, false
}

func (r *tally) add(v verdict, found bool, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	r.count[v.Ended]++
	reason, isKnown := r.known[v.mutant.key()]
	if isKnown && strings.HasPrefix(reason, notEquivalent) {
		isKnown, v.By = false, reason
	}
	switch {
	case v.Ended == survived && isKnown:
		v.By = reason
		r.closed = append(r.closed, v)
	case v.Ended == survived:
		r.open = append(r.open, v)
	case v.Ended == killed && isKnown:
		r.wrong = append(r.wrong, v)
	}
	if v.Ended != killed && v.Ended != survived {
		return
	}
	if found {
		if v.taken {
			r.kept++
		}
		return
	}
	r.fresh++
	left := time.Since(r.began) / time.Duration(r.fresh) * time.Duration(*many-r.tried())
	fmt.Printf("%3d/%d %s %s (%.0fs, %s); %d survived, about %.0f minutes left\n", r.tried(), *many, v.Ended, v.mutant, took.Seconds(), v.By, r.count[survived], left.Minutes())
}

func (r *tally) print() {
	for _, l := range []struct {
		title string
		list  []verdict
	}{{"survived", r.open}, {"survived, equivalent", r.closed}, {"killed, though " + survivorsFile + " says equivalent", r.wrong}} {
		if len(l.list) == 0 {
			continue
		}
		fmt.Printf("\n%s:\n", l.title)
		for _, v := range l.list {
			fmt.Printf("  %s [%s] %s\n", v.mutant, strings.Join(v.Tools, " "), v.By)
			if len(v.Doubtful) > 0 {
				fmt.Printf("    failed, and not twice or without it too: %s\n", strings.Join(v.Doubtful, " "))
			}
		}
	}
	fmt.Printf("\n%d killed, %d survived", r.count[killed], r.count[survived])
	for _, e := range []string{stillborn, same, elsewhere} {
		fmt.Printf(", %d %s", r.count[e], e)
	}
	fmt.Println()
}

// figures are what the proof says.
func (r *tally) figures() map[string]string {
	return map[string]string{
		"seed":       fmt.Sprint(*seed),
		"tried":      fmt.Sprint(r.tried()),
		"killed":     fmt.Sprint(r.count[killed]),
		"equivalent": fmt.Sprint(len(r.closed)),
		"survived":   fmt.Sprint(len(r.open)),
		"taken over": fmt.Sprintf("%d from earlier trees, in files that have not changed", r.kept),
		"left out":   fmt.Sprintf("%d %s, %d %s, %d %s", r.count[stillborn], stillborn, r.count[same], same, r.count[elsewhere], elsewhere),
	}
}
