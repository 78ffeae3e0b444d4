// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A guestStep is a step of ring 4.
type guestStep struct {
	needs []string // names of kernels, and debianRoot
	// run is called when everything is fetched. Its argument is the error of
	// what could not be fetched, or nil.
	run func(missing error)
}

// debianRoot is the root image that some guests need besides their kernel.
const debianRoot = "root"

// A guestQueue has the steps of ring 4 that no worker has taken yet, and what is
// fetched for them. Several goroutines use it.
type guestQueue struct {
	mu      sync.Mutex
	ended   *sync.Cond       // a fetch has
	steps   []guestStep      // in the order in which they are to run
	order   []string         // of the fetches
	fetched map[string]error // those that have ended, and how
	took    time.Duration    // of all fetches
	waited  time.Duration    // of all workers, with nothing to run
}

// newGuestQueue puts fetches into the order in which the steps need them.
func newGuestQueue(steps []guestStep) *guestQueue {
	q := &guestQueue{steps: steps, fetched: map[string]error{}}
	q.ended = sync.NewCond(&q.mu)
	for _, step := range steps {
		for _, name := range step.needs {
			if !slices.Contains(q.order, name) {
				q.order = append(q.order, name)
			}
		}
	}
	return q
}

// take returns the first step for which everything is fetched. It waits for a
// fetch if there is no such step, and returns nil if no step is left.
func (q *guestQueue) take() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.steps) > 0 {
		for i, step := range q.steps {
			if missing, ready := q.outcome(step.needs); ready {
				q.steps = slices.Delete(q.steps, i, i+1)
				return func() { step.run(missing) }
			}
		}
		begun := time.Now()
		q.ended.Wait()
		q.waited += time.Since(begun)
	}
	return nil
}

// outcome is the errors of fetches, once all of them have ended.
func (q *guestQueue) outcome(needs []string) (missing error, ready bool) {
	for _, name := range needs {
		err, ok := q.fetched[name]
		if !ok {
			return nil, false
		}
		missing = errors.Join(missing, err)
	}
	return missing, true
}

// end records how a fetch ended.
func (q *guestQueue) end(name string, err error, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fetched[name] = err
	q.took += took
	q.ended.Broadcast()
}

// String says how long fetches took.
func (q *guestQueue) String() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return fmt.Sprintf("fetches: %.0f s in the background; workers waited %.0f s for them", q.took.Seconds(), q.waited.Seconds())
}

// fetchLimit is the time for one kernel, or the Debian root.
const fetchLimit = 20 * time.Minute

// fetch fetches what guests need, one after the other. One that fails does not
// keep others from being fetched.
func (s *suite) fetch(ctx context.Context, q *guestQueue, get func(ctx context.Context, name string) error) {
	for _, name := range q.order {
		begun := time.Now()
		err := s.timed(ctx, "fetch "+name, fetchLimit, func(ctx context.Context) error { return get(ctx, name) })
		q.end(name, err, time.Since(begun))
	}
}

// get fetches a kernel or the Debian root, unless it is in the cache.
func (b *binaries) get(ctx context.Context, name string) error {
	args := []string{"fetch", name}
	if name == debianRoot {
		args = []string{"rootfs"}
		if everyWay() {
			args = append(args, "-peers")
		}
	}
	lines := errorLines{where: "fetch"}
	if err := stream(ctx, &lines, b.runner, args...); err != nil {
		return fmt.Errorf("fetch %s: %w\n%s", name, err, lines.tail())
	}
	return nil
}
