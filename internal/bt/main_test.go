// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestMain has the tests run without the signals of Go's scheduler: a system call
// that one interrupts begins again, which is one call more than a test has made.
func TestMain(m *testing.M) {
	const quiet = "asyncpreemptoff=1"
	if old := os.Getenv("GODEBUG"); !strings.Contains(old, quiet) {
		check(os.Setenv("GODEBUG", strings.Trim(old+","+quiet, ",")))
		check(syscall.Exec(must(os.Executable()), os.Args, os.Environ()))
	}
	os.Exit(m.Run())
}
