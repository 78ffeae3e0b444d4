// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// TestSystemFlood calls system() faster than commands can run: what they print
// comes at once, and the end does not wait for those that are left.
func TestSystemFlood(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat("/bin/sh"); err != nil {
		lack(t, err)
	}
	if lab.Emulated() {
		t.Skip("the flood and the commands share one slow processor, and nothing of it depends on the kernel")
	}
	for _, c := range []struct{ name, command, want string }{
		{"short", "echo hi", "hi\n"}, {"long", "echo hi; sleep 1000 & sleep 1000", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			done := make(chan struct{})
			defer close(done)
			var calls atomic.Int64
			go func() {
				for {
					select {
					case <-done:
						return
					default:
						_, _ = unix.Getpgid(0)
						calls.Add(1)
						runtime.Gosched() // on one processor others have to run too
					}
				}
			}()
			out, in := io.Pipe()
			var errs bytes.Buffer
			ready := make(chan struct{})
			p, err := Compile(&Source{Name: "-e", Text: `t:syscalls:sys_enter_getpgid { system("` + c.command + `"); } END { system("echo the end"); }`},
				Options{Unsafe: true, PIDs: self(), Out: in, Err: &errs, Ready: func() { close(ready) }})
			check(err)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan Lost, 1)
			go func() {
				r, err := p.Run(ctx)
				check(err)
				check(in.Close())
				ended <- r.Lost()
			}()
			<-ready
			first := calls.Load()
			soon(func() bool { return calls.Load() > first+5000 })
			b := make([]byte, len(c.want))
			if _, err := io.ReadFull(out, b); err != nil || string(b) != c.want {
				t.Fatalf("got %q, %v, want %q", b, err, c.want)
			}
			stop()
			began := time.Now()
			all := make(chan string, 1)
			go func() { all <- string(must(io.ReadAll(out))) }()
			select {
			case lost := <-ended:
				if !strings.HasSuffix(<-all, "the end\n") {
					t.Error("END did not run its command")
				}
				if lost.Commands == 0 || !strings.Contains(strings.Join(lost.Summary(), "\n"), " of system() were not run") {
					t.Errorf("got %+v, want commands that were not run", lost)
				}
			case <-time.After(time.Minute):
				t.Fatalf("did not end %v after it was told to", time.Since(began))
			}
		})
	}
}

// TestBroken wants records counted that are too short or of no action.
func TestBroken(t *testing.T) {
	r := &Run{p: &Program{u: &unit{actions: []*action{{kind: "printf", types: []*Type{typeU64}}}}}}
	r.handle(make([]byte, recordHead-1))
	r.handle(make([]byte, recordHead))
	r.handle(append([]byte{1}, make([]byte, recordHead+8)...))
	if r.broken != 3 {
		t.Errorf("got %d broken records, want 3", r.broken)
	}
}
