// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// on does blocks at a change to a state only.
func on(state int32, blocks ...block) block {
	return func(b *body) {
		after := b.label()
		b.do(asm.LoadMem(asm.R1, theArgs, 16, asm.DWord), asm.JNE.Imm(asm.R1, state, after))
		b.add(blocks)
		b.here(after)
	}
}

// clock reads the clock.
func clock(b *body) { b.do(asm.FnKtimeGetNs.Call(), asm.Mov.Reg(theTime, asm.R0)) }

// looksUp is the look-up of the socket in the table, which each tool has for what it keeps of a socket.
func looksUp(b *body) {
	b.key(b.table)
	b.do(asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "end"), asm.Mov.Reg(theEntry, asm.R0))
}

// begins makes the entry of a socket, with the time and without a process: a handshake ends in softirq.
func begins(b *body) {
	b.dated()
	b.puts()
}

// listens makes the entry of a listener's port, with its process. inherits makes that of a connection before its process has
// accepted it: rows show the listener's.
func listens(b *body) {
	b.zero()
	b.process(asm.RFP, stackEntry)
	b.port()
	b.stackAt(asm.R3, stackEntry)
	b.do(asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
}

func inherits(b *body) {
	unknown := b.label()
	b.dated()
	b.port()
	b.do(asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, unknown))
	for i := int16(0); i < whoBytes; i += 8 {
		b.do(asm.LoadMem(asm.R1, asm.R0, i, asm.DWord), asm.StoreMem(asm.RFP, stackEntry+i, asm.R1, asm.DWord))
	}
	b.here(unknown)
	b.puts()
}

// port gives a helper the table, and the socket's port in its namespace as the key.
func (b *body) port() {
	b.copies(asm.RFP, stackKey, theSocket, "sock", "__sk_common.skc_num", asm.DWord)
	b.load(asm.R2, theSocket, "sock", "__sk_common.skc_net.net")
	b.copies(asm.RFP, stackKey+4, asm.R2, "net", "ns.inum", asm.Word)
	b.do(asm.LoadMapPtr(asm.R1, b.table.FD()))
	b.stackAt(asm.R2, stackKey)
}

// opens makes the entry of a socket with the current process, which connects or has accepted it.
func opens(b *body) {
	b.zero()
	b.process(asm.RFP, stackEntry)
	b.puts()
}

// opensAt does so with the time.
func opensAt(b *body) {
	b.dated()
	b.process(asm.RFP, stackEntry)
	b.puts()
}

// zero clears the entry on the stack.
func (b *body) zero() {
	b.do(asm.Mov.Imm(asm.R1, 0))
	for i := range int16(tableValue / 8) {
		b.do(asm.StoreMem(asm.RFP, stackEntry+8*i, asm.R1, asm.DWord))
	}
}

// dated clears it and writes the time.
func (b *body) dated() {
	b.zero()
	b.do(asm.StoreMem(asm.RFP, stackEntry+entrySince, theTime, asm.DWord))
}

