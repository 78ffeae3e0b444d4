// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// CPUs are the processors that this process may use.
func CPUs() (all []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("lab: processors: %w", err)
	}
	for cpu := 0; len(all) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all, nil
}

// Steer makes these processors receive the packets of a host's device, each flow on one
// of them (RPS).
func (w *World) Steer(host, dev string, cpus ...int) error {
	words := make([]uint32, 1)
	for _, cpu := range cpus {
		for len(words) <= cpu/32 {
			words = append(words, 0)
		}
		words[cpu/32] |= 1 << (cpu % 32)
	}
	mask := ""
	for i := len(words) - 1; i >= 0; i-- {
		mask += fmt.Sprintf(",%08x", words[i])
	}
	err := w.Do(host, func() error { return writeSysfs("class/net/"+dev+"/queues/rx-0/rps_cpus", mask[1:]) })
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lab: steer: %w: RPS (%w)", ErrNotSupported, err)
	} else if err != nil {
		return fmt.Errorf("lab: steer: %w", err)
	}
	return nil
}

// writeSysfs writes a file of the sysfs that belongs to the network namespace of the calling
// thread. The mounted one belongs to another namespace, and does not show its devices.
func writeSysfs(path, value string) error {
	fsfd, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("sysfs: %w", err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return fmt.Errorf("sysfs: %w", err)
	}
	root, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("sysfs: %w", err)
	}
	defer unix.Close(root)
	return overwrite(fmt.Sprintf("/proc/self/fd/%d/%s", root, path), value)
}
