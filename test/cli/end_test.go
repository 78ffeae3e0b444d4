// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/internal/lab"
)

// After a signal the tool prints its results and exits with success. Nothing is
// left in the kernel, however the process ended.
func TestEnd(t *testing.T) {
	// Under nohup these tests ignore SIGHUP, and so would their children. A
	// handler here becomes the default again in the children.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	const five = `"comm":"lab-client","count":5,`
	for _, tt := range []struct {
		name    string
		tool    []string // all of these gather until the end
		signals []syscall.Signal
		code    int
		want    string // in what was gathered; empty: it need not be printed
	}{
		{"interrupt", []string{"tcplife", "--by=comm"}, []syscall.Signal{syscall.SIGINT}, 0, five},
		{"terminate", []string{"tcplife", "--by=comm"}, []syscall.Signal{syscall.SIGTERM}, 0, five},
		{"timeout", []string{"tcplife", "--by=comm"}, slices.Repeat([]syscall.Signal{syscall.SIGTERM}, 8), 0, five}, // as timeout(1), only worse
		{"histogram", []string{"socksize", "--by=comm,dir"}, []syscall.Signal{syscall.SIGINT}, 0, `"dir":"write","comm":"lab-client","unit":"bytes","count":5,"sum":5000,"min":1000,"max":1000,`},
		{"interval", []string{"tcptop", "-i=1h", "--where=comm == \"lab-client\""}, []syscall.Signal{syscall.SIGTERM}, 0, `"comm":"lab-client"`},
		{"kill", []string{"tcplife", "--by=comm"}, []syscall.Signal{syscall.SIGKILL}, 128 + 9, ""},
		{"hangup", []string{"tcplife", "--by=comm"}, []syscall.Signal{syscall.SIGHUP}, 0, five},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, only := twoHosts(t)
			p := start(t, nil, append(append(tt.tool, "-o=json"), only...)...)
			h := p.holds()
			sessions(t, w, lab.Sessions{Count: 5, Send: 1000, Recv: 777})
			began := time.Now()
			for _, s := range tt.signals {
				if time.Since(began) > 100*time.Millisecond {
					break // later they are another wish
				}
				p.signal(s)
				time.Sleep(3 * time.Millisecond) // or the kernel makes one of them
			}
			p.wantEnd(tt.code)
			if !strings.Contains(p.out.String(), tt.want) {
				t.Errorf("stdout %q, want %q in it", p.out.String(), tt.want)
			}
			if tt.want != "" {
				if _, err := parseRows(p.out.String(), tt.tool[0]); err != nil {
					t.Error(err)
				}
				p.await(&p.err, `(?m)^seine: \d+ rows, 0 lost, \d+\.\ds$`)
			}
			h.gone(t)
		})
	}
}

// The language prints its maps too. Under nohup all go on.
func TestHangup(t *testing.T) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	for _, tt := range []struct{ args, want string }{
		{"funccount t:sched:sched_switch", "sched:sched_switch "}, {"run -e t:sched:sched_switch{@=count()}", "@: "}, {"tcplife", "PID"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			for _, ignored := range []bool{false, true} {
				args := append(strings.Fields(tt.args), "-d=1h")
				p := startWith(t, func(c *exec.Cmd) {
					if ignored {
						c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, c.Args...)
					}
				}, args...)
				p.signal(syscall.SIGHUP)
				if ignored {
					select {
					case <-p.ended:
						t.Fatal("it ended by a signal that it was to ignore")
					case <-time.After(300 * time.Millisecond):
					}
					p.signal(syscall.SIGTERM)
				}
				p.wantEnd(0)
				if !strings.Contains(p.out.String(), tt.want) {
					t.Errorf("stdout %q, want %q in it", p.out.String(), tt.want)
				}
			}
		})
	}
}

// A second Ctrl-C ends a run that cannot end: its output is a full pipe that
// nobody reads.
func TestSecondInterrupt(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	world, only := twoHosts(t)
	p := start(t, w, append([]string{"tcplife", "-o=json"}, only...)...)
	w.Close()
	h := p.holds()
	sessions(t, world, lab.Sessions{Count: 331, Brief: true}) // 64 KiB and more
	p.signal(syscall.SIGINT)
	select {
	case <-p.ended:
		t.Fatal("it ended by the first: the pipe was not full")
	case <-time.After(5 * time.Second): // the echo of the first is over, also where it was late
	}
	p.signal(syscall.SIGINT)
	p.wantEnd(128 + 2)
	h.gone(t)
}

// head -1 ends after a line; seine then ends without a message.
func TestClosedPipe(t *testing.T) {
	t.Parallel()
	head := exec.Command("sh", "-c", `("$0" demo tcplife; echo "code $?" >&2) | head -1`, seine)
	var out, errs strings.Builder
	head.Stdout, head.Stderr = &out, &errs
	if err := head.Run(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), "PID") {
		t.Errorf("head shows %q, want the head of the table", out.String())
	}
	if !strings.Contains(errs.String(), "code 0\n") || strings.Contains(errs.String(), "pipe") {
		t.Errorf("stderr %q, want exit code 0 and nothing about a pipe", errs.String())
	}
}

// If the reader closes the pipe while nothing happens, the run ends too.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"tcplife", "socksize", "tcptop"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			args := []string{tool, "--netns=4294967295"}
			if tool == "tcptop" {
				args = append(args, "-i=1h")
			}
			p := start(t, w, args...)
			w.Close()
			h := p.holds()
			r.Close()
			p.wantEnd(0)
			h.gone(t)
		})
	}
}

// A full disk is not the same as a closed pipe.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{
		"demo tcplife", "", "help", "help tcplife", "tcplife -h", "run -h", "tcplife --columns help", "list", "man", "version", "--version", "completion bash", "doctor tcplife",
		"run -l t:tcp:*",
	} {
		cmd := exec.Command(seine, strings.Fields(args)...)
		var errs strings.Builder
		cmd.Stdout, cmd.Stderr = full, &errs
		if got := exitCode(cmd.Run()); got != 1 || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%s: exit code %d, stderr %q, want 1 and the reason", args, got, errs.String())
		}
	}
}

// A demo may end at any time before its traffic: by -n, by -d, or by a signal.
// That is not an error.
func TestDemoEndsEarly(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-n=1"}, {"-n=3"}, {"-n=7"}, {"-n=9"}, {"-d=1ms"}, {"-d=10ms"}, {"-d=40ms"}, {"signal"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			if args[0] != "signal" {
				p := start(t, nil, append([]string{"demo", "tcplife"}, args...)...)
				p.wantEnd(0)
				return
			}
			p := start(t, nil, "demo", "tcplife")
			p.signal(syscall.SIGINT)
			p.wantEnd(0)
			p.await(&p.err, `(?m)^seine: \d+ rows, 0 lost`)
		})
	}
}