// puts stores the entry that is on the stack.
func (b *body) puts() {
	b.key(b.table)
	b.stackAt(asm.R3, stackEntry)
	b.do(asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
}

// forgets deletes the entry of a socket.
func forgets(b *body) {
	b.key(b.table)
	b.do(asm.FnMapDeleteElem.Call())
}

// process writes the current process, as rows show it: pid, tid, user, cgroup and name.
func (b *body) process(to asm.Register, at int16) {
	const task = asm.R0
	b.do(asm.FnGetCurrentTaskBtf.Call())
	b.copies(to, at+whoPID, task, "task_struct", "tgid", asm.Word)
	b.copies(to, at+whoTID, task, "task_struct", "pid", asm.Word)
	b.load(asm.R2, task, "task_struct", "cred")
	b.copies(to, at+whoUID, asm.R2, "cred", "uid.val", asm.Word)
	b.load(asm.R2, task, "task_struct", "cgroups")
	b.load(asm.R2, asm.R2, "css_set", "dfl_cgrp")
	b.load(asm.R2, asm.R2, "cgroup", "kn")
	b.copies(to, at+whoCgroup, asm.R2, "kernfs_node", "id", asm.DWord)
	b.load(asm.R2, task, "task_struct", "group_leader")
	b.text(to, at+whoComm, asm.R2, "task_struct", "comm")
}

// text copies a name of 16 bytes.
func (b *body) text(to asm.Register, at int16, from asm.Register, name, path string) {
	f := b.field(name, path)
	for half := int16(0); half < 16; half += 8 {
		b.do(asm.LoadMem(asm.R1, from, f.offset+half, asm.DWord), asm.StoreMem(to, at+half, asm.R1, asm.DWord))
	}
}

// compares is what keeps the owner of a socket true at each send and receive: is the current process the one in the entry?
// If it is not, it is written there. What a process does to its own name can be seen elsewhere.
func compares(b *body) {
	same := b.label()
	b.do(asm.FnGetCurrentTaskBtf.Call())
	b.load(asm.R1, asm.R0, "task_struct", "tgid")
	b.do(asm.LoadMem(asm.R2, theEntry, whoPID, asm.Word), asm.JEq.Reg(asm.R1, asm.R2, same))
	b.process(theEntry, 0)
	b.here(same)
}

// names writes the process that has accepted a socket into its entry.
func names(b *body) { b.process(theEntry, 0) }

// stores is the look-up in the socket's own storage, which takes less than one in a hash. The first send or receive makes it.
func stores(b *body) {
	storage, err := b.newMap(&ebpf.MapSpec{Type: ebpf.SkStorage, KeySize: 4, ValueSize: tableValue, Flags: unix.BPF_F_NO_PREALLOC,
		Key: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Value: &btf.Array{Index: &btf.Int{Size: 4}, Type: &btf.Int{Name: "u64", Size: 8}, Nelems: tableValue / 8}})
	if err != nil {
		b.keep(err)
		return
	}
	b.do(asm.LoadMapPtr(asm.R1, storage.FD()), asm.Mov.Reg(asm.R2, theSocket), asm.Mov.Imm(asm.R3, 0), asm.Mov.Imm(asm.R4, unix.BPF_LOCAL_STORAGE_GET_F_CREATE),
		asm.FnSkStorageGet.Call(), asm.JEq.Imm(asm.R0, 0, "end"), asm.Mov.Reg(theEntry, asm.R0))
}

// walks is the way to the socket from the descriptor that accept(2) returns, or that connect(2) is given.
func walks(b *body) {
	b.do(asm.LoadMem(theSocket, theArgs, 16, asm.DWord), asm.JSLT.Imm(theSocket, 0, "end"))
	b.do(asm.FnGetCurrentTaskBtf.Call())
	b.load(asm.R1, asm.R0, "task_struct", "files")
	b.load(asm.R1, asm.R1, "files_struct", "fdt")
	b.load(asm.R2, asm.R1, "fdtable", "max_fds")
	b.do(asm.JGE.Reg(theSocket, asm.R2, "end"))
	b.load(asm.R1, asm.R1, "fdtable", "fd")
	b.do(asm.LSh.Imm(theSocket, 3), asm.Add.Reg(theSocket, asm.R1))
	b.cast(theSocket, "hlist_head") // a struct of one pointer
	b.load(asm.R3, asm.R0, "hlist_head", "first")
	b.cast(asm.R3, "file")
	b.load(asm.R3, asm.R0, "file", "private_data")
	b.cast(asm.R3, "socket")
	b.load(theSocket, asm.R0, "socket", "sk")
}

// queues keeps when a connection came into the accept queue, and waits says how long that was ago.
func queues(b *body) {
	b.do(asm.StoreMem(asm.RFP, stackSpent, theTime, asm.DWord))
	b.key(b.times)
	b.stackAt(asm.R3, stackSpent)
	b.do(asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
}

func waits(b *body) {
	b.key(b.times)
	b.do(asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "end"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.Mov.Reg(asm.R2, theTime), asm.Sub.Reg(asm.R2, asm.R1),
		asm.StoreMem(asm.RFP, stackSpent, asm.R2, asm.DWord))
	b.key(b.times)
	b.do(asm.FnMapDeleteElem.Call())
}

// later keeps a second time of a socket: when it was established.
func later(b *body) { b.do(asm.StoreMem(theEntry, entryLater, theTime, asm.DWord)) }

// states reads the old and the new state.
func states(b *body) {
	b.do(asm.LoadMem(asm.R1, theArgs, 8, asm.DWord), asm.StoreMem(asm.RFP, stackOld, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, theArgs, 16, asm.DWord), asm.StoreMem(asm.RFP, stackNew, asm.R1, asm.DWord))
}

// changes finds the entry of a socket at any change of state, or makes it at the first, and says how long the old state was.
func changes(b *body) {
	known, sent, received := b.label(), b.label(), b.label()
	b.do(asm.LoadMem(asm.R1, theArgs, 16, asm.DWord), asm.JEq.Imm(asm.R1, unix.BPF_TCP_SYN_SENT, sent), asm.JEq.Imm(asm.R1, unix.BPF_TCP_SYN_RECV, received))
	looksUp(b)
	b.do(asm.Ja.Label(known))
	b.here(sent)
	opensAt(b)
	b.stackAt(theEntry, stackEntry)
	b.do(asm.Ja.Label(known))
	b.here(received)
	inherits(b)
	b.stackAt(theEntry, stackEntry)
	b.here(known)
	b.do(asm.LoadMem(asm.R1, theEntry, entrySince, asm.DWord), asm.StoreMem(theEntry, entrySince, theTime, asm.DWord),
		asm.Mov.Reg(asm.R2, theTime), asm.Sub.Reg(asm.R2, asm.R1), asm.StoreMem(asm.RFP, stackSpent, asm.R2, asm.DWord))
}

// ends does blocks after says, if the new state is the last of a socket.
func ends(blocks ...block) block {
	return func(b *body) {
		after := b.label()
		b.do(asm.LoadMem(asm.R1, asm.RFP, stackNew, asm.DWord), asm.JNE.Imm(asm.R1, unix.BPF_TCP_CLOSE, after))
		b.add(blocks)
		b.here(after)
	}
}
