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

const qemu = "qemu-system-x86_64"

// cmdline is the kernel's command line.
var cmdline = strings.Join([]string{
	"console=ttyS0 quiet loglevel=5", // warnings and worse
	"no_timer_check",                 // a busy host keeps the guest from seeing its timer tick in time
	"panic=-1 oops=panic",            // end: after an oops nothing can be trusted
	// Under load the watchdog takes the TSC for broken. Then every look at the
	// clock goes to an emulated device: 10 to 50 µs, against less than one.
	"tsc=reliable",
	// Attaching and detaching wait for grace periods, some hundred times a run.
	"rcupdate.rcu_expedited=1",
	// What costs boot time under emulation and proves nothing about us.
	"mitigations=off nokaslr nowatchdog cryptomgr.notests",
	"audit=0 apparmor=0 selinux=0",
	"random.trust_cpu=on",
}, " ")

// A boot is one guest, from its start to its end.
type boot struct {
	Kernel         string // uncompressed: qemu enters it by its PVH note, and 5.10 boots in half the time
	Initrd         string
	Disk           string // a root image; may be empty
	NIC            bool   // a card that leads nowhere
	Memory         string
	CPUs           int
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
	cmd := exec.CommandContext(ctx, qemu, b.args()...)
	cmd.Stdout, cmd.Stderr = &said, &said
	// No qemu outlives us, even if we are killed; and Ctrl-C is ours alone.
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
			// An error here is one of our own stdout: a closed pipe. Read on, or the guest stops.
			if _, err := io.Copy(w, r); err != nil {
				io.Copy(io.Discard, r)
			}
		})
	}
	for port := range job.Ports {
		cmd.Args = append(cmd.Args, "-serial", "chardev:"+chardevID(port))
	}
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
		return 0, false, fmt.Errorf("%s: %w: %s", qemu, err, bytes.TrimSpace(said.Bytes()))
	}
	return 0, false, nil
}

func (b boot) args() []string {
	args := []string{
		"-machine", "pc", "-m", b.Memory, "-smp", strconv.Itoa(b.CPUs),
		// Four levels of page tables, whichever way a kernel is entered.
		"-cpu", "max,la57=off", "-accel", "tcg,thread=multi",
		"-kernel", b.Kernel, "-initrd", b.Initrd, "-append", strings.TrimSpace(cmdline + " " + b.Append),
		"-nodefaults", "-display", "none", "-no-reboot",
	}
	if b.NIC {
		// A network of qemu's own that takes every packet and lets none out. (A hub
		// without other ports takes none: the card would never finish one.)
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

// marks collects what init says about the command and notices its start.
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
