// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"seine/internal/lab"
)

// Unpacked are Debian's packages that are unpacked and not installed: they would
// change the machine.
var Unpacked = []string{"systemd-resolved", "libsystemd-shared", "prometheus"}

// UnpackedDir is where they are.
func UnpackedDir() (string, error) {
	user, err := os.UserCacheDir()
	return filepath.Join(user, "seine", "unpacked-"+strings.Join(Unpacked, "-")), err
}

// Prometheus is the path of one of the programs of Debian's package prometheus.
func Prometheus(name string) (string, error) {
	root, err := UnpackedDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "usr/bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("make test unpacks it: %w", err)
	}
	return path, nil
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
