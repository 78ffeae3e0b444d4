// SPDX-License-Identifier: Apache-2.0

package hardirqs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

const bodyInterrupt = "hardirqs-interrupt"

// source is a file whose use causes interrupts: a block device that is not
// memory, or our own binary if it is on one; in a guest without disks the serial
// line of the console, which nobody reads. It is empty if there is none.
func source() string {
	found, _ := filepath.Glob("/sys/block/*/device") // loop and zram have no interrupts
	for i, f := range found {
		found[i] = "/dev/" + filepath.Base(filepath.Dir(f))
	}
	if lab.Emulated() {
		found = append(found, serial)
	}
	for _, path := range append(found, "/proc/self/exe") {
		if _, err := os.Stat(path); err == nil && path == serial {
			return path
		}
		if f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0); err == nil {
			f.Close()
			return path
		}
	}
	return ""
}

const serial = "/dev/ttyS0"

// open opens the source.
func open() (*os.File, error) {
	path := source()
	if path == serial {
		return os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	}
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
}

// interrupt uses the source n times, and waits for it each time.
func interrupt(c *lab.Child) error {
	var count int
	if err := c.Arg(&count); err != nil {
		return err
	}
	f, err := open()
	if err != nil {
		return err
	}
	defer f.Close()
	page := make([]byte, 8192) // a part of it has the alignment that disks need
	page = page[4096-uintptr(unsafe.Pointer(&page[0]))%4096:][:4096]
	for i := range count {
		if f.Name() != serial {
			_, err = f.ReadAt(page, int64(i%256)*4096) // past the cache
		} else if _, err = f.WriteString("\r\r\r\r\r\r\r\r"); err == nil {
			err = unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1) // until it is sent
		}
		if err != nil {
			return err
		}
	}
	return c.Report(true)
}

// load makes a device interrupt the machine.
func load(w *lab.World, count int) error {
	p, err := w.Start("", "reader", bodyInterrupt, count)
	if err != nil {
		return err
	}
	return p.Wait()
}

// Demo is the traffic of seine demo.
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		if source() == "" {
			return errors.New("no disk to read from, and no guest's console")
		}
		return load(w, 2003)
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "counts", Run: counts("--by=irq,hardirq,cpu", "--counts")},
	{Name: "agrees", Run: counts("--by=irq,hardirq,cpu")},
}

// counts: for each interrupt on each processor, the tool's count lies between two
// counts of the kernel: that of the time in which the tool was surely attached,
// and that of the time in which it may have been.
func counts(flags ...string) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if source() == "" {
			return trial.Skip("no disk to read from, and no guest's console")
		}
		f, err := open() // a serial line has an interrupt only while it is open
		if err != nil {
			return err
		}
		defer f.Close()
		return lab.Undisturbed(func() ([]error, error) { return round(x, flags) })
	}
}

// round is one round of counts. It returns the differences of the tool and the
// kernel.
func round(x *trial.Trial, flags []string) (differ []error, err error) {
	wrong := func(format string, args ...any) { differ = append(differ, fmt.Errorf(format, args...)) }
	rows, at, err := x.Counted(lab.AllInterrupts, func() error { return load(x.World, 499) }, flags...)
	if err != nil {
		return nil, err
	}
	// If devices share a line, each interrupt calls all handlers.
	seen := map[string]map[int]uint64{}
	for _, r := range rows {
		line, cpu, n := trial.Value(r.Get("irq")), int(r.Get("cpu").N), r.Get("count").N
		if err := at.Between(n, line, cpu); err != nil {
			differ = append(differ, err)
		}
		if name := r.Get("hardirq").S; name == "" || !named(at[3].Text[line], name) {
			wrong("interrupt %s is called %q, and by the kernel %q", line, name, at[3].Text[line])
		}
		if seen[line] == nil {
			seen[line] = map[int]uint64{}
		}
		seen[line][cpu] += n
	}
	var moved uint64
	for line, cpus := range at[3].Count {
		if strings.Trim(line, "0123456789") != "" {
			continue // LOC, RES and others do not belong to a device
		}
		for cpu := range cpus {
			n := at[2].Count[line][cpu] - at[1].Count[line][cpu]
			if moved += n; n > 0 && seen[line][cpu] == 0 {
				wrong("interrupt %s came %d times on processor %d, and there is no row of it", line, n, cpu)
			}
		}
	}
	if moved < 100 {
		wrong("using a device 499 times made %d interrupts", moved)
	}
	return differ, nil
}

// named reports whether a line of /proc/interrupts has a handler of that name.
// Names come after the controller and the kind, separated by commas.
func named(text, name string) bool {
	for one := range strings.SplitSeq(text, ", ") {
		if one == name || strings.HasSuffix(one, " "+name) {
			return true
		}
	}
	return false
}

func init() {
	lab.Register(bodyInterrupt, interrupt)
}
