// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// atSecure is AT_SECURE of getauxval(3): an exec gave privileges.
const atSecure = 23

// Elevated reports whether this process got privileges from its executable file (setcap,
// set-user-ID), so that its caller may have fewer. The caller chose the environment, so
// the environment must not decide what such a process does. If it cannot be found out,
// the answer is yes.
func Elevated() bool {
	auxv, err := unix.Auxv()
	if err != nil {
		return true
	}
	for _, entry := range auxv {
		if entry[0] == atSecure && entry[1] != 0 {
			return true
		}
	}
	if unix.Getuid() == 0 {
		return false // root cannot gain privileges
	}
	// An exec keeps only ambient capabilities. Others come from the file.
	status, err := os.ReadFile("/proc/self/status")
	return err != nil || parseCaps(status, "CapPrm:")&^parseCaps(status, "CapAmb:") != 0
}
