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

// Undisturbed calls round, which compares what a tool counts with what the kernel
// counts, and returns in what they differ. Kernels of some sandboxes run no program
// while their agent, which is process 1, is the current task. An interrupt on top of
// it is in the kernel's count and in no tool's. So a round that finds a difference
// and in which process 1 has run says nothing, and there is another one. In a round
// in which it has not run, and in guests, the difference is the tool's.
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
	return fmt.Errorf("%w (process 1 has run, but so it is in each of %d rounds)", errors.Join(last...), rounds)
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
