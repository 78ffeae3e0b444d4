// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestWire asks many questions at once. Each gets its own answer, in any order.
func TestWire(t *testing.T) {
	ours, theirs := net.Pipe()
	go Serve(t.Context(), ours, func(_ context.Context, what string, params url.Values) (int, []byte) {
		if what == "n1" {
			time.Sleep(50 * time.Millisecond) // the others overtake it
		}
		return 200, []byte(what + params.Get("p"))
	})
	c := NewClient(theirs)
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			what := fmt.Sprintf("n%d", i)
			status, body, err := c.Ask(t.Context(), what, url.Values{"p": {"x"}})
			if err != nil || status != 200 || string(body) != what+"x" {
				t.Errorf("%s: %d %s %v", what, status, body, err)
			}
		})
	}
	wait.Wait()
	if status, _, err := c.Ask(t.Context(), strings.Repeat("x", mostQuestion), nil); status != 414 || err != nil {
		t.Errorf("a question that is too long: %d, %v", status, err)
	}
	ours.Close()
	<-c.Gone()
	if _, _, err := c.Ask(t.Context(), "x", nil); err == nil {
		t.Error("a holder that is gone answers")
	}
}

// TestWireHostile: if a front is compromised and sends garbage, the holder ends the connection and nothing else.
func TestWireHostile(t *testing.T) {
	for _, bytes := range []string{
		"\xff\xff\xff\xff\x00\x00\x00\x01\x00\x00", // 4 GB
		"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00", // less than a head
		"\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00nope",
	} {
		ours, theirs := net.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- Serve(t.Context(), ours, func(context.Context, string, url.Values) (int, []byte) { return 200, nil })
		}()
		go theirs.Write([]byte(bytes))
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("%q is taken", bytes)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%q is waited for", bytes)
		}
		theirs.Close()
	}
}

func TestLimited(t *testing.T) {
	var b bytes.Buffer
	l := NewLimited(slog.NewTextHandler(&b, nil))
	now := time.Unix(1_700_000_000, 0)
	l.shared.now = func() time.Time { return now }
	log := slog.New(l).With("a", 1)
	for i := range 100 {
		log.Warn("again", "i", i)
	}
	log.Warn("another")
	if got := strings.Count(b.String(), "msg=again"); got != mostLines {
		t.Errorf("%d lines, want %d", got, mostLines)
	}
	if !strings.Contains(b.String(), "msg=another") || l.Suppressed() != 100-mostLines {
		t.Errorf("%d left out:\n%s", l.Suppressed(), &b)
	}
	now = now.Add(time.Minute)
	log.Warn("again")
	if want := fmt.Sprintf("line=again count=%d", 100-mostLines); !strings.Contains(b.String(), want) || strings.Count(b.String(), "msg=again") != mostLines+1 {
		t.Errorf("no %q in\n%s", want, &b)
	}
}
