// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// rounds is how often Undisturbed tries.
const rounds = 20

// Undisturbed calls round, which compares a tool's count with the kernel's and returns the
// differences. Kernels of some sandboxes run no BPF program while their agent, which is process
// 1, is the current task. An interrupt at such a time is in the kernel's count and in no tool's.
// So if a round finds a difference and process 1 has run meanwhile, the round says nothing and is
// repeated. If process 1 has not run, and in guests, the difference is the tool's.
func Undisturbed(round func() ([]error, error)) error {
	var last []error
	for range rounds {
		before, err := initRuns()
		if err != nil {
			return err
		}
		differ, err := round()
		if err != nil || len(differ) == 0 {
			return err
		}
		after, err := initRuns()
		if err != nil {
			return err
		}
		if Emulated() || before == after {
			return errors.Join(differ...)
		}
		last = differ
	}
	return fmt.Errorf("%w (process 1 has run, and the difference is there in each of %d rounds)", errors.Join(last...), rounds)
}

// initRuns is how long each thread of process 1 has run, and how often.
func initRuns() (string, error) {
	files, err := filepath.Glob("/proc/1/task/*/schedstat")
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("lab: process 1 has no /proc/1/task/*/schedstat (%v)", err)
	}
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("lab: %w", err)
		}
		all = append(all, b...)
	}
	return string(all), nil
}
