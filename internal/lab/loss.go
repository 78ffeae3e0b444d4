// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	seinehost "seine/internal/host"
)

// TCP flags, for Loss.
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
)

// Loss drops chosen TCP segments of one port, deterministically: it skips the
// first Skip matching segments and drops the next Count. They are dropped just
// before they reach their socket, so no qdisc is needed. It does not
// distinguish namespaces: choose a port that no namespace uses.
type Loss struct {
	To    int  // destination port; or
	From  int  // source port
	Flags int  // all of these are set
	Data  int  // at least this many bytes of payload
	Most  int  // at most this many; 0: no limit
	Empty bool // no payload: ACKs alone
	Skip  int
	Count int
}

// A Losing drops segments until it is closed.
type Losing struct {
	link link.Link
	prog *ebpf.Program
	seen *ebpf.Map
}

// StartLoss begins to drop.
func StartLoss(l Loss) (*Losing, error) {
	root, err := seinehost.Cgroup2()
	if err != nil {
		return nil, fmt.Errorf("lab: loss: %w", err)
	}
	x := &Losing{}
	x.seen, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("lab: loss: %w", err)
	}
	x.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.CGroupSKB, AttachType: ebpf.AttachCGroupInetIngress, License: "GPL", Instructions: l.program(x.seen.FD()),
	})
	if err != nil {
		x.Close()
		return nil, fmt.Errorf("lab: loss: %w", err)
	}
	x.link, err = link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupInetIngress, Program: x.prog})
	if err != nil {
		x.Close()
		return nil, fmt.Errorf("lab: loss: %w", err)
	}
	return x, nil
}

// Seen is the number of segments that matched, dropped or not.
func (x *Losing) Seen() (n uint64, err error) {
	err = x.seen.Lookup(uint32(0), &n)
	return n, err
}

// Close ends it.
func (x *Losing) Close() error {
	var errs []error
	if x.link != nil {
		errs = append(errs, x.link.Close())
	}
	if x.prog != nil {
		errs = append(errs, x.prog.Close())
	}
	return errors.Join(append(errs, x.seen.Close())...)
}

// program: R6 is the packet from its IP header on; R7 is the offset of TCP; R8
// is the length behind the TCP header.
func (l Loss) program(seen int) asm.Instructions {
	load := func(off int16, size int32) asm.Instructions { // of size bytes at R7+off to the stack
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, asm.R7), asm.Add.Imm(asm.R2, int32(off)),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, size),
			asm.FnSkbLoadBytes.Call(),
			asm.JNE.Imm(asm.R0, 0, "pass"),
		}
	}
	port, at := l.To, int16(2)
	if l.From != 0 {
		port, at = l.From, 0
	}
	ins := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R7, 0)}
	ins = append(ins, load(0, 1)...)
	ins = append(ins,
		asm.LoadMem(asm.R1, asm.RFP, -8, asm.Byte),
		asm.Mov.Reg(asm.R8, asm.R1),
		asm.RSh.Imm(asm.R8, 4),
		asm.JEq.Imm(asm.R8, 6, "six"),
		asm.And.Imm(asm.R1, 15),
		asm.LSh.Imm(asm.R1, 2),
		asm.Mov.Reg(asm.R8, asm.R1),
	)
	ins = append(ins, load(9, 1)...)
	ins = append(ins,
		asm.Mov.Reg(asm.R7, asm.R8),
		asm.Ja.Label("tcp"),
		asm.Mov.Imm(asm.R7, 0).WithSymbol("six"),
	)
	ins = append(ins, load(6, 1)...)
	ins = append(ins,
		asm.Mov.Imm(asm.R7, 40),
		asm.LoadMem(asm.R1, asm.RFP, -8, asm.Byte).WithSymbol("tcp"),
		asm.JNE.Imm(asm.R1, 6, "pass"),
	)
	ins = append(ins, load(at, 2)...)
	ins = append(ins,
		asm.LoadMem(asm.R1, asm.RFP, -8, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JNE.Imm(asm.R1, int32(port), "pass"),
	)
	ins = append(ins, load(12, 2)...)
	ins = append(ins,
		asm.LoadMem(asm.R1, asm.RFP, -7, asm.Byte),
		asm.And.Imm(asm.R1, int32(l.Flags)),
		asm.JNE.Imm(asm.R1, int32(l.Flags), "pass"),
		asm.LoadMem(asm.R1, asm.RFP, -8, asm.Byte),
		asm.RSh.Imm(asm.R1, 4),
		asm.LSh.Imm(asm.R1, 2),
		asm.LoadMem(asm.R8, asm.R6, 0, asm.Word), // len
		asm.Sub.Reg(asm.R8, asm.R7),
		asm.Sub.Reg(asm.R8, asm.R1),
		asm.JSLT.Imm(asm.R8, int32(l.Data), "pass"),
		asm.JSGT.Imm(asm.R8, int32(l.most()), "pass"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, seen),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R0, asm.R2, asm.DWord),
		asm.JLT.Imm(asm.R1, int32(l.Skip), "pass"),
		asm.JGE.Imm(asm.R1, int32(l.Skip+l.Count), "pass"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("pass"),
		asm.Return(),
	)
	return ins
}

// most is how many bytes of payload a segment may have.
func (l Loss) most() int {
	switch {
	case l.Empty:
		return 0
	case l.Most > 0:
		return l.Most
	}
	return 1 << 20
}

// RunLossy makes the sessions of t while segments are lost.
func (t *TCP) RunLossy(l Loss) error {
	x, err := StartLoss(l)
	if err != nil {
		return err
	}
	defer x.Close()
	_, err = t.Run()
	return err
}
