// SPDX-License-Identifier: Apache-2.0

package bt

import "github.com/cilium/ebpf/asm"

// storeImm writes a small number as 64 bits. The kernel has had the instruction
// from the start; asm.StoreImm does not offer it for this size.
func storeImm(dst asm.Register, off int, v int32) asm.Instruction {
	op := asm.OpCode(asm.StClass) | asm.OpCode(asm.MemMode) | asm.OpCode(asm.DWord)
	return asm.Instruction{OpCode: op, Dst: dst, Offset: int16(off), Constant: int64(v)}
}

// fetchOr sets bits in memory and leaves what was there in src. cilium/ebpf 0.22
// writes an operation out only where it is in Constant too.
func fetchOr(dst, src asm.Register) asm.Instruction {
	in := asm.FetchOr.Mem(dst, src, asm.DWord, 0)
	in.Constant = int64(asm.FetchOr >> 8)
	return in
}
