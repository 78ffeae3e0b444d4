// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"fmt"
	"strings"

	"seine/test/vm/job"
)

// A machine is what qemu emulates for the kernels of one architecture.
type machine struct {
	qemu       string
	elf        elf.Machine
	board, cpu string
	words      string          // more of the kernel's command line
	ports      func() []string // flags that make the ports of the guest from their chardevs
}

// machines are those of the matrix, by the name that Go and Debian have for the
// architecture.
var machines = map[string]machine{
	"amd64": {
		// It enters an uncompressed kernel by its PVH note, and 5.10 boots in half the time.
		qemu: "qemu-system-x86_64", elf: elf.EM_X86_64,
		// Four levels of page tables, whichever way a kernel is entered.
		board: "pc", cpu: "max,la57=off",
		words: strings.Join([]string{
			"console=ttyS0",
			"no_timer_check", // a busy host keeps the guest from seeing its timer tick in time
			// Under load the watchdog takes the TSC for broken. Then every look at the
			// clock goes to an emulated device: 10 to 50 µs, against less than one.
			"tsc=reliable",
		}, " "),
		ports: func() (args []string) {
			for port := range job.Ports {
				args = append(args, "-serial", "chardev:"+chardevID(port))
			}
			return args
		},
	},
	"arm64": {
		qemu: "qemu-system-aarch64", elf: elf.EM_AARCH64,
		// Pointer authentication by a cheap function: the architecture's own takes
		// half the time of everything that calls functions.
		board: "virt", cpu: "max,pauth-impdef=on",
		words: "console=ttyAMA0",
		// The board has one port of its own, for the console. The card has four, of
		// which the first is left out, so that the others have the numbers that they
		// have elsewhere.
		ports: func() []string {
			card := "pci-serial-4x"
			for port := job.Console + 1; port < job.Ports; port++ {
				card += fmt.Sprintf(",chardev%d=%s", port+1, chardevID(port))
			}
			return []string{"-serial", "chardev:" + chardevID(job.Console), "-device", card}
		},
	},
}

// cmdline is the part of the kernel's command line that all have.
var cmdline = strings.Join([]string{
	"quiet loglevel=5",    // warnings and worse
	"panic=-1 oops=panic", // end: after an oops nothing can be trusted
	// Attaching and detaching wait for grace periods, some hundred times a run.
	"rcupdate.rcu_expedited=1",
	// What costs time under emulation and proves nothing about us. To clear all memory that the
	// kernel takes is a quarter of the time of loading programs.
	"mitigations=off nokaslr nowatchdog cryptomgr.notests init_on_alloc=0",
	"audit=0 apparmor=0 selinux=0",
	"random.trust_cpu=on",
}, " ")
