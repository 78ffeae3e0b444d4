// SPDX-License-Identifier: Apache-2.0

package bt

import "runtime"

// Offsets in struct pt_regs, by machine.
var (
	argRegs   []int16 // of arg0, arg1, …
	retReg    int16
	registers map[string]int16
)

func init() {
	switch runtime.GOARCH {
	case "arm64":
		registers = map[string]int16{"sp": 248, "pc": 256, "pstate": 264}
		names := []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "r16", "r17", "r18", "r19", "r20",
			"r21", "r22", "r23", "r24", "r25", "r26", "r27", "r28", "r29", "r30"}
		for i, n := range names {
			registers[n] = int16(8 * i)
		}
		argRegs, retReg = []int16{0, 8, 16, 24, 32, 40, 48, 56}, 0
	default: // amd64
		registers = map[string]int16{
			"r15": 0, "r14": 8, "r13": 16, "r12": 24, "bp": 32, "bx": 40, "r11": 48, "r10": 56, "r9": 64, "r8": 72,
			"ax": 80, "cx": 88, "dx": 96, "si": 104, "di": 112, "orig_ax": 120, "ip": 128, "cs": 136, "flags": 144, "sp": 152, "ss": 160,
		}
		argRegs, retReg = []int16{112, 104, 96, 88, 72, 64}, 80
	}
}
