// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxComm is the size of task_struct.comm without its zero byte.
const maxComm = 15

// setComm names every thread of this process. Threads made later inherit the
// name. A thread that was being created meanwhile may have the old name, so
// setComm repeats until no thread has it.
func setComm(comm string) error {
	for again := true; again; {
		again = false
		tasks, err := filepath.Glob("/proc/self/task/[0-9]*/comm")
		if err != nil {
			return err
		}
		for _, path := range tasks {
			old, err := os.ReadFile(path)
			if err == nil && strings.TrimSuffix(string(old), "\n") != comm {
				again = true
				err = os.WriteFile(path, []byte(comm), 0)
			}
			if gone := errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH); err != nil && !gone {
				return fmt.Errorf("set comm: %w", err)
			}
		}
	}
	return nil
}
