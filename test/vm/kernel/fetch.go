// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"seine/test/vm/debian"
)

// Fetch returns a kernel from the cache. What is not there is downloaded and
// unpacked; with update always, and the archive's newest takes the place of
// what was there. A line of progress goes to log before each long step.
func Fetch(ctx context.Context, name string, update bool, log io.Writer) (Kernel, error) {
	k, err := Cached(name)
	if err == nil && !update {
		return k, nil
	}
	if err != nil && !errors.Is(err, ErrNotCached) {
		return k, err
	}
	if k, err = fetch(ctx, name, log); err != nil {
		return k, fmt.Errorf("kernel %s: %w", name, err)
	}
	return k, nil
}

func fetch(ctx context.Context, name string, log io.Writer) (Kernel, error) {
	from, err := originOf(name)
	if err != nil {
		return Kernel{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return Kernel{}, err
	}
	// In the cache, so that the result can be renamed into place.
	tmp, err := os.MkdirTemp(cache, ".fetch-")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(tmp)
	for _, d := range []string{"apt", "root", "out"} {
		if err := os.Mkdir(filepath.Join(tmp, d), 0o755); err != nil {
			return Kernel{}, err
		}
	}

	fmt.Fprintf(log, "vm: %s: reading the lists of %s\n", name, from.suite)
	suite, err := debian.Open(ctx, from.suite, from.arch, filepath.Join(tmp, "apt"))
	if err != nil {
		return Kernel{}, err
	}
	version, pkgs, err := choose("linux-image-"+from.arch, func(pkg string) ([]string, error) { return suite.Depends(ctx, pkg) })
	if err != nil {
		return Kernel{}, err
	}
	k := at(from, filepath.Join(cache, name+"-"+version))
	old, err := versions(cache, name)
	if err != nil {
		return k, err
	}

	fmt.Fprintf(log, "vm: %s: downloading %s\n", name, strings.Join(pkgs, " "))
	root := filepath.Join(tmp, "root")
	if err := suite.Unpack(ctx, root, pkgs...); err != nil {
		return k, err
	}

	fmt.Fprintf(log, "vm: %s: unpacking %s\n", name, version)
	out := filepath.Join(tmp, "out")
	if err := unpack(ctx, from, root, version, out); err != nil {
		return k, err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return k, err
		}
	}
	if err := os.Rename(out, k.Dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return k, err // ErrExist: someone else has fetched it meanwhile
	}
	return k, nil
}

var (
	imagePackage = regexp.MustCompile(`^linux-image-([0-9].*)$`)
	partPackage  = regexp.MustCompile(`^linux-(binary|modules|base)-[0-9]`)
)

// choose finds the newest kernel's version and the packages that hold its
// files; meta is the package that names it. Before 7.0 the image package has everything; from then on it is empty
// and depends on a binary, a modules and a base package of the same version.
func choose(meta string, depends func(pkg string) ([]string, error)) (version string, pkgs []string, err error) {
	needs, err := depends(meta)
	if err != nil {
		return "", nil, err
	}
	image := ""
	for _, n := range needs {
		if m := imagePackage.FindStringSubmatch(n); m != nil {
			image, version = n, m[1]
		}
	}
	if image == "" {
		return "", nil, fmt.Errorf("%s depends on no image: %q", meta, needs)
	}
	if needs, err = depends(image); err != nil {
		return "", nil, err
	}
	for _, n := range needs {
		if partPackage.MatchString(n) && strings.HasSuffix(n, "-"+version) {
			pkgs = append(pkgs, n)
		}
	}
	if len(pkgs) == 0 {
		pkgs = []string{image}
	}
	return version, pkgs, nil
}

// unpack copies the files to keep from the unpacked packages in root.
func unpack(ctx context.Context, from origin, root, version, out string) error {
	// Packages have /lib/modules or, since trixie, /usr/lib/modules; depmod
	// looks under /lib.
	lib := filepath.Join(root, "lib")
	if _, err := os.Lstat(lib); errors.Is(err, fs.ErrNotExist) {
		if err := os.Symlink("usr/lib", lib); err != nil {
			return err
		}
	}
	tree := filepath.Join(lib, "modules", version)
	boot := filepath.Join(root, "boot")
	for name, places := range map[string][]string{
		"vmlinuz":         {filepath.Join(boot, "vmlinuz-"+version), filepath.Join(tree, "vmlinuz")},
		"config":          {filepath.Join(boot, "config-"+version), filepath.Join(tree, "config")},
		"modules.builtin": {filepath.Join(tree, "modules.builtin")},
	} {
		if err := moveFirst(places, filepath.Join(out, name)); err != nil {
			return err
		}
	}
	if err := unpackBTF(at(from, out)); err != nil {
		return err
	}
	if err := run(ctx, "depmod", "-b", root, version); err != nil {
		return err
	}
	return unpackModules(ctx, tree, out)
}

func unpackBTF(k Kernel) error {
	image, err := k.Vmlinux()
	if err != nil {
		return err
	}
	of := btfOf
	if k.Arch == "arm64" {
		of = btfIn
	}
	btf, err := of(image)
	if err != nil {
		return fmt.Errorf("vmlinux: %w", err)
	}
	return os.WriteFile(k.BTF, btf, 0o644)
}

// unpackModules takes the kept modules and what they need, all in
// one folder and uncompressed, with a modules.dep that fits.
func unpackModules(ctx context.Context, tree, out string) error {
	f, err := os.Open(filepath.Join(tree, "modules.dep"))
	if err != nil {
		return err
	}
	defer f.Close()
	all, err := parseDep(f)
	if err != nil {
		return err
	}
	var names []string
	for name := range all {
		if Kept(name) {
			names = append(names, name)
		}
	}
	if err := os.Mkdir(filepath.Join(out, "modules"), 0o755); err != nil {
		return err
	}
	keep := modules{}
	for _, name := range all.order(names) {
		if err := ctx.Err(); err != nil {
			return err
		}
		keep[name] = all[name]
		ko, err := readModule(filepath.Join(tree, all[name].file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, "modules", name+".ko"), ko, 0o644); err != nil {
			return err
		}
	}
	var dep bytes.Buffer
	if err := keep.write(&dep); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "modules.dep"), dep.Bytes(), 0o644)
}

func readModule(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for _, c := range compressions {
		if c.tool != nil && bytes.HasPrefix(data, []byte(c.magic)) {
			return pipe(data, c.tool)
		}
	}
	return data, nil
}

func moveFirst(places []string, to string) error {
	for _, p := range places {
		if err := os.Rename(p, to); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("the packages have no %s", filepath.Base(to))
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
