// SPDX-License-Identifier: Apache-2.0

// Package debian gets packages of any Debian suite from the archive that this
// machine's apt already uses. It knows no archive's address: it asks apt.
package debian

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
)

// A Mirror is the address of an archive.
type Mirror struct {
	Main     string // all suites
	Security string // SUITE-security
}

// Host asks apt for the mirror that this machine is set up with.
func Host(ctx context.Context) (Mirror, error) {
	out, err := command(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return Mirror{}, err
	}
	return parseMirror(out)
}

// parseMirror picks the archive from apt's list of repositories, which may
// name other vendors' as well.
func parseMirror(list string) (Mirror, error) {
	var m Mirror
	for _, uri := range strings.Fields(list) {
		uri = strings.TrimSuffix(uri, "/")
		switch path.Base(uri) {
		case "debian":
			if m.Main == "" {
				m.Main = uri
			}
		case "debian-security":
			if m.Security == "" {
				m.Security = uri
			}
		}
	}
	if m.Main == "" {
		return m, errors.New("apt knows no Debian mirror: run apt-get update")
	}
	if m.Security == "" {
		// A mirror of the one usually carries the other beside it.
		m.Security = m.Main + "-security"
	}
	return m, nil
}

// sources is the sources.list of a suite with everything newer that belongs to it.
func (m Mirror) sources(suite, arch string) string {
	lines := fmt.Sprintf("deb [arch=%s] %s %s main\n", arch, m.Main, suite)
	if suite != "sid" {
		lines += fmt.Sprintf("deb [arch=%s] %s %s-security main\n", arch, m.Security, suite)
	}
	return lines
}
