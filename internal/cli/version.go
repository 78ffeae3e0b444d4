// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is set by the linker for releases.
var Version string

// Revision is set by the linker in make build: the commit and its date,
// abcdef123456 2026-11-16, and the word dirty behind them if files were changed.
// go build writes the same into the build information.
var Revision string

// next is the release that this tree leads to.
const next = "0.2.0"

func versionCommand(w, _ io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  atMost(0),
		RunE:  func(*cobra.Command, []string) error { return writeVersion(w) },
	}
}

func writeVersion(w io.Writer) error {
	_, err := fmt.Fprintln(w, "seine", version())
	return err
}

func version() string {
	if Version != "" {
		return Version
	}
	var commit, date, dirty string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				commit = s.Value[:min(12, len(s.Value))]
			case "vcs.time":
				date = s.Value[:min(len("2006-01-02"), len(s.Value))]
			case "vcs.modified":
				if s.Value == "true" {
					dirty = "dirty"
				}
			}
		}
	}
	if Revision != "" {
		dirty = ""
		fmt.Sscan(Revision, &commit, &date, &dirty)
	}
	return development(commit, date, dirty != "")
}

// development is the version of a build that is not a release.
func development(commit, date string, dirty bool) string {
	v := next + "-dev"
	if commit != "" {
		v += "+git" + commit
		if dirty {
			v += ".dirty"
		}
	}
	if date != "" {
		v += " (" + date + ")"
	}
	return v
}
