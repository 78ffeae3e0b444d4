// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// FrontFD is the descriptor of the front's end of the socketpair.
const FrontFD = 3

// A Keeper keeps a front running, the process that talks to the network. If the front ends, it
// is started again: at first after a second, then after twice as long each time.
type Keeper struct {
	Args   []string // arguments, the program first
	Answer Answerer
	Log    *slog.Logger

	pid    atomic.Int64
	starts atomic.Uint64
}

// Status returns the front's process, 0 if none runs, and the number of starts.
func (k *Keeper) Status() (pid int, starts uint64) { return int(k.pid.Load()), k.starts.Load() }

const (
	firstPause = time.Second
	mostPause  = 30 * time.Second
	grace      = 3 * time.Second
	ranWell    = time.Minute // after a front has run this long, the pause is a second again
)

// Run runs fronts until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := k.one(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= ranWell {
			pause = firstPause
		}
		k.Log.Error("the front has ended and is started again", "reason", fmt.Sprint(err), "in", pause.String())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, mostPause)
	}
}

// one runs one front to its end.
func (k *Keeper) one(ctx context.Context) error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "front"), os.NewFile(uintptr(ends[1]), "holder")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	defer conn.Close()
	cmd := exec.Command("/proc/self/exe", k.Args[1:]...)
	cmd.Args = k.Args
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // Ctrl-C goes to the holder only, which then ends the front
	if err := cmd.Start(); err != nil {
		return err
	}
	theirs.Close()
	k.pid.Store(int64(cmd.Process.Pid))
	k.starts.Add(1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	exited := make(chan struct{})
	go func() {
		served <- Serve(ctx, conn, k.Answer)
		// A front ends by itself when its connection ends, unless it hangs.
		select {
		case <-exited:
		case <-time.After(grace):
			_ = cmd.Process.Kill()
		}
	}()
	err = cmd.Wait()
	close(exited)
	k.pid.Store(0)
	stop()
	if told := <-served; err == nil {
		err = told
	}
	return err
}
