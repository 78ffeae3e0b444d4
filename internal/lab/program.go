// SPDX-License-Identifier: Apache-2.0

package lab

import "fmt"

// Programs finds compiled programs by name; it compiles a missing one into dir.
// Test binaries set it. The product leaves it nil: it starts no compiler and no
// program from its own directory.
var Programs func(name, dir string) (string, error)

// Program is the path of a compiled program that a workload starts. If there is
// none, the error is ErrNotSupported.
func (w *World) Program(name string) (string, error) {
	if Programs == nil {
		return "", fmt.Errorf("the program %s is compiled, and only the project's tests have it: %w", name, ErrNotSupported)
	}
	dir, err := w.Dir()
	if err != nil {
		return "", err
	}
	path, err := Programs(name, dir)
	if err != nil {
		return "", fmt.Errorf("the program %s: %w", name, err)
	}
	return path, nil
}
