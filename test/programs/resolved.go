// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"os"
	"path/filepath"

	"seine/internal/lab"
)

// Unpacked are Debian's packages that are unpacked and not installed: they would
// change the machine.
var Unpacked = []string{"systemd-resolved", "libsystemd-shared"}

// UnpackedDir is where they are.
func UnpackedDir() (string, error) {
	user, err := os.UserCacheDir()
	return filepath.Join(user, "seine", "unpacked"), err
}

// resolved makes a script in dir that starts systemd-resolved with its own library.
func resolved(dir string) (string, error) {
	root, err := UnpackedDir()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(root, "lib/systemd/systemd-resolved")
	if _, err := os.Stat(binary); err != nil {
		return "", fmt.Errorf("%w: make test unpacks it: %w", lab.ErrNotSupported, err)
	}
	libs, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/systemd"))
	if err != nil || len(libs) != 1 {
		return "", fmt.Errorf("no library of systemd-resolved in %s: %v", root, err)
	}
	script := filepath.Join(dir, "resolved.sh")
	text := fmt.Sprintf("#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s\n", libs[0], binary)
	return script, os.WriteFile(script, []byte(text), 0o755)
}
