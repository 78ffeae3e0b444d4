// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockName is the file that a writer holds. It is not part of the recording.
const lockName = ".writer"

// lock makes sure that there is one writer. The kernel lets go of it however the
// process ends.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
		}
		pid, _ := io.ReadAll(io.LimitReader(f, 32))
		return nil, fmt.Errorf("process %s records into %s: stop it, or choose another directory", strings.TrimSpace(string(pid)), dir)
	}
	if err = f.Truncate(0); err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) { // the lock holds without the number
		f.Close()
		return nil, err
	}
	return f, nil
}
