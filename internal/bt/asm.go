// SPDX-License-Identifier: Apache-2.0

package bt

import "github.com/cilium/ebpf/asm"

// storeImm writes a small number as 64 bits. The kernel has had the instruction
// from the start; asm.StoreImm does not offer it for this size.
func storeImm(dst asm.Register, off int, v int32) asm.Instruction {
	op := asm.OpCode(asm.StClass) | asm.OpCode(asm.MemMode) | asm.OpCode(asm.DWord)
	return asm.Instruction{OpCode: op, Dst: dst, Offset: int16(off), Constant: int64(v)}
}
