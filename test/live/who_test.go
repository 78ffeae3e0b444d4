// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/trial"
)

const (
	bodyChanges = "live-changes"
	bodyChanged = "live-changed"
)

func init() {
	lab.Register(bodyChanges, changes)
	lab.Register(bodyChanged, changed)
}

// another is the id of a user without files.
const another = 47111

// changes connects to itself, and then executes a program of the same name as another
// user, which inherits both ends.
func changes(c *lab.Child) error {
	if err := c.Await("go"); err != nil {
		return err
	}
	ends, err := pair(lab.TCP4)
	if err != nil {
		return err
	}
	for _, fd := range ends {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	if err := syscall.Setresuid(another, another, another); err != nil { // all threads
		return err
	}
	return c.Become(c.Comm, bodyChanged, ends)
}

func changed(c *lab.Child) error {
	var ends []int
	if err := c.Arg(&ends); err != nil {
		return err
	}
	for i := range ends {
		if err := errors.Join(lab.SendAll(ends[i], []byte("hello")), lab.RecvAll(ends[1-i], make([]byte, 5))); err != nil {
			return err
		}
	}
	return nil
}

// TestSameName: a process whose new program has the same name but another user is shown
// with that user.
func TestSameName(t *testing.T) {
	k, err := probe.Running()
	if err != nil {
		t.Fatal(err)
	}
	if !k.HasFunc("bpf_get_current_task_btf") {
		t.Skip("on this kernel it would cost too much to look")
	}
	c := trial.Case{Name: "same-name", Run: func(x *trial.Trial) error {
		p, err := x.World.Start("", "same", bodyChanges, nil)
		if err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		if err := errors.Join(p.Tell("go"), p.Wait()); err != nil {
			return err
		}
		p.UID = another
		rows, err := x.Exactly(2)
		for _, r := range rows {
			x.Want(r, "pid", p.PID)
			x.Want(r, "comm", "same")
			x.Want(r, "uid", another)
		}
		return err
	}}
	if _, err := trial.RunCase(t.Context(), named(t, "tcplife"), c, ""); err != nil {
		t.Error(err)
	}
}

// TestKernelThread: the process of a kernel thread's work is unknown. A filter cannot
// match it.
func TestKernelThread(t *testing.T) {
	const n = 23
	c := trial.Case{Name: "kernel-thread", Hosts: lab.TwoHosts, Run: func(x *trial.Trial) error {
		threads, err := x.World.Threaded("client", "server")
		if errors.Is(err, lab.ErrNotSupported) {
			return trial.Skip("%v", err)
		} else if err != nil {
			return err
		}
		if len(threads) != 1 {
			return fmt.Errorf("%d threads poll for the server's device, want 1", len(threads))
		}
		calls, err := lab.StartConnects(x.World, "client", "caller", slices.Repeat([]lab.Attempt{{
			Name: "refused", Network: lab.TCP4, Addr: lab.TCP4.At(x.World.Addr("server", lab.TCP4), 9), Want: unix.ECONNREFUSED}}, n)...)
		if err != nil {
			return err
		}
		before, err := x.World.Counters("server")
		if err != nil {
			return err
		}
		ran, err := switches(threads[0])
		if err != nil {
			return err
		}
		if err := x.AttachAll("-p", fmt.Sprint(threads[0])); err != nil {
			return err
		}
		_, err = calls.Run()
		rows, detached := x.Detach()
		if err := errors.Join(err, detached); err != nil {
			return err
		}
		after, err := x.World.Counters("server")
		if err != nil {
			return err
		}
		again, err := switches(threads[0])
		if err != nil {
			return err
		}
		if resets := after.Since(before)["TcpOutRsts"]; resets != n || again == ran {
			x.Errorf("the server has sent %d resets, want %d, and its thread ran %d times", resets, n, again-ran)
		}
		for _, r := range rows {
			if births := r.Get("births"); births != nil && births.N > 0 {
				x.Errorf("the thread has made %d buffers of kind %s, want none", births.N, r.Get("kind").S)
			}
		}
		return nil
	}}
	if _, err := trial.RunCase(t.Context(), named(t, "skblife"), c, ""); errors.Is(err, trial.ErrSkip) {
		t.Skip(err)
	} else if err != nil {
		t.Error(err)
	}
}

// switches is the number of times that a thread has run.
func switches(tid int) (n int, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", tid))
	if err != nil {
		return 0, err
	}
	var run, wait uint64
	_, err = fmt.Sscan(string(b), &run, &wait, &n)
	return n, err
}
