// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"seine/internal/lab"
)

// TestSubnets: --by raddr/24 adds up what went to one network: rows as they happen,
// and what the kernel counted by address.
func TestSubnets(t *testing.T) {
	t.Parallel()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	netns := fmt.Sprintf("--netns=%d", w.Netns(""))
	rows := start(t, nil, "tcpconnect", "--by=raddr/24", "-o", "json", netns)
	counts := start(t, nil, "tcpconnect", "-c", "--by=raddr/24", "-o", "json", netns)
	// Nobody listens: a connection that is refused is one too.
	p, err := lab.StartLookups(w, "", "client", "", "127.0.1.1:80", "127.0.1.2:80", "127.0.2.1:80", "127.0.1.255:80", "127.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	var done []lab.Lookup
	if err := p.Call("go", &done); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*process{rows, counts} {
		p.signal(syscall.SIGINT)
		p.wantEnd(0)
		got := map[string]int{}
		for line := range strings.Lines(p.out.String()) {
			var r struct {
				Raddr         string
				Count, Failed int
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if got[r.Raddr] != 0 {
				t.Errorf("%s comes twice", r.Raddr)
			}
			got[r.Raddr] += r.Count
		}
		if want := map[string]int{"127.0.1.0/24": 3, "127.0.2.0/24": 2}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
