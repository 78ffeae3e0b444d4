// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"seine/internal/host"
)

// OwnPID is this process's id as BPF programs see it: the one outside of all PID namespaces.
// Inside a PID namespace only a BPF program can find it out.
func OwnPID() uint32 {
	own := uint32(os.Getpid())
	if !host.InPIDNamespace() {
		return own
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.FnGetCurrentPidTgid.Call(),
			asm.RSh.Imm(asm.R0, 32),
			asm.Return(),
		},
	})
	if err != nil {
		return own // loading the tool's programs will fail too, and say why
	}
	defer p.Close()
	if n, err := p.Run(&ebpf.RunOptions{}); err == nil {
		own = n
	}
	return own
}
