// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// knowing does as looking does, and what no tool can leave out that also says whose time it was, and which part of it: it
// compares the process with that of the last read, reads the socket's numbers that tell whether data is unread, under way
// or came late, and adds to two parts. It decides nothing.
func knowing(e *empty) (asm.Instructions, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	var task, sock *btf.Struct
	var cast *btf.Func
	for name, typ := range map[string]any{"task_struct": &task, "tcp_sock": &sock} {
		if err := kernel.TypeByName(name, typ); err != nil {
			return nil, err
		}
	}
	if err := kernel.TypeByName("bpf_rdonly_cast", &cast); err != nil {
		return nil, err // before 6.2
	}
	of := func(s *btf.Struct, paths ...string) (at []member, err error) {
		for _, p := range paths {
			f, err := fieldOf(s, p)
			if err != nil {
				return nil, err
			}
			at = append(at, f)
		}
		return at, nil
	}
	process, err := of(task, "tgid", "self_exec_id", "group_leader", "comm")
	if err != nil {
		return nil, err
	}
	numbers, err := of(sock, "copied_seq", "rcv_nxt", "snd_una", "write_seq", "snd_nxt", "first_tx_mstamp", "tcp_mstamp", "srtt_us", "mdev_us",
		"mss_cache", "chrono_stat", "inet_conn.icsk_ack.lrcvtime", "inet_conn.icsk_inet.sk.__sk_common.skc_cookie")
	if err != nil {
		return nil, err
	}
	castID, err := kernel.TypeID(cast)
	if err != nil {
		return nil, err
	}
	sockID, err := kernel.TypeID(sock)
	if err != nil {
		return nil, err
	}
	const sum = asm.R8
	add := func(base asm.Register, f member) asm.Instructions {
		return asm.Instructions{asm.LoadMem(asm.R1, base, f.offset, f.size), asm.Add.Reg(sum, asm.R1)}
	}
	first := asm.Instructions{asm.FnGetCurrentTaskBtf.Call(), asm.Mov.Imm(sum, 0)}
	first = append(append(first, add(asm.R0, process[0])...), add(asm.R0, process[1])...)
	first = append(first, asm.LoadMem(asm.R2, asm.R0, process[2].offset, asm.DWord))
	name := process[3]
	for range 2 {
		name.size = asm.DWord
		first = append(first, add(asm.R2, name)...)
		name.offset += 8
	}
	const entry, program, part = asm.R5, 16, 24
	first = append(first, asm.StoreMem(asm.RFP, -24, sum, asm.DWord))
	with := asm.Instructions{
		asm.StoreMem(asm.RFP, -32, asm.R0, asm.DWord),
		asm.StoreMem(asm.RFP, -40, asm.R8, asm.DWord), // the time of the last read
		asm.LoadMem(asm.R2, asm.RFP, -24, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, program, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R2, "same"),
		asm.StoreMem(asm.R0, program, asm.R2, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("same"),
		asm.Mov.Imm(asm.R2, int32(sockID)),
		{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoKfuncCall, Constant: int64(castID)},
		asm.Mov.Imm(sum, 0),
	}
	for _, f := range numbers {
		with = append(with, add(asm.R0, f)...)
	}
	with = append(with, asm.LoadMem(entry, asm.RFP, -32, asm.DWord))
	for i := range int16(2) {
		with = append(with, asm.LoadMem(asm.R1, entry, part+8*i, asm.DWord), asm.Add.Reg(asm.R1, sum), asm.StoreMem(entry, part+8*i, asm.R1, asm.DWord))
	}
	with = append(with, asm.Mov.Reg(asm.R0, entry), asm.LoadMem(asm.R8, asm.RFP, -40, asm.DWord))
	return e.lookingAlso(first, with)
}

// A member is a number of a struct.
type member struct {
	offset int16
	size   asm.Size
}

// fieldOf finds a field by its path: "inet_conn.icsk_ack.lrcvtime".
func fieldOf(s *btf.Struct, path string) (member, error) {
	name, rest, more := strings.Cut(path, ".")
	m, ok := memberOf(s.Members, name)
	if !ok {
		return member{}, fmt.Errorf("struct %s has no %s", s.Name, name)
	}
	at := int16(m.Offset.Bytes())
	typ := btf.UnderlyingType(m.Type)
	if more {
		inner, ok := typ.(*btf.Struct)
		if !ok {
			return member{}, fmt.Errorf("%s of struct %s is no struct", name, s.Name)
		}
		f, err := fieldOf(inner, rest)
		f.offset += at
		return f, err
	}
	if a, ok := typ.(*btf.Array); ok {
		typ = btf.UnderlyingType(a.Type)
	}
	n, err := btf.Sizeof(typ)
	sizes := map[int]asm.Size{1: asm.Byte, 2: asm.Half, 4: asm.Word, 8: asm.DWord}
	return member{at, sizes[n]}, err
}

// memberOf also looks into members without a name.
func memberOf(all []btf.Member, name string) (btf.Member, bool) {
	for _, m := range all {
		if m.Name == name {
			return m, true
		}
		var inner []btf.Member
		switch t := btf.UnderlyingType(m.Type).(type) {
		case *btf.Struct:
			inner = t.Members
		case *btf.Union:
			inner = t.Members
		}
		if m.Name != "" || inner == nil {
			continue
		}
		if f, ok := memberOf(inner, name); ok {
			f.Offset += m.Offset
			return f, true
		}
	}
	return btf.Member{}, false
}
