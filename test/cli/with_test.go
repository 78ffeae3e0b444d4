// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// jsonLine is a line of JSON: a row, or losses.
type jsonLine struct {
	Time   time.Time
	Tool   string
	View   string
	Count  int
	Reason string
	PID    int
	Comm   string
	Lport  int
	Losses map[string]int
}

func linesOf(t *testing.T, text string) (out []jsonLine) {
	t.Helper()
	for line := range strings.Lines(text) {
		var o jsonLine
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		out = append(out, o)
	}
	return out
}

// TestWithFlood: while the reader stands still, a flood of SYNs gives one tool more
// events than the ring has room for. The tool beside it loses none, and the tool that
// counts counts all. The rows and the losses of the first tool add up to the kernel's
// count. Packets come in softirqs, which may be on top of process 1.
func TestWithFlood(t *testing.T) {
	if err := lab.Undisturbed(func() ([]error, error) { return withFlood(t), nil }); err != nil {
		t.Error(err)
	}
}

// withFlood is one round of TestWithFlood.
func withFlood(t *testing.T) (differ []error) {
	w, _ := twoHosts(t)
	server := fmt.Sprintf("--netns=%d", w.Netns("server"))
	const syns, closed, connections = 10007, 9, 211
	p := start(t, nil, "with", "tcpdrop", "skbdrop", "tcplife", server, "-o", "json", "--buffer", "1M")
	p.signal(syscall.SIGSTOP)
	from, to := w.Addr4("client"), w.Addr4("server")
	var flood []lab.Packet
	for i := range syns {
		flood = append(flood, lab.Packet{Src: from, Dst: to, Proto: unix.IPPROTO_TCP,
			Payload: lab.TCPHeader(from, to, 1024+i, closed, uint32(i), lab.SYN)})
	}
	moved, err := w.Counted("server", func() error {
		for some := range slices.Chunk(flood, 100) { // a queue of the kernel has room for some more
			if err := w.Inject("client", some...); err != nil {
				return err
			}
		}
		return w.Quiet()
	})
	if err != nil {
		t.Fatal(err)
	}
	came := int(moved["TcpOutRsts"]) // each is answered
	if came < syns*9/10 {
		t.Fatalf("%d of %d SYNs came", came, syns)
	}
	sessions(t, w, lab.Sessions{Count: connections, Send: 100, Recv: 100})
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	rows, lost, counted := map[string]int{}, map[string]int{}, 0
	for _, o := range linesOf(t, p.out.String()) {
		switch {
		case o.Losses != nil:
			lost[o.Tool] += o.Losses["ring_full"]
		case o.Tool == "skbdrop" && o.View == "drops" && o.Reason == "NO_SOCKET":
			counted += o.Count
		default:
			rows[o.Tool]++
		}
	}
	if rows["tcplife"] != connections || lost["tcplife"] != 0 {
		differ = append(differ, fmt.Errorf("tcplife: %d rows and %d lost of %d connections", rows["tcplife"], lost["tcplife"], connections))
	}
	if rows["tcpdrop"]+lost["tcpdrop"] != came || lost["tcpdrop"] == 0 {
		differ = append(differ, fmt.Errorf("tcpdrop: %d rows and %d lost of %d drops, which the ring has no room for", rows["tcpdrop"], lost["tcpdrop"], came))
	}
	if counted != came {
		differ = append(differ, fmt.Errorf("skbdrop counted %d of %d drops", counted, came))
	}
	return differ
}

// TestWithOrder: rows are in order of time, also while more come than can be written at once:
// thousands of connections are closed in one go.
func TestWithOrder(t *testing.T) {
	w, only := twoHosts(t)
	const connections = 7001
	tcp, err := lab.StartTCP(w, lab.Sessions{Count: connections, Send: 100, Recv: 50, Hold: true, Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tcp.Open(); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, append([]string{"with", "tcplife", "tcpstates", "tcpaccept", "soconnect", "--buffer", "64M", "-o", "json"}, only...)...)
	if _, err := tcp.Run(); err != nil {
		t.Fatal(err)
	}
	if err := w.Quiet(); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(0)
	var last time.Time
	rows, late, most := map[string]int{}, 0, time.Duration(0)
	for _, o := range linesOf(t, p.out.String()) {
		if o.Losses != nil {
			t.Errorf("%s lost events: %v", o.Tool, o.Losses)
			continue
		}
		rows[o.Tool]++
		if o.Time.Before(last) {
			late++
			most = max(most, last.Sub(o.Time))
		} else {
			last = o.Time
		}
	}
	if late > 0 {
		t.Errorf("%d rows stand below a later one, by up to %v", late, most)
	}
	// A session ends at both sides. Each side changes its state three times, or twice.
	if rows["tcplife"] != 2*connections || rows["tcpstates"] < 4*connections {
		t.Errorf("rows %v of %d sessions", rows, connections)
	}
}

// TestWith: rows of tools that see the same connections are merged by time, and a
// filter that is given once applies to all tools.
func TestWith(t *testing.T) {
	w, only := twoHosts(t)
	const connections = 23
	args := append([]string{"with", "tcplife", "'soconnect' --min 0", "tcpaccept", "tcpstates --by newstate", "--comm", "client"}, only...)
	for _, format := range []string{"json", "csv", "table"} {
		p := start(t, nil, append(args, "-o", format)...)
		sessions(t, w, lab.Sessions{Count: connections, Send: 100, Recv: 100, ClientComm: "client", ServerComm: "server"})
		p.signal(syscall.SIGINT)
		p.wantEnd(0)
		// The one that accepts has another name.
		want := map[string]int{"tcplife": connections, "soconnect": connections}
		got, states := map[string]int{}, 0
		switch format {
		case "json":
			var last time.Time
			for _, o := range linesOf(t, p.out.String()) {
				if o.Losses != nil {
					continue
				}
				if o.Time.Before(last) {
					t.Errorf("a row of %s at %v stands below one of %v", o.Tool, o.Time, last)
				}
				if last = o.Time; o.Tool == "tcpstates" {
					states += o.Count
				} else {
					got[o.Tool]++
				}
			}
		case "csv":
			lines, err := csv.NewReader(strings.NewReader(p.out.String())).ReadAll()
			if err != nil || strings.Join(lines[0], " ") != "time tool pid comm laddr raddr lport rport says" {
				t.Fatalf("%v: %q", err, p.out.String())
			}
			for _, line := range lines[1:] {
				got[line[1]]++
			}
		case "table":
			for line := range strings.Lines(p.out.String()) {
				got[strings.Fields(line)[1]]++
			}
			delete(got, "TOOL")
		}
		delete(got, "tcpstates")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: rows %v, want %v", format, got, want)
		}
		// To SYN_SENT, ESTABLISHED, FIN_WAIT1, FIN_WAIT2 and CLOSE.
		if format == "json" && states != 5*connections {
			t.Errorf("%d changes of state, want %d", states, 5*connections)
		}
	}
}
