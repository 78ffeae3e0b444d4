// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"strings"

	"seine/internal/watch"
)

// command is the command line of a tool, with the filters of a service.
func command(tool string, k watch.ServiceKey) string {
	out := "seine " + tool
	if k.Comm != "" && k.Comm == plain(k.Comm) {
		out += " --comm " + k.Comm
	}
	if k.Lport != 0 {
		out += fmt.Sprintf(" --lport %d", k.Lport)
	}
	if k.Raddr.IsValid() {
		out += " --raddr " + k.Raddr.String()
	}
	if k.Rport != 0 {
		out += fmt.Sprintf(" --rport %d", k.Rport)
	}
	return out
}

// onDevice is the command line of a tool, for one device.
func onDevice(tool, dev string) string {
	if dev != plain(dev) {
		return "seine " + tool
	}
	return "seine " + tool + " --dev " + dev
}

// plain drops the characters of a name that a shell or a pattern would interpret.
func plain(name string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("-_.:+@", c) || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return -1
	}, name)
}
