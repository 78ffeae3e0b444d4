// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"os"
	"sync"
)

// Emulated says whether this machine is emulated in software, and so some
// twenty times slower than a real one.
var Emulated = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/cpuinfo")
	return err == nil && bytes.Contains(b, []byte("QEMU TCG"))
})
