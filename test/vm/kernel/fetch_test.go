// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name    string
		depends map[string][]string
		version string
		pkgs    []string
	}{
		{
			"before 7.0 the image has all",
			map[string][]string{
				"linux-image-amd64":          {"linux-image-6.1.0-54-amd64"},
				"linux-image-6.1.0-54-amd64": {"kmod", "linux-base", "initramfs-tools"},
			},
			"6.1.0-54-amd64", []string{"linux-image-6.1.0-54-amd64"},
		},
		{
			"from 7.0 on its parts have",
			map[string][]string{
				"linux-image-amd64": {"linux-base-amd64", "linux-image-7.2.13+deb14-amd64"},
				"linux-image-7.2.13+deb14-amd64": {
					"dracut", "linux-base-7.2.13+deb14-amd64", "linux-binary-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64",
				},
			},
			"7.2.13+deb14-amd64",
			[]string{"linux-base-7.2.13+deb14-amd64", "linux-binary-7.2.13+deb14-amd64", "linux-modules-7.2.13+deb14-amd64"},
		},
		{
			"parts of another kernel are none",
			map[string][]string{
				"linux-image-amd64":        {"linux-image-6.12.1-amd64"},
				"linux-image-6.12.1-amd64": {"linux-base-6.11.9-amd64"},
			},
			"6.12.1-amd64", []string{"linux-image-6.12.1-amd64"},
		},
	} {
		version, pkgs, err := choose("linux-image-amd64", answer(c.depends))
		if err != nil || version != c.version || !slices.Equal(pkgs, c.pkgs) {
			t.Errorf("%s: got %q %q (%v), want %q %q", c.name, version, pkgs, err, c.version, c.pkgs)
		}
	}
}

func TestChooseNothing(t *testing.T) {
	for name, depends := range map[string]map[string][]string{
		"no metapackage":          {},
		"it names no image":       {"linux-image-amd64": {"linux-base"}},
		"the image is not listed": {"linux-image-amd64": {"linux-image-6.12.1-amd64"}},
	} {
		if version, pkgs, err := choose("linux-image-amd64", answer(depends)); err == nil {
			t.Errorf("%s: got %q %q, want an error", name, version, pkgs)
		}
	}
}

// answer stands in for apt.
func answer(depends map[string][]string) func(string) ([]string, error) {
	return func(pkg string) ([]string, error) {
		list, ok := depends[pkg]
		if !ok {
			return nil, fmt.Errorf("no package %s", pkg)
		}
		return list, nil
	}
}
