// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// src is what is released.
type src struct {
	root    string
	version string
	time    time.Time // of the last commit: everything in a package has it
}

// source asks git, unless VERSION and SOURCE_DATE_EPOCH say it: sources out of
// a tarball have no git.
func source(root string) (*src, error) {
	s := &src{root: root, version: os.Getenv("VERSION")}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		var err error
		if epoch, err = git(root, "log", "-1", "--format=%ct"); err != nil {
			return nil, err
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	s.time = time.Unix(seconds, 0).UTC()
	if s.version == "" {
		if s.version, err = version(root, s.time); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// version is the commit's tag, such as v1.2.3, without the v; or one that dpkg
// and rpm hold for older than any release, and that grows with time. Changes
// that are not committed show in it.
func version(root string, at time.Time) (string, error) {
	dirty := ""
	if changes, err := git(root, "status", "--porcelain"); err != nil {
		return "", err
	} else if changes != "" {
		dirty = "+dirty"
	}
	if tag, err := git(root, "describe", "--tags", "--exact-match", "--match", "v[0-9]*"); err == nil {
		return tag[1:] + dirty, nil
	}
	commit, err := git(root, "rev-parse", "--short=9", "HEAD")
	if err != nil {
		return "", err
	}
	return "0~" + at.Format("20060102.1504") + "." + commit + dirty, nil
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
