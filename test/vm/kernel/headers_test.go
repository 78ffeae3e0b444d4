// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"testing"
)

// The headers come with those of all flavours, and without a compiler.
func TestHeaderPackages(t *testing.T) {
	k := Kernel{Version: "6.12.1-amd64"}
	got := fmt.Sprint(headerPackages(k.HeadersPackage(), []string{"linux-headers-6.12.1-common", "linux-image-6.12.1-amd64", "linux-kbuild-6.12.1", "gcc-14-for-host"}))
	if want := "[linux-headers-6.12.1-amd64 linux-headers-6.12.1-common]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
