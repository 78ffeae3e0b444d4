// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestNetIRQ: interrupts of network devices are found by number and by name,
// and no others are.
func TestNetIRQ(t *testing.T) {
	sys := t.TempDir()
	file := func(path, text string) {
		t.Helper()
		path = filepath.Join(sys, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, path string) {
		t.Helper()
		path = filepath.Join(sys, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(sys, to), path); err != nil {
			t.Fatal(err)
		}
	}
	const pci = "bus/pci/devices/"
	file(pci+"0000:00:03.0/class", "0x020000\n")
	file(pci+"0000:00:03.0/irq", "11\n") // not in use: it has others
	file(pci+"0000:00:03.0/msi_irqs/37", "msix\n")
	file(pci+"0000:00:03.0/msi_irqs/38", "msix\n")
	file(pci+"0000:00:03.0/virtio2/net/eth0/address", "")
	file(pci+"0000:00:04.0/class", "0x028000\n") // Wi-Fi, in another namespace
	file(pci+"0000:00:04.0/irq", "17\n")
	file(pci+"0000:00:05.0/class", "0x010000\n") // a disk
	file(pci+"0000:00:05.0/msi_irqs/40", "msix\n")
	file("devices/platform/virtio-mmio.1/virtio7/status", "")
	link("devices/platform/virtio-mmio.1/virtio7", "class/net/enx1/device")
	link("devices/platform/soc/1234.ethernet", "class/net/end0/device")

	n := readNetIRQs(sys)
	for _, c := range []struct {
		irq     uint32
		handler string
		want    string
	}{
		{37, "virtio2-config", "eth0"}, {38, "virtio2-input.0", "eth0"}, {17, "iwlwifi", "0000:00:04.0"},
		{5, "virtio7", "enx1"}, {6, "end0", "end0"}, {7, "drv-end0-TxRx-3", "end0"},
		{11, "ttyS0", ""}, {40, "virtio3-req.0", ""}, {0, "timer", ""}, {8, "end01-rx", ""}, {9, "virtio77-rx", ""}, {10, "", ""},
	} {
		if got := n.of(c.irq, c.handler); got != c.want {
			t.Errorf("%d %q is of device %q, want %q", c.irq, c.handler, got, c.want)
		}
	}
}
