// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// netIRQs is the interrupts of network devices, by sysfs.
type netIRQs struct {
	lines map[uint32]string // by number
	names map[string]string // by a word of the handler's name
}

var netIRQ struct {
	sync.Mutex
	netIRQs
	read time.Time
}

// NetIRQ is the network device that an interrupt belongs to, by its number and the name of its
// handler; empty if there is none. Devices come and go, so sysfs is read again after a second.
func NetIRQ(irq uint32, handler string) string {
	netIRQ.Lock()
	defer netIRQ.Unlock()
	if time.Since(netIRQ.read) > time.Second {
		netIRQ.netIRQs, netIRQ.read = readNetIRQs("/sys"), time.Now()
	}
	return netIRQ.of(irq, handler)
}

func (n *netIRQs) of(irq uint32, handler string) string {
	if dev := n.lines[irq]; dev != "" {
		return dev
	}
	// Whole words, so that eth1 is not found in eth10-rx.
	for w := range strings.FieldsFuncSeq(handler, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '.' }) {
		if dev := n.names[w]; dev != "" {
			return dev
		}
	}
	return ""
}

// readNetIRQs looks in two places. A PCI device of the class of network
// controllers has its interrupts in sysfs, whichever namespace its interface is
// in. Other devices have none there; but their drivers name the handler after the
// interface or, on virtio without PCI, after the device.
func readNetIRQs(sys string) netIRQs {
	n := netIRQs{lines: map[uint32]string{}, names: map[string]string{}}
	devices, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*"))
	for _, dev := range devices {
		if class, _ := os.ReadFile(filepath.Join(dev, "class")); strings.HasPrefix(string(class), "0x02") {
			n.pci(dev)
		}
	}
	links, _ := filepath.Glob(filepath.Join(sys, "class/net/*/device"))
	for _, l := range links {
		name := filepath.Base(filepath.Dir(l))
		n.names[name] = name
		if dev, err := filepath.EvalSymlinks(l); err == nil && strings.HasPrefix(filepath.Base(dev), "virtio") {
			n.names[filepath.Base(dev)] = name
		}
	}
	return n
}

// pci adds the interrupts of a PCI device, under the name of its interface if
// that is visible, else under its bus address.
func (n *netIRQs) pci(dev string) {
	name := filepath.Base(dev)
	for _, pattern := range []string{"net/*", "virtio*/net/*"} {
		if found, _ := filepath.Glob(filepath.Join(dev, pattern)); len(found) > 0 {
			name = filepath.Base(found[0])
		}
	}
	msi, _ := os.ReadDir(filepath.Join(dev, "msi_irqs"))
	for _, e := range msi {
		if irq, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			n.lines[uint32(irq)] = name
		}
	}
	if len(msi) > 0 {
		return // its legacy line is not in use
	}
	line, _ := os.ReadFile(filepath.Join(dev, "irq"))
	if irq, err := strconv.ParseUint(strings.TrimSpace(string(line)), 10, 32); err == nil && irq > 0 {
		n.lines[uint32(irq)] = name
	}
}
