// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"seine/test/vm/debian"
)

// HeadersPackage is the package that has what a kernel's modules are built with.
func (k Kernel) HeadersPackage() string { return "linux-headers-" + k.Version }

// Headers unpacks a kernel's headers into the Debian root at tree, where those who
// compile on the spot look for them: /lib/modules/VERSION/build. The compiler and
// the scripts that go with them stay away. tmp is for what is downloaded.
func (k Kernel) Headers(ctx context.Context, tree, tmp string) error {
	from, err := originOf(k.Name)
	if err != nil {
		return err
	}
	suite, err := debian.Open(ctx, from.suite, from.arch, filepath.Join(tmp, "apt"))
	if err != nil {
		return err
	}
	needs, err := suite.Depends(ctx, k.HeadersPackage())
	if err != nil {
		return fmt.Errorf("kernel %s: %w: if the archive has a newer one by now, vm fetch -update", k.Name, err)
	}
	out := filepath.Join(tmp, "out")
	if err := suite.Unpack(ctx, out, headerPackages(k.HeadersPackage(), needs)...); err != nil {
		return err
	}
	// In a root /lib is a link, which a package from before trixie would replace.
	for _, from := range []string{"usr/src", "lib/modules", "usr/lib/modules"} {
		to := filepath.Join(tree, "usr", strings.TrimPrefix(from, "usr/"))
		if _, err := os.Stat(filepath.Join(out, from)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := run(ctx, "cp", "-a", filepath.Join(out, from)+"/.", to); err != nil {
			return err
		}
	}
	return nil
}

// headerPackages is a package of headers and the one that it shares with the other
// flavours of its kernel.
func headerPackages(pkg string, needs []string) []string {
	list := []string{pkg}
	for _, n := range needs {
		if strings.HasPrefix(n, "linux-headers-") {
			list = append(list, n)
		}
	}
	return list
}
