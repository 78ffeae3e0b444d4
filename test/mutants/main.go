// SPDX-License-Identifier: Apache-2.0

// Command mutants asks whether the tests notice defects. It puts one defect at a
// time into BPF C (or, with -go, into Go of the engine), at random but seeded,
// runs the live tests of the tools whose objects change, and lists the defects
// that no test noticed. Run it from the project's root as root, by make mutants.
//
// A mutant that does not compile, or whose objects are the same bytes, is not
// counted; nor is one that changes only programs of attach types that this kernel
// refuses.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How a mutant ended.
const (
	killed     = "killed"
	survived   = "survived"
	stillborn  = "does not compile"
	equivalent = "same objects"
	elsewhere  = "other kernels only"
)

// verdict is a mutant and what became of it.
type verdict struct {
	mutant
	Ended string   `json:"ended"`
	By    string   `json:"by,omitempty"` // the test that noticed
	Tools []string `json:"tools,omitempty"`
}

func main() {
	n := flag.Int("n", 100, "how many mutants to try")
	seed := flag.Uint64("seed", 1, "of the random choice")
	engine := flag.Bool("go", false, "mutate Go of the engine, not BPF C")
	match := flag.String("files", "", "only files whose path contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *n, *seed, *engine, *match); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// sources are the files that are mutated.
var (
	cSources  = []string{"bpf/*.h", "tools/*/*.bpf.c"}
	goSources = []string{"internal/tool/*.go", "internal/row/*.go", "internal/kern/*.go", "internal/probe/*.go"}
)

func run(ctx context.Context, n int, seed uint64, engine bool, match string) error {
	t, err := copyTree(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	patterns := cSources
	if engine {
		patterns = goSources
	}
	var all []mutant
	for _, p := range patterns {
		files, err := filepath.Glob(p)
		if err != nil {
			return err
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") || !strings.Contains(f, match) {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			all = append(all, mutants(f, string(text))...)
		}
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fmt.Printf("%d mutants possible, seed %d\n", len(all), seed)
	if err := t.baseline(); err != nil {
		return err
	}
	var out []verdict
	count := map[string]int{}
	for _, m := range all {
		if tried := count[killed] + count[survived]; tried == n || ctx.Err() != nil {
			break
		}
		began := time.Now()
		v, err := t.try(ctx, m, engine)
		if err != nil {
			return fmt.Errorf("%v: %w", m, err)
		}
		count[v.Ended]++
		out = append(out, v)
		if v.Ended == killed || v.Ended == survived {
			fmt.Printf("%3d %s %s (%.0fs, %s)\n", count[killed]+count[survived], v.Ended, m, time.Since(began).Seconds(), v.By)
		}
	}
	fmt.Println("\nsurvived:")
	for _, v := range out {
		if v.Ended == survived {
			fmt.Printf("  %s [%s]\n", v.mutant, strings.Join(v.Tools, " "))
		}
	}
	fmt.Printf("\n%d killed, %d survived", count[killed], count[survived])
	for _, e := range []string{stillborn, equivalent, elsewhere} {
		fmt.Printf(", %d %s", count[e], e)
	}
	fmt.Println()
	return ctx.Err()
}

// includes lists the tools whose source includes file, at any depth.
func includes(dir, file string) ([]string, error) {
	if strings.HasPrefix(file, "tools/") {
		return []string{filepath.Base(filepath.Dir(file))}, nil
	}
	sources, err := filepath.Glob(filepath.Join(dir, "tools/*/*.bpf.c"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, src := range sources {
		seen := map[string]bool{}
		if err := headersOf(dir, src, seen); err != nil {
			return nil, err
		}
		if seen[filepath.Base(file)] {
			out = append(out, filepath.Base(filepath.Dir(src)))
		}
	}
	slices.Sort(out)
	return out, nil
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
