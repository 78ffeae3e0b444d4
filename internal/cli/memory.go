// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime/debug"

	"seine/internal/host"
)

// giveBack frees the memory that only the start has used: to read BTF, to load programs, and the code that did it. It is
// called when all is attached.
func giveBack() {
	debug.FreeOSMemory()
	host.ReleaseCode()
}
