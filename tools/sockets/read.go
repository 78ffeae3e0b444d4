// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/tool"
)

const (
	misses   = "sockets that no process has open"
	entering = "sockets of other network namespaces that no process has open"
)

var keeps = []tool.Privilege{{Cap: host.CapSysAdmin, Why: entering}, {Cap: host.CapSysPtrace, Why: entering}}

// look returns a note for each kind of socket that cannot be shown here.
func look(_ any, w *tool.Wanted) (notes []string, err error) {
	for _, k := range keeps {
		if !host.HasCap(k.Cap) {
			notes = append(notes, "without "+k.Cap.String()+" there are no "+entering)
		}
	}
	if unixWanted(w) {
		if err := unixSockets(func(*entry) {}); err != nil {
			notes = append(notes, "without unix_diag of the kernel there are neither queues of UNIX sockets nor those that no process has open: "+err.Error())
		}
	}
	return notes, nil
}

// readAll walks over the open files. Then it enters each network namespace to find sockets that
// no process has open.
func readAll(s *tool.Session, add func(*entry)) error {
	if err := tool.Iterate(s, "walk", add); err != nil {
		return err
	}
	w := s.Wanted()
	var inside []func(netns uint32) error
	for _, point := range []string{"tcp", "udp"} {
		if s.Iterates(point) && w.On&tool.ByWho == 0 {
			inside = append(inside, func(uint32) error { return tool.Iterate(s, point, add) })
		}
	}
	inside = append(inside, func(netns uint32) error {
		err := unixSockets(func(t *entry) {
			t.Netns = kern.ID32(netns)
			t.Hidden = !unixWanted(w) || w.On&tool.ByWho != 0
			add(t)
		})
		if errors.Is(err, unix.ENOENT) {
			return nil // look has noted it
		}
		return err
	})
	for _, n := range host.AllNetns() {
		if w.On&tool.FilterNetns != 0 && !slices.Contains(w.Netns, n.Inode) {
			continue
		}
		err := n.Do(func() error {
			for _, f := range inside {
				if err := f(n.Inode); err != nil {
					return err
				}
			}
			return nil
		})
		// ENOENT: the namespace has ended. EPERM: look has noted it.
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	return nil
}

// unixWanted reports whether the filters can match a UNIX socket.
func unixWanted(w *tool.Wanted) bool {
	return w.On&tool.ByTuple == 0 &&
		(w.On&tool.FilterFamily == 0 || slices.Contains(w.Families, unix.AF_UNIX)) &&
		(w.On&tool.FilterProto == 0 || slices.Contains(w.Protos, protoUnix))
}
