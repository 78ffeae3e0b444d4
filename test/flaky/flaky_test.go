// SPDX-License-Identifier: Apache-2.0

package flaky

import "testing"

// most is the greatest length of the list. A longer list shows that something
// else is wrong.
const most = 24

func TestList(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 || len(all) > most {
		t.Errorf("%d entries, want 1 to %d", len(all), most)
	}
	for _, text := range []string{"6.1 TestLive/x/best/y", "6.1 TestLive/x/best/y flaky", "6.1 TestLive/[ no pattern"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestOn(t *testing.T) {
	for _, c := range []struct {
		kernels, on string
		want        bool
	}{
		{"6.1", "6.1.0-39-amd64", true},
		{"6.1", "6.12.48+deb13-amd64", false},
		{"5.10,6.12", "6.12.48+deb13-amd64", true},
		{"7", "7.2-amd64", true},
		{"7", "native", false},
		{"native", "native", true},
		{"native", "6.12.48", false},
		{"*", "6.12.48", true},
	} {
		all, err := parse(c.kernels + " TestLive/x/*/y some reason")
		if err != nil {
			t.Fatal(err)
		}
		if got := all[0].on(c.on); got != c.want {
			t.Errorf("%s on %s: %v", c.kernels, c.on, got)
		}
	}
}
