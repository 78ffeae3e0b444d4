// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"seine/internal/lab"
)

// TestNames: --names shows remote addresses by the name that the process itself
// looked up, else by a name that another process of its namespace looked up, and TLS
// connections by the requested server name. It works in events, in counts and in
// snapshots.
func TestNames(t *testing.T) {
	t.Parallel()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	first, second := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")
	if _, err := lab.StartDNS(w, "", "nameserver", lab.DNS{Names: map[string]netip.Addr{
		"www.example": first, "alias.example": first, "db.example": second,
	}}); err != nil {
		t.Fatal(err)
	}
	tls, err := lab.StartTLS(w, "", "web", "")
	if err != nil {
		t.Fatal(err)
	}
	recording := filepath.Join(t.TempDir(), "rec")
	netns := fmt.Sprintf("--netns=%d", w.Netns(""))
	seines := map[string]*process{
		"connect": start(t, nil, "tcpconnect", "--names", "-o", "json", netns),
		"count":   start(t, nil, "tcpconnect", "-c", "--names", "-o", "json", netns),
		"life":    start(t, nil, "tcplife", "--names", "-o", "json", netns),
		"with":    start(t, nil, "with", "tcpconnect "+netns, "softirqs -i 1m", "--names", "-o", "json"),
		"table":   start(t, nil, "with", "tcpconnect --names "+netns, "softirqs -i 1m"),
		"record":  start(t, nil, "record", "tcpconnect --names "+netns, "--dir", recording),
	}
	looks := func(comm string, hosts ...string) *lab.Proc {
		p, err := lab.StartLookups(w, "", comm, "nameserver 127.0.0.1\noptions attempts:1\n", hosts...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	// These ports have no listener: a refused connection counts too.
	for _, p := range []*lab.Proc{looks("one", "www.example.:80"), looks("two", "alias.example.:80", "db.example.:80"), looks("three", "127.0.0.3:80", "127.0.0.9:80")} {
		var got []lab.Lookup
		if err := p.Call("go", &got); err != nil {
			t.Fatal(err)
		}
	}
	one := looks("four", "127.0.0.2:80") // the last name that it was told by is two's
	var got []lab.Lookup
	if err := one.Call("go", &got); err != nil {
		t.Fatal(err)
	}
	client, err := lab.StartTLSClient(w, "", "browser", lab.TLSClient{Addr: tls.Addr, Sessions: []lab.TLSSession{{Name: "secure.example"}, {Name: "other.example"}}})
	if err != nil {
		t.Fatal(err)
	}
	var made []lab.TLSSession
	if err := client.Call("go", &made); err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"connect": {
			"one 127.0.0.2 www.example", "two 127.0.0.2 alias.example", "two 127.0.0.3 db.example",
			"three 127.0.0.3 db.example", "three 127.0.0.9 ", "four 127.0.0.2 alias.example",
		},
		"count": {" 127.0.0.2 alias.example", " 127.0.0.3 db.example", " 127.0.0.9 "},
		"life":  {"browser 127.0.0.1 secure.example", "browser 127.0.0.1 other.example"},
	}
	want["record"], want["with"] = want["connect"], want["connect"]
	for name, p := range seines {
		if name == "connect" || name == "life" || name == "with" {
			for _, w := range want[name] { // one end of the last connection may close late
				comm, end, _ := strings.Cut(w, " ")
				addr, name, _ := strings.Cut(end, " ")
				if name != "" {
					name = fmt.Sprintf(`.*"rname":"%s"`, name)
				}
				p.await(&p.out, fmt.Sprintf(`"comm":"%s".*"raddr":"%s"%s`, comm, addr, name))
			}
		}
		p.signal(syscall.SIGINT)
		p.wantEnd(0)
		shown := p.out.String()
		if name == "table" {
			for _, name := range []string{"www.example", "alias.example", "db.example"} {
				if !strings.Contains(shown, "rname "+name+"\n") {
					t.Errorf("no line of the timeline ends with %q:\n%s", "rname "+name, shown)
				}
			}
			continue
		}
		if name == "record" {
			out, err := exec.Command(seine, "tcpconnect", "--names", "-o", "json", "--from", recording).Output()
			if err != nil {
				t.Fatalf("--from: %v", err)
			}
			shown = string(out)
		}
		rows := map[string]int{}
		for line := range strings.Lines(shown) {
			var r struct {
				Comm, Raddr, Rname string
				Rport              int
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if r.Rport != 53 { // the name server has no name
				rows[r.Comm+" "+r.Raddr+" "+r.Rname]++
			}
		}
		for _, w := range want[name] {
			if rows[w] == 0 {
				t.Errorf("%s: no row %q in %v", name, w, rows)
			}
		}
	}
}

// TestFlowsNames: on a terminal, flows shows the names of remote addresses without --names. It does not where rows have no
// remote address, if it is told not to, and in a pipe.
func TestFlowsNames(t *testing.T) {
	t.Parallel()
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	tls, err := lab.StartTLS(w, "", "web", "")
	if err != nil {
		t.Fatal(err)
	}
	session := func() {
		c, err := lab.StartTLSClient(w, "", "browser", lab.TLSClient{Addr: tls.Addr, Sessions: []lab.TLSSession{{Name: "secure.example"}}})
		if err != nil {
			t.Fatal(err)
		}
		var made []lab.TLSSession
		if err := c.Call("go", &made); err != nil {
			t.Fatal(err)
		}
	}
	const named, head = `browser .*secure\.example`, `COMM.*COUNT|COMM.*RADDR:RPORT`
	netns := fmt.Sprintf("--netns=%d", w.Netns(""))
	for args, want := range map[string]string{
		"--closed":                       named,
		"--closed --names=false":         head,
		"--closed --by comm,role -i 0.2": `COMM`,
		"--view connections":             named,
	} {
		out := onTerminal(t, func(p *process) {
			session()
			p.await(&p.out, want)
		}, append([]string{"flows", netns}, strings.Fields(args)...)...)
		if got := strings.Contains(out, "RNAME"); got != (want == named) {
			t.Errorf("flows %s: a column RNAME: %v, want %v:\n%s", args, got, want == named, out)
		}
	}
	p := start(t, nil, "flows", "--closed", netns)
	session()
	p.await(&p.out, "browser")
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	if out := p.out.String(); strings.Contains(out, "RNAME") {
		t.Errorf("flows shows names in a pipe:\n%s", out)
	}
}

// TestTopNames: top names a remote address by the server name of a TLS handshake, if no program has looked up a name.
func TestTopNames(t *testing.T) {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	tls, err := lab.StartTLS(w, "", "web", "")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "top", "-o", "json")
	c, err := lab.StartCommand(w, "", "openssl", "s_client", "-connect", tls.Addr, "-servername", "secure.example")
	if errors.Is(err, lab.ErrNotSupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := c.Tell("go"); err != nil {
		t.Fatal(err)
	}
	p.await(&p.out, `"view":"services"[^\n]*"service":"openssl[^\n]*"rname":"secure.example"`)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
}
