// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"seine/test/proof"
)

// A fullStep is a part of make test-full: every way on one kernel. It takes an hour or more
// where the kernel is emulated, so each has a proof of its own, which is written when it ends.
type fullStep struct {
	name   string
	kernel string // in its results
}

func fullSteps() []fullStep {
	steps := []fullStep{{native, native}}
	for _, g := range guests {
		steps = append(steps, fullStep{g.name, g.name})
	}
	return append(steps, fullStep{arm64, "6.12-arm64"}, fullStep{peers, peers})
}

// proved is a step that writes its proof, if every way is tested.
func (s *suite) proved(name string, do func(context.Context) error) func(context.Context) error {
	i := slices.IndexFunc(fullSteps(), func(f fullStep) bool { return f.name == name })
	if !everyWay() || i < 0 {
		return do
	}
	kernel := fullSteps()[i].kernel
	return func(ctx context.Context) error {
		p, err := proof.Of(".", proof.Full+name, kernel)
		if err != nil {
			return err
		}
		err = do(ctx)
		if s.ctx.Err() != nil {
			return err // interrupted: it proves nothing, and the proof before stays
		}
		s.results.prove(p, kernel)
		p.OK = p.OK && err == nil
		return errors.Join(err, p.Write("."))
	}
}

// prove puts the results of a kernel into its proof: how many tests passed, and for each tool
// the ways with how many of its cases passed.
func (r *results) prove(p *proof.Proof, kernel string) {
	r.mu.Lock()
	of := &results{all: slices.DeleteFunc(slices.Clone(r.all), func(t result) bool { return t.where != kernel })}
	r.mu.Unlock()
	count, ways := map[string]int{}, newGrid()
	for _, t := range of.leaves() {
		count[t.outcome]++
		if tool, way, ok := liveCase(t.name); ok {
			ways.count(tool, kernel, way, t.outcome)
		}
	}
	p.OK = count["FAIL"] == 0 && count["PASS"] > 0
	p.Figures["tests"] = fmt.Sprintf("%d passed, %d failed, %d skipped", count["PASS"], count["FAIL"], count["SKIP"])
	for _, tool := range ways.rows {
		p.Figures[tool] = ways.cell(tool, kernel)
	}
}

// liveCase is the tool and the way of a live case.
func liveCase(name string) (tool, way string, ok bool) {
	p := strings.Split(name, "/")
	if p[0] != "TestLive" || len(p) != 4 {
		return "", "", false
	}
	return p[1], p[2], true
}
