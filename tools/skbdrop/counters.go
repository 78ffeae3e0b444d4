// SPDX-License-Identifier: Apache-2.0

package skbdrop

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/tool"
	"seine/internal/words"
)

// counter is a protocol counter of the kernel that moved.
type counter struct {
	Netns kern.ID32 `col:"netns,width=10" help:"network namespace, by inode"`
	Name  name      `col:"counter,width=28" help:"its name, as nstat writes it"`
	Count uint64    `col:"count,width=8,sum" help:"by how much it grew"`
}

// telling are parts of the names of counters that count dropped packets.
var telling = []string{
	"Drop", "Discard", "Error", "Errs", "NoPorts", "NoRoutes", "UnknownProtos", "Overflow", "Prune", "Reject",
	"Fails", "Failed", "Truncated", "TooBigErrors", "IPReversePathFilter", "ACKSkipped", "ChallengeACK",
	"PAWS", "OutOfWindowIcmps", "TCPMD5", "TCPAOBad", "TCPAOKeyNotFound", "TCPAORequired",
}

// tells reports whether a counter counts drops.
func tells(name string) bool {
	return slices.ContainsFunc(telling, func(part string) bool { return strings.Contains(name, part) })
}

// task is struct task_netns of skbdrop.bpf.c.
type task struct{ TID, Netns uint32 }

// namespaces are the network namespaces whose counters are read: those of --netns,
// else all. By then the run has given up its privileges and cannot enter a
// namespace. So it reads the counters in /proc/TID/net. An iterator says which
// namespace a task is in. A namespace without a task that ip-netns(8) has named is
// read through files that were opened before.
type namespaces struct {
	ses    *tool.Session
	tasks  map[uint32][]uint32          // a few tasks of each
	named  map[uint32]host.CounterFiles // without a task, or with one that may end
	before map[uint32]host.Counters
	unread map[uint32]error  // and why
	ended  int               // since they were last read
	ids    map[uint32]uint64 // the inodes of their files
	walked error             // why the tasks are not known
}

// perNetns is how many tasks of a namespace are kept: one may end, or leave, before
// its files are read.
const perNetns = 3

func counters(ses *tool.Session) (func(last bool) ([]counter, error), error) {
	if ses.Wanted().On&^tool.FilterNetns != 0 {
		return func(bool) ([]counter, error) { return nil, nil }, nil // they count the packets of all processes
	}
	n := &namespaces{ses: ses, named: map[uint32]host.CounterFiles{}, unread: map[uint32]error{}, ids: map[uint32]uint64{}}
	for _, ns := range host.NamedNetns() {
		if !n.wants(ns.Inode) {
			continue
		}
		files, err := ns.Open()
		if err != nil {
			n.unread[ns.Inode] = err // unless it has tasks
			continue
		}
		n.named[ns.Inode] = files
	}
	n.before = n.read()
	return n.moved, nil
}

func (n *namespaces) wants(inode uint32) bool {
	w := n.ses.Wanted()
	return w.On&tool.FilterNetns == 0 || slices.Contains(w.Netns, inode)
}

// moved gives the counters that grew since the last time.
func (n *namespaces) moved(last bool) ([]counter, error) {
	var moved []counter
	now := n.read()
	for inode, c := range now {
		for id, grown := range c.Since(n.before[inode]) {
			if tells(id) && grown > 0 {
				moved = append(moved, counter{kern.ID32(inode), name(id), uint64(grown)})
			}
		}
	}
	for inode := range n.before {
		if now[inode] == nil && n.unread[inode] == nil {
			n.ended++
			delete(n.ids, inode)
		}
	}
	n.before = now
	slices.SortFunc(moved, func(a, b counter) int {
		return cmp.Or(strings.Compare(string(a.Name), string(b.Name)), cmp.Compare(a.Netns, b.Netns))
	})
	if last {
		n.warn()
	}
	return moved, nil
}

// warn reports the counters that are missing.
func (n *namespaces) warn() {
	if n.walked != nil {
		n.ses.Warn("counters of namespaces without a name could not be read: " + n.walked.Error())
	}
	if len(n.unread) > 0 {
		var why error
		for _, err := range n.unread {
			why = err
		}
		n.ses.Warn(words.Count(uint64(len(n.unread)), "network namespace's counters", "network namespaces' counters") +
			" could not be read: " + why.Error())
	}
	if n.ended > 0 {
		n.ses.Warn(words.Count(uint64(n.ended), "network namespace", "network namespaces") +
			" ended: what its counters grew by since they were last read is not shown: a shorter interval helps")
	}
}

var errEmpty = errors.New("no process is in it, and it was named after the start of the tool: start the tool again")

// read reads the counters of all namespaces. Namespaces that cannot be read go to
// unread. Their counters count from the first successful read on.
func (n *namespaces) read() map[uint32]host.Counters {
	first := n.before == nil
	n.tasks = map[uint32][]uint32{}
	n.walked = tool.Iterate(n.ses, "tasks", func(t *task) {
		if of := n.tasks[t.Netns]; len(of) < perNetns && n.wants(t.Netns) {
			n.tasks[t.Netns] = append(of, t.TID)
		}
	})
	names := map[uint32]bool{}
	for _, ns := range host.NamedNetns() {
		names[ns.Inode] = n.wants(ns.Inode)
	}
	for inode, files := range n.named {
		if !names[inode] { // deleted: do not keep it alive
			files.Close()
			delete(n.named, inode)
		}
	}
	all := map[uint32]host.Counters{}
	set := func(inode uint32, c host.Counters, err error) {
		if err != nil {
			n.unread[inode] = err
			return
		}
		all[inode] = c
		if n.unread[inode] != nil && !first {
			n.before[inode] = c
		}
		delete(n.unread, inode)
	}
	for inode, files := range n.named {
		c, err := files.Read()
		set(inode, c, err)
	}
	for inode := range n.tasks {
		if all[inode] != nil {
			continue
		}
		c, err := n.ofTasks(inode)
		if errors.Is(err, os.ErrNotExist) {
			continue // they have all ended
		}
		set(inode, c, err)
	}
	for inode, wanted := range names {
		if wanted && all[inode] == nil && n.unread[inode] == nil {
			n.unread[inode] = errEmpty
		}
	}
	return all
}

// ofTasks reads the counters of a namespace in the files of one of its tasks. It
// skips a task that has moved to another namespace; the inode of its files shows
// that.
func (n *namespaces) ofTasks(inode uint32) (c host.Counters, err error) {
	for _, tid := range n.tasks[inode] {
		var files host.CounterFiles
		if files, err = host.OpenCounters(fmt.Sprintf("/proc/%d/net", tid)); err != nil {
			continue
		}
		id := files.ID()
		if known, ok := n.ids[inode]; ok && known != id {
			err = os.ErrNotExist
		} else {
			n.ids[inode] = id
			c, err = files.Read()
		}
		files.Close()
		if err == nil {
			break
		}
	}
	return c, err
}
