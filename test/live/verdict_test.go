// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"path"
	"strings"
	"testing"

	"seine/internal/lab"
	"seine/internal/trial"
	"seine/test/cases"
	"seine/test/flaky"
	"seine/tools"
)

// TestVerdict: skipped runs explain as many missing rows, and no wrong value; with one
// the case is tried again. Otherwise only cases on the list with missing rows are tried
// again.
func TestVerdict(t *testing.T) {
	wrong := errors.New("pid is 7, want 8")
	for _, c := range []struct {
		err    error
		missed uint64
		want   bool
		again  bool
	}{
		{trial.RowCount(6, 7), 1, true, false},
		{trial.RowCount(6, 7), 0, false, false},
		{trial.RowCount(4, 7), 2, false, false},
		{trial.RowCount(8, 7), 9, false, true},
		{wrong, 9, false, true},
		{wrong, 0, false, false},
		{errors.Join(trial.RowCount(6, 7), wrong), 9, false, true},
		{lab.ErrLate, 9, false, true},
		{trial.Skip("no"), 9, false, false},
		{nil, 9, false, false},
	} {
		if got := explained(c.err, c.missed); got != c.want {
			t.Errorf("%v, with %d runs skipped, is explained: %v", c.err, c.missed, got)
		}
		if got := unseen(c.err, c.missed); got != c.again {
			t.Errorf("%v, with %d runs skipped, proves nothing: %v", c.err, c.missed, got)
		}
	}
	const listed = "TestAgree/netsize"
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{listed, trial.RowCount(6, 7), true},
		{listed, lab.ErrLate, true},
		{listed, wrong, false},
		{listed, errors.Join(trial.RowCount(6, 7), wrong), false},
		{listed, trial.Skip("no"), false},
		{listed, nil, false},
		{"TestAgree/soconnect", trial.RowCount(6, 7), false},
	} {
		if got := mayRetry(c.name, c.err); got != c.want {
			t.Errorf("%s, %v: another try is allowed: %v", c.name, c.err, got)
		}
	}
}

// TestFlakyList: each name of the list is the name of a test.
func TestFlakyList(t *testing.T) {
	all, err := flaky.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if !known(e.Name) {
			t.Errorf("%s is no test", e.Name)
		}
	}
}

func known(pattern string) bool {
	way := "best"
	if parts := strings.Split(pattern, "/"); len(parts) == 4 && parts[2] != "*" {
		way = parts[2]
	}
	for _, a := range agreements {
		if ok, _ := path.Match(pattern, "TestAgree/"+a.name()); ok {
			return true
		}
	}
	for _, tl := range tools.All {
		for _, c := range cases.All[tl.Name] {
			// Any way: some kernels have it.
			if ok, _ := path.Match(pattern, strings.Join([]string{"TestLive", tl.Name, way, c.Name}, "/")); ok {
				return true
			}
		}
	}
	return false
}
