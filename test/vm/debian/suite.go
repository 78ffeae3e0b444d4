// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Suite is one release of Debian for one architecture, seen through an apt of its own: the
// machine's sources, lists and installed packages have no part in it.
type Suite struct {
	Name, Arch string
	config     string // for APT_CONFIG
}

// Open reads a suite's lists into dir, which the caller removes (about 30 MB).
func Open(ctx context.Context, name, arch, dir string) (*Suite, error) {
	s := &Suite{name, arch, filepath.Join(dir, "apt.conf")}
	mirror, err := Host(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"lists/partial", "archives/partial", "parts"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	// Old suites are not signed anew, so their validity dates are behind us. The
	// signatures themselves are checked, by the machine's keyring.
	config := fmt.Sprintf(`Dir::State "%[1]s";
Dir::State::status "%[1]s/status";
Dir::State::lists "%[1]s/lists";
Dir::Cache "%[1]s";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "%[1]s/parts";
Dir::Etc::preferences "%[1]s/preferences";
Dir::Etc::preferencesparts "%[1]s/parts";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Sandbox::User "root";
`, dir, s.Arch)
	for name, text := range map[string]string{
		"apt.conf": config, "sources.list": mirror.sources(s.Name, s.Arch), "status": "", "preferences": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if _, err := s.apt(ctx, "", "apt-get", "update"); err != nil {
		return nil, fmt.Errorf("suite %s: %w", name, err)
	}
	return s, nil
}

// Depends lists what the newest version of a package depends on; of
// alternatives only the first.
func (s *Suite) Depends(ctx context.Context, pkg string) ([]string, error) {
	show, err := s.apt(ctx, "", "apt-cache", "--no-all-versions", "show", pkg)
	if err != nil {
		return nil, fmt.Errorf("suite %s: %s: %w", s.Name, pkg, err)
	}
	return parseDepends(show), nil
}

// Unpack puts the files of packages into dir. apt has compared the packages'
// checksums with the lists.
func (s *Suite) Unpack(ctx context.Context, dir string, pkgs ...string) error {
	debs, err := os.MkdirTemp(filepath.Dir(s.config), "debs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(debs)
	if _, err := s.apt(ctx, debs, "apt-get", append([]string{"download"}, pkgs...)...); err != nil {
		return fmt.Errorf("suite %s: %w", s.Name, err)
	}
	return unpack(ctx, dir, debs)
}

// unpack puts the files of all packages in the folder debs into dir.
func unpack(ctx context.Context, dir, debs string) error {
	all, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range all {
		if _, err := command(ctx, "dpkg-deb", "-x", deb, dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *Suite) apt(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, append([]string{"-qq"}, args...)...)
	cmd.Env = append(os.Environ(), "APT_CONFIG="+s.config)
	cmd.Dir = dir
	return output(cmd)
}

// parseDepends reads the Depends field out of what apt-cache show prints.
func parseDepends(show string) []string {
	var names []string
	for line := range strings.Lines(show) {
		list, ok := strings.CutPrefix(line, "Depends:")
		if !ok {
			continue
		}
		for item := range strings.SplitSeq(list, ",") {
			// "name (>= 1) | other"
			if words := strings.Fields(item); len(words) > 0 {
				names = append(names, words[0])
			}
		}
	}
	return names
}

func command(ctx context.Context, name string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, name, args...))
}

// output runs a command; what it wrote to stderr becomes part of the error.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
