// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"seine/test/vm/job"
)

// A boot is one guest, from its start to its end.
type boot struct {
	machine
	Kernel         string // uncompressed
	Initrd         string
	Disk           string // a root image; may be empty
	NIC            bool   // a card that leads nowhere
	Memory         string
	CPUs           int
	Steady         bool // time goes by instructions: see options
	Append         string
	Console        string // a file for the kernel's messages
	Stdout, Stderr io.Writer
	Started        func(after time.Duration) // the command is about to start
}

// run boots and waits for the end of the guest, which comes at the latest when
// ctx does. ok tells whether the guest reported an exit code.
func (b boot) run(ctx context.Context) (code int, ok bool, err error) {
	// The process dies with the thread that started it, see Pdeathsig below.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	start := time.Now()
	reports := marks{started: func() { b.Started(time.Since(start)) }}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, b.qemu, b.args()...)
	cmd.Stdout, cmd.Stderr = &said, &said
	// qemu dies with this process, even if it is killed, and does not get
	// Ctrl-C.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

	var wait sync.WaitGroup
	var ours []*os.File
	for port, w := range map[int]io.Writer{job.Stdout: b.Stdout, job.Stderr: b.Stderr, job.Marks: &reports} {
		r, pw, err := os.Pipe()
		if err != nil {
			return 0, false, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, pw)
		cmd.Args = append(cmd.Args, chardev(port, fmt.Sprintf("/dev/fd/%d", 2+len(cmd.ExtraFiles)))...)
		ours = append(ours, pw)
		wait.Go(func() {
			defer r.Close()
			// An error here is one of our own stdout: a closed
			// pipe. Continue reading, or the guest stops.
			if _, err := io.Copy(w, r); err != nil {
				io.Copy(io.Discard, r)
			}
		})
	}
	cmd.Args = append(cmd.Args, b.ports()...)
	err = cmd.Start()
	for _, f := range ours {
		f.Close()
	}
	if err == nil {
		err = cmd.Wait()
	}
	wait.Wait()
	if code, ok = job.ExitCode(reports.text.String()); ok {
		return code, true, nil
	}
	// qemu ends well when the guest powers off or panics.
	if err != nil && ctx.Err() == nil {
		return 0, false, fmt.Errorf("%s: %w: %s", b.qemu, err, bytes.TrimSpace(said.Bytes()))
	}
	return 0, false, nil
}

func (b boot) args() []string {
	accel := []string{"-accel", "tcg,thread=multi"}
	if b.Steady {
		accel = []string{"-accel", "tcg,thread=single", "-icount", "shift=0"}
	}
	args := []string{
		"-machine", b.board, "-m", b.Memory, "-smp", strconv.Itoa(b.CPUs), "-cpu", b.cpu,
		"-kernel", b.Kernel, "-initrd", b.Initrd, "-append", strings.TrimSpace(cmdline + " " + b.words + " " + b.Append),
		"-nodefaults", "-display", "none", "-no-reboot",
	}
	args = append(args, accel...)
	if b.NIC {
		// A network inside of qemu that accepts every packet and sends none out.
		// (A hub without other ports accepts none: the card would never complete
		// one.)
		args = append(args, "-netdev", "user,id=net0,restrict=on", "-device", "virtio-net-pci,netdev=net0,romfile=")
	} else {
		args = append(args, "-nic", "none")
	}
	if b.Disk != "" {
		args = append(args, "-drive", "file="+b.Disk+",if=virtio,format=raw,readonly=on")
	}
	return append(args, chardev(job.Console, b.Console)...)
}

func chardevID(port int) string { return fmt.Sprintf("port%d", port) }

func chardev(port int, path string) []string {
	return []string{"-chardev", fmt.Sprintf("file,id=%s,path=%s", chardevID(port), strings.ReplaceAll(path, ",", ",,"))}
}

// marks collects init's marks about the command and notices its start.
type marks struct {
	text    strings.Builder
	started func()
	once    sync.Once
}

func (m *marks) Write(b []byte) (int, error) {
	m.text.Write(b)
	if strings.Contains(m.text.String(), job.Started) {
		m.once.Do(m.started)
	}
	return len(b), nil
}
