// SPDX-License-Identifier: Apache-2.0

package why

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// The faults here are those of the whole machine: memory of TCP, and processors.

// keepEnv makes the test binary a keeper. It has the path of a setting and its old value.
const keepEnv = "SEINE_WHY_KEEP"

// keepFor is for how long a setting of the machine may be changed.
const keepFor = 30 * time.Second

// keep restores a setting when the test that changed it closes a pipe or dies, and at the
// latest after keepFor.
func keep(order string) (code int) {
	path, value, _ := strings.Cut(order, "=")
	done := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(keepFor):
		code = 1
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// change changes a setting of the whole machine. A keeper restores it, even if this
// process dies.
func change(path, value string) (restore func() error, err error) {
	was, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	keeper := exec.Command("/proc/self/exe")
	keeper.Env = append(os.Environ(), keepEnv+"="+path+"="+strings.TrimSpace(string(was)))
	keeper.Stderr = os.Stderr
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C of a terminal does not reach it
	held, err := keeper.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := keeper.Start(); err != nil {
		return nil, err
	}
	restore = func() error {
		held.Close()
		if err := keeper.Wait(); err != nil {
			return fmt.Errorf("the keeper of %s: %w", path, err)
		}
		if is, err := os.ReadFile(path); err != nil || string(is) != string(was) {
			return fmt.Errorf("%s is %q, was %q: %v", path, is, was, err)
		}
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return nil, errors.Join(err, restore())
	}
	return restore, nil
}

// hoards is a server with much unread data. If short is set, TCP comes under memory
// pressure: the threshold becomes half of the pages that TCP has then. The limit does not
// change, so no connection of this machine is refused memory. Then one client goes on to
// write until its window is closed, and waits.
func hoards(short bool) starter {
	return func(w *lab.World) (func() error, string, error) {
		u := unread{Addr: lab.TCP4.At(w.Addr4("server"), 0), Count: 400, First: 32_000, More: 1000}
		if short {
			u.Over = 8 * time.Second
			if err := rtoMin(w, "client", 200*ms); err != nil { // of probes of a closed window, too
				return nil, "", err
			}
		}
		server, err := w.Start("server", "why-web", bodyHoard, u)
		if err != nil {
			return nil, "", err
		}
		var port int
		if err := server.Expect(&port); err != nil {
			return nil, "", err
		}
		u.Addr = lab.TCP4.At(w.Addr4("server"), port)
		client, err := w.Start("client", "why-user", bodyFill, u)
		if err != nil {
			return nil, "", err
		}
		restore := func() error { return nil }
		begin := func() (err error) {
			var done bool
			if err := client.Call("first", &done); err != nil {
				return err
			}
			if short {
				if restore, err = halveMemory(); err != nil {
					return err
				}
			}
			defer func() { err = errors.Join(err, restore()) }()
			if err := client.Call("more", &done); err != nil {
				return err
			}
			pages, pressure, err := memory()
			if err == nil && pressure != short {
				err = fmt.Errorf("TCP has %d pages, under memory pressure: %v, want %v", pages, pressure, short)
			}
			time.Sleep(2 * time.Second) // seine looks once a second
			return errors.Join(err, client.Call("over", &done))
		}
		return func() error {
			if err := begin(); err != nil {
				return err
			}
			var done bool
			return errors.Join(client.Call("close", &done), server.Call("read", &done))
		}, "this machine", nil
	}
}

// halveMemory makes memory pressure start at half of the pages that TCP has
// now.
func halveMemory() (restore func() error, err error) {
	const path = "/proc/sys/net/ipv4/tcp_mem"
	var low, pressure, most int
	limits, err := os.ReadFile(path)
	if err == nil {
		_, err = fmt.Sscan(string(limits), &low, &pressure, &most)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	used, _, err := memory()
	if err == nil && used < 1000 {
		err = fmt.Errorf("TCP has %d pages, want 1000 or more", used)
	}
	if err != nil {
		return nil, err
	}
	return change(path, fmt.Sprint(used/4, used/2, most))
}

// memory is the number of pages that TCP has, and whether it is under memory
// pressure.
func memory() (pages int, pressure bool, err error) {
	text, err := os.ReadFile("/proc/net/protocols")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 4 && f[0] == "TCP" {
			pages, err = strconv.Atoi(f[3])
			return pages, f[4] == "yes", err
		}
	}
	return 0, false, errors.Join(err, errors.New("/proc/net/protocols has no TCP"))
}

// pour is datagrams that one processor receives, or all of them.
type pour struct {
	flood  lab.Flood
	rounds int                  // of work for each packet where it is received; 0: none
	spread bool                 // over all processors
	object func(cpu int) string // of the fault, which one processor has
}

func anyCPU(int) string     { return "this machine" }
func oneCPU(cpu int) string { return fmt.Sprint("processor ", cpu) }

// A datagram counts as its sender's until it is received. One socket would wait for a slow
// processor with some 300 of them, before the queue of that processor is full (1,000). So there
// are several.
var (
	// trickle is at most 10,000 datagrams a second, of which the queue
	// holds a tenth of a second.
	trickle = lab.Flood{Count: 10_000, Flows: 16, Burst: 50, Gap: 5 * ms}
	// stream is some 50,000 a second, in bursts that the queue of one processor has no room for.
	stream = lab.Flood{Count: 500_000, Flows: 64, Burst: 3000, Gap: 40 * ms}
)

// pours sends datagrams from the first processor. The last one receives them.
func pours(p pour) starter {
	return func(w *lab.World) (func() error, string, error) {
		cpus, err := lab.CPUs()
		if err != nil {
			return nil, "", err
		}
		if len(cpus) < 2 {
			return nil, "", fmt.Errorf("%w: one processor", lab.ErrNotSupported)
		}
		last := cpus[len(cpus)-1]
		if !p.spread {
			cpus = []int{last}
		}
		if err := errors.Join(w.PinChildren(), w.Steer("server", w.Dev("server", "client"), cpus...)); err != nil {
			return nil, "", err
		}
		p.flood.ClientComm, p.flood.ServerComm = "why-user", "why-web"
		f, err := lab.StartFlood(w, p.flood)
		if err != nil {
			return nil, "", err
		}
		begin := func() error {
			if p.rounds > 0 {
				busy, err := lab.StartBusy(unix.IPPROTO_UDP, f.Port, p.rounds)
				if err != nil {
					return err
				}
				defer busy.Close()
			}
			r, err := f.Run()
			if want := p.rounds > 0 && !p.spread; err == nil && (100*r.Missing > r.Sent) != want { // a busy machine loses some of each load
				err = fmt.Errorf("%d of %d datagrams were lost before they came to the socket, want more than 1 %%: %v", r.Missing, r.Sent, want)
			}
			return err
		}
		return begin, p.object(last), nil
	}
}
