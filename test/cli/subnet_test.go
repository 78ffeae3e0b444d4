// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"seine/internal/lab"
)

// TestSubnets: --by raddr/24 and --subnets add up by network: events, and counts of the
// kernel by address. An address in two networks of a list counts in the smaller one.
func TestSubnets(t *testing.T) {
	t.Parallel()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	netns := fmt.Sprintf("--netns=%d", w.Netns(""))
	byLength, listed, other := map[string]int{"127.0.1.0/24": 3, "127.0.2.0/24": 2}, map[string]int{"127.0.0.0/8": 2, "127.0.1.0/24": 3}, map[string]int{"127.0.1.0/24": 3, "": 2}
	wants := []struct {
		*process
		want map[string]int
	}{
		{start(t, nil, "tcpconnect", "--by=raddr/24", "-o", "json", netns), byLength},
		{start(t, nil, "tcpconnect", "-c", "--by=raddr/24", "-o", "json", netns), byLength},
		{start(t, nil, "tcpconnect", "--by=raddr", "--subnets=127.0.0.0/8,127.0.1.0/24", "-o", "json", netns), listed},
		{start(t, nil, "tcpconnect", "-c", "--by=raddr", "--subnets=127.0.0.0/8,127.0.1.0/24", "-o", "json", netns), listed},
		{start(t, nil, "tcpconnect", "-c", "--by=raddr", "--subnets=127.0.1.0/24,10.0.0.0/8", "-o", "json", netns), other},
	}
	// There is no listener: a refused connection counts too.
	p, err := lab.StartLookups(w, "", "client", "", "127.0.1.1:80", "127.0.1.2:80", "127.0.2.1:80", "127.0.1.255:80", "127.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	var done []lab.Lookup
	if err := p.Call("go", &done); err != nil {
		t.Fatal(err)
	}
	for _, p := range wants {
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
		if !maps.Equal(got, p.want) {
			t.Errorf("got %v, want %v", got, p.want)
		}
	}
}

// TestTCPSubnet: all bytes of the sessions count in the smallest network of their peer, and in tcptop, tcplife and flows in the
// networks of --by.
func TestTCPSubnet(t *testing.T) {
	t.Parallel()
	w, err := lab.NewWorld(lab.Options{Hosts: lab.TwoHosts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	only := []string{"-o", "json", fmt.Sprintf("--netns=%d", w.Netns("client"))}
	type sum struct{ tx, rx int }
	wants := map[string][]string{ // the networks
		"tcpsubnet --subnets=192.0.0.0/8,192.0.2.0/24,192.0.2.2,2001:db8::/32": {"192.0.2.2/32", "2001:db8::/32"},
		"tcptop --by=raddr/24":         {"192.0.2.0/24", "2001:db8::/64"},
		"tcplife --by=raddr/24":        {"192.0.2.0/24", "2001:db8::/64"},
		"flows --closed --by=raddr/24": {"192.0.2.0/24", "2001:db8::/64"},
	}
	running := map[string]*process{}
	for line := range wants {
		running[line] = start(t, nil, append(strings.Fields(line), only...)...)
	}
	const count, send, recv = 7, 20001, 50003
	for _, n := range []lab.Network{lab.TCP4, lab.TCP6} {
		if err := lab.RunTCP(w, lab.Sessions{Network: n, Count: count, Send: send, Recv: recv}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Closed(); err != nil {
		t.Fatal(err)
	}
	each := sum{count * send, count * recv}
	for line, networks := range wants {
		p := running[line]
		p.signal(syscall.SIGINT)
		p.wantEnd(0)
		got, want := map[string]sum{}, map[string]sum{}
		for line := range strings.Lines(p.out.String()) {
			var r struct {
				Raddr string
				TX    int `json:"tx_bytes"`
				RX    int `json:"rx_bytes"`
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			got[r.Raddr] = sum{got[r.Raddr].tx + r.TX, got[r.Raddr].rx + r.RX}
		}
		for _, n := range networks {
			want[n] = each
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}
