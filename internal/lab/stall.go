// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Threaded makes a kernel thread, instead of a softirq, receive the packets that one host
// sends to another: the veth device polls in it. It returns the PIDs of new threads; a
// second call makes none.
func (w *World) Threaded(from, to string) (pids []int, err error) {
	if err := w.Join(from, to); err != nil {
		return nil, err
	}
	dev := w.Dev(to, from)
	before, err := pollers(dev)
	if err != nil {
		return nil, err
	}
	if err := w.Do(to, func() error { return threaded(dev) }); err != nil {
		return nil, fmt.Errorf("lab: polling in a thread: %w", unsupported(dev, err))
	}
	after, err := pollers(dev)
	if err != nil {
		return nil, err
	}
	for pid := range after {
		if !before[pid] {
			pids = append(pids, pid)
		}
	}
	if len(after) == 0 {
		return nil, fmt.Errorf("lab: %w: no thread polls for %s", ErrNotSupported, dev)
	}
	return pids, nil
}

// Stall makes the packets that one host sends to another wait until the sending processor has
// nothing else to do: the veth device polls in a thread that runs only there, with the lowest
// priority. From 6.16 on its ring fills, and it returns packets. fn's thread sends from that
// processor.
func (w *World) Stall(from, to string, fn func() error) error {
	pids, err := w.Threaded(from, to)
	if err != nil {
		return err
	}
	var one unix.CPUSet
	one.Set(0)
	for _, pid := range pids {
		if err := errors.Join(unix.SchedSetaffinity(pid, &one), unix.SchedSetAttr(pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)); err != nil {
			return fmt.Errorf("lab: thread of %s: %w", w.Dev(to, from), err)
		}
	}
	return w.Do(from, func() error {
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return err
		}
		return fn()
	})
}

// threaded switches a device of the calling thread's namespace to polling in a
// thread. The setting is in sysfs; the thread mounts its own.
func threaded(dev string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join("/sys/class/net", dev, "threaded"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.EOPNOTSUPP // before 5.12
	} else if err != nil {
		return err
	}
	_, err = f.WriteString("1")
	return errors.Join(err, f.Close())
}

// pollers lists the threads that poll for devices of that name.
func pollers(dev string) (map[int]bool, error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	out := map[int]bool{}
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.HasPrefix(string(b), "napi/"+dev+"-") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(n)))
			out[pid] = true
		}
	}
	return out, err
}
