// SPDX-License-Identifier: Apache-2.0

package main

// packages are the Debian packages that this program needs, beyond what every
// Debian has (apt, dpkg). This is the only list.
var packages = []string{
	"qemu-system-x86", // run
	"qemu-system-arm", // run: arm64
	"kmod",            // fetch: depmod
	"xz-utils",        // fetch: kernels and modules are compressed
	"zstd",            // fetch: the same since trixie
	"e2fsprogs",       // rootfs: mke2fs
	"mmdebstrap",      // rootfs
}
