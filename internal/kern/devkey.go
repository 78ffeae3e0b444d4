// SPDX-License-Identifier: Apache-2.0

package kern

// DevKey is struct dev_key of dev.h.
type DevKey struct {
	Dev   Comm   `col:"dev,width=8,key" help:"device"`
	Netns ID32   `col:"netns,width=10,key" help:"network namespace of the device, by inode"`
	Pad   uint32 `col:"-"`
}
