// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"seine/test/vm/debian"
)

// libsArch is the architecture whose C libraries are fetched: one that this
// machine has none of, and no root is built for.
const libsArch = "arm64"

var libsPackages = []string{"libc6", "musl"}

// libs prints a folder with C libraries as their packages have them.
func libs(ctx context.Context) error {
	user, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(user, "seine", "libs-"+libsArch)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := fetchLibs(ctx, dir); err != nil {
			return fmt.Errorf("libs: %w", err)
		}
	} else if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

func fetchLibs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".libs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	fmt.Fprintf(os.Stderr, "vm: libs: downloading %v of %s for %s\n", libsPackages, rootSuite, libsArch)
	suite, err := debian.Open(ctx, rootSuite, libsArch, filepath.Join(tmp, "apt"))
	if err != nil {
		return err
	}
	out := filepath.Join(tmp, "out")
	if err := suite.Unpack(ctx, out, libsPackages...); err != nil {
		return err
	}
	if err := os.Rename(out, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err // ErrExist: someone else has fetched them meanwhile
	}
	return nil
}
