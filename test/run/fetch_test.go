// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeRun is a run whose fetches and steps are functions of a test.
type fakeRun struct {
	t     *testing.T
	suite *suite
	steps []guestStep
	mu    sync.Mutex
	ran   []string // the steps whose work was done
}

func newFakeRun(t *testing.T) *fakeRun {
	return &fakeRun{t: t, suite: &suite{ctx: t.Context(), start: time.Now()}}
}

// guest adds a step that needs some fetches.
func (f *fakeRun) guest(name string, do func(), needs ...string) {
	f.steps = append(f.steps, f.suite.inGuest(name, time.Minute, func(context.Context) error {
		f.done(name)
		do()
		return nil
	}, needs...))
}

func (f *fakeRun) done(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ran = append(f.ran, name)
}

// run runs everything: here is the steps of this machine.
func (f *fakeRun) run(here func(), get func(ctx context.Context, name string) error) {
	q := newGuestQueue(f.steps)
	var fetching sync.WaitGroup
	fetching.Go(func() { f.suite.fetch(f.t.Context(), q, get) })
	work(here, q)
	fetching.Wait()
}

// await fails the test if something does not happen.
func (f *fakeRun) await(what string, happened <-chan struct{}) {
	select {
	case <-happened:
	case <-time.After(10 * time.Second):
		f.t.Error("waited in vain for ", what)
	}
}

// failures is the steps that failed, and why.
func (f *fakeRun) failures() map[string]string {
	failed := map[string]string{}
	for _, r := range f.suite.results.all {
		if r.outcome == "FAIL" {
			failed[r.where] = r.log
		}
	}
	return failed
}

func nothing() {}

func TestFetch(t *testing.T) {
	// The second kernel is there only when the guest of the first one runs.
	t.Run("a guest waits for its own kernel", func(t *testing.T) {
		f, first := newFakeRun(t), make(chan struct{})
		f.guest("6.12", func() { close(first) }, "6.12")
		f.guest("5.10", nothing, "5.10")
		var order []string
		f.run(nothing, func(_ context.Context, name string) error {
			if order = append(order, name); name == "5.10" {
				f.await("the guest of 6.12", first)
			}
			return nil
		})
		if want := []string{"6.12", "5.10"}; !slices.Equal(order, want) || !slices.Equal(f.ran, want) {
			t.Errorf("fetched %q and ran %q, want %q for both", order, f.ran, want)
		}
	})

	// The root is there only when the guest behind the one that waits for it runs.
	t.Run("a worker takes the next guest that can run", func(t *testing.T) {
		f, behind := newFakeRun(t), make(chan struct{})
		f.guest("peers", nothing, "6.12", debianRoot)
		f.guest("6.12", func() { close(behind) }, "6.12")
		f.run(nothing, func(_ context.Context, name string) error {
			if name == debianRoot {
				f.await("the guest of 6.12", behind)
			}
			return nil
		})
		if want := []string{"6.12", "peers"}; !slices.Equal(f.ran, want) {
			t.Errorf("ran %q, want %q", f.ran, want)
		}
	})

	// The only kernel is there only when the steps of this machine are over.
	t.Run("steps without a guest do not wait", func(t *testing.T) {
		f, over := newFakeRun(t), make(chan struct{})
		f.guest("6.12", nothing, "6.12")
		here := func() {
			f.done(native)
			close(over)
		}
		f.run(here, func(context.Context, string) error {
			f.await("the steps of this machine", over)
			return nil
		})
		if want := []string{native, "6.12"}; !slices.Equal(f.ran, want) {
			t.Errorf("ran %q, want %q", f.ran, want)
		}
	})

	t.Run("a failed fetch fails its guests and no others", func(t *testing.T) {
		f := newFakeRun(t)
		f.guest("6.12", nothing, "6.12")
		f.guest("5.10", nothing, "5.10")
		f.guest("peers", nothing, "6.12", debianRoot)
		f.guest("more of 5.10", nothing, "5.10", debianRoot)
		f.run(nothing, func(_ context.Context, name string) error {
			if name == "5.10" {
				return errors.New("the archive is closed")
			}
			return nil
		})
		slices.Sort(f.ran)
		if want := []string{"6.12", "peers"}; !slices.Equal(f.ran, want) {
			t.Errorf("ran %q, want %q", f.ran, want)
		}
		failed := f.failures()
		for _, step := range []string{"5.10", "more of 5.10"} {
			if !strings.Contains(failed[step], "the archive is closed") {
				t.Errorf("%s failed with %q, want the error of the fetch", step, failed[step])
			}
		}
		if len(failed) != 2 {
			t.Errorf("got %d failed steps, want 2: %v", len(failed), failed)
		}
	})
}

// TestFetchNeeds: each guest of the plan waits for a kernel.
func TestFetchNeeds(t *testing.T) {
	q := newGuestQueue((&suite{}).inGuests(newBinaries("")))
	if want := []string{"6.12", "5.10", "new", "6.1", "6.12-arm64", debianRoot}; !slices.Equal(q.order, want) {
		t.Errorf("the guests need %q, want %q", q.order, want)
	}
	for i, step := range q.steps {
		if len(step.needs) == 0 {
			t.Errorf("guest %d needs no kernel", i)
		}
	}
}
