// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Sysctl sets one of a host's own settings: w.Sysctl("server",
// "net.ipv4.tcp_ecn", "1"). Below net. most are per namespace.
func (w *World) Sysctl(host, name, value string) error {
	err := w.Do(host, func() error { return setSysctl(name, value) })
	if err != nil {
		return fmt.Errorf("lab: host %s: %w", host, err)
	}
	return nil
}

// setSysctl writes a setting in the namespace of the calling thread.
func setSysctl(name, value string) error {
	if err := overwrite("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), value); err != nil {
		return fmt.Errorf("sysctl %s=%s: %w", name, value, err)
	}
	return nil
}

// overwrite writes an existing file of the kernel. It does not create one.
func overwrite(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}

// NoIPv6 disables IPv6 on a host's device, because IPv6 sends packets by
// itself.
func (w *World) NoIPv6(host, dev string) error {
	return w.Do(host, func() error { return noIPv6(dev) })
}

// noIPv6 does so on a thread in the host.
func noIPv6(dev string) error {
	err := setSysctl("net.ipv6.conf."+dev+".disable_ipv6", "1")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has none
	}
	return err
}
