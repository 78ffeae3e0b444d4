// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"seine/internal/lab"
)

// asSeine makes the test binary run as seine.
const asSeine = "SEINE_LIVE_TEST_SEINE"

// A command is a seine that runs beside the test.
type command struct {
	*exec.Cmd
	t         *testing.T
	out, said bytes.Buffer
	ended     chan struct{}
}

// startSeine returns when seine is ready.
func startSeine(t *testing.T, args ...string) *command {
	t.Helper()
	c := &command{Cmd: exec.Command("/proc/self/exe", args...), t: t, ended: make(chan struct{})}
	c.Env = append(os.Environ(), asSeine+"=1")
	c.Stdout = &c.out
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill() })
	ready := make(chan struct{})
	go func() {
		defer close(c.ended)
		once := ready
		for lines := bufio.NewScanner(io.TeeReader(pipe, &c.said)); lines.Scan(); {
			if lines.Text() == "seine: ready" && once != nil {
				close(once)
				once = nil
			}
		}
	}()
	select {
	case <-ready:
	case <-c.ended:
		t.Fatalf("%q ended: %s", args, c.said.String())
	}
	return c
}

// rows ends seine as Ctrl-C does, and returns its rows.
func (c *command) rows() (all []map[string]any) {
	c.t.Helper()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		c.t.Fatal(err)
	}
	<-c.ended
	if err := c.Wait(); err != nil {
		c.t.Fatalf("%q: %v: %s", c.Args[1:], err, c.said.String())
	}
	for line := range bytes.Lines(c.out.Bytes()) {
		r := map[string]any{}
		if err := json.Unmarshal(line, &r); err != nil {
			c.t.Fatalf("%s: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// TestTop: what top shows equals what flows, tcplife, tcpretrans and soconnect say about the same
// moments, and the traffic that was made. An emulated machine compares it with flows and the traffic.
func TestTop(t *testing.T) {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const n, send, recv, refused, port = 23, 1009, 777, 5, 4829
	sessions, err := lab.StartTCP(w, lab.Sessions{Count: n, Send: send, Recv: recv, Port: port, ClientComm: "top-client", ServerComm: "top-server"})
	if err != nil {
		t.Fatal(err)
	}
	var tries []lab.Attempt
	for range refused {
		tries = append(tries, lab.Attempt{Name: "refused", Network: lab.TCP4, Addr: fmt.Sprint("127.0.0.1:", port+1), Want: syscall.ECONNREFUSED})
	}
	connects, err := lab.StartConnects(w, "", "top-client", tries...)
	if err != nil {
		t.Fatal(err)
	}
	top := startSeine(t, "top", "-o", "json")
	line := []string{"with", "-o", "json", fmt.Sprint("--netns=", w.Netns(w.Hosts()[0])), "flows -i 1"}
	whole := !lab.Emulated() // it takes half a minute to load the others a second time
	if whole {
		line = append(line, "tcplife", "tcpretrans -l", "soconnect --where 'errno != nil'")
	}
	tools := startSeine(t, line...)
	loss, err := lab.StartLoss(lab.Loss{To: port, Data: 1, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer loss.Close()
	if _, err := sessions.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := connects.Run(); err != nil {
		t.Fatal(err)
	}

	said := map[string]float64{} // by the tools
	for _, r := range tools.rows() {
		comm, number := fmt.Sprint(r["comm"]), func(id string) float64 { n, _ := r[id].(float64); return n }
		if !strings.HasPrefix(comm, "top-") {
			continue
		}
		switch r["tool"] {
		case "flows":
			for _, id := range []string{"turns", "tx_bytes", "rx_bytes", "retrans"} {
				said[comm+" "+id] += number(id)
			}
		case "tcplife":
			said[comm+" closed"]++
		case "tcpretrans":
			said[fmt.Sprint(comm, " retransmit ", r["cause"])]++
		case "soconnect":
			said[fmt.Sprint(comm, " connect ", r["errno"])]++
		}
	}
	shown := map[string]float64{}
	for _, r := range top.rows() {
		comm, number := fmt.Sprint(r["comm"]), func(id string) float64 { n, _ := r[id].(float64); return n }
		if !strings.HasPrefix(comm, "top-") {
			continue
		}
		switch r["view"] {
		case "services":
			for id, as := range map[string]string{"turns": "turns", "tx_bytes_s": "tx_bytes", "rx_bytes_s": "rx_bytes", "retrans": "retrans"} {
				shown[comm+" "+as] += number(id)
			}
		case "events":
			what := ""
			if r["kind"] != "closed" {
				what = fmt.Sprint(" ", r["what"])
			}
			shown[fmt.Sprint(comm, " ", r["kind"], what)] += number("count")
		}
	}
	for what, n := range said {
		if shown[what] != n {
			t.Errorf("%s: top shows %v, the tool says %v", what, shown[what], n)
		}
	}
	if whole && len(shown) != len(said) {
		t.Errorf("top shows %v, the tools say %v", shown, said)
	}
	for what, want := range map[string]float64{
		"top-server closed": n, "top-client closed": n + refused, "top-server turns": n, "top-client turns": n, "top-client connect ECONNREFUSED": refused,
		"top-client tx_bytes": n * send, "top-client rx_bytes": n * recv, "top-server tx_bytes": n * recv, "top-server rx_bytes": n * send,
		"top-client retrans": 1,
	} {
		if shown[what] != want {
			t.Errorf("%s: top shows %v, want %v", what, shown[what], want)
		}
	}
	t.Log(shown)
}
