// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bufio"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// address is where a symbol of the kernel is, functions and data alike; 0 if it
// has none of that name, or does not say.
func (k *kernel) address(name string) uint64 {
	at, err := k.lookUp(name)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		at = k.symbols()[name]
	}
	return at
}

// remember calls f once for each name: a clause with many targets asks for each of them.
func remember(f func(string) (uint64, error)) func(string) (uint64, error) {
	type answer struct {
		at  uint64
		err error
	}
	var known sync.Map
	return func(name string) (uint64, error) {
		a, ok := known.Load(name)
		if !ok {
			at, err := f(name)
			a, _ = known.LoadOrStore(name, answer{at, err})
		}
		return a.(answer).at, a.(answer).err
	}
}

// lookUp runs a BPF program that asks for the address of one symbol. Reading the list of all
// symbols takes longer than the rest of the start. The helper for it exists since Linux 5.16.
func lookUp(name string) (uint64, error) {
	const most = 256 // on the stack
	text := append([]byte(name), 0)
	if len(text) > most {
		return 0, unix.ENAMETOOLONG
	}
	ins := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), storeImm(asm.RFP, -8, 0)}
	for i, word := 0, make([]byte, 8); i < len(text); i += 8 {
		clear(word)
		copy(word, text[i:])
		ins = append(ins, asm.LoadImm(asm.R1, int64(binary.NativeEndian.Uint64(word)), asm.DWord), asm.StoreMem(asm.RFP, int16(i-most-8), asm.R1, asm.DWord))
	}
	ins = append(ins,
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, -most-8), asm.Mov.Imm(asm.R2, int32(len(text))), asm.Mov.Imm(asm.R3, 0),
		asm.Mov.Reg(asm.R4, asm.RFP), asm.Add.Imm(asm.R4, -8), asm.FnKallsymsLookupName.Call(),
		asm.LoadMem(asm.R1, asm.RFP, -8, asm.DWord), asm.StoreMem(asm.R6, 0, asm.R1, asm.DWord), asm.Return(),
	)
	prog, err := ebpf.NewProgramWithOptions(
		&ebpf.ProgramSpec{Type: ebpf.Syscall, Flags: unix.BPF_F_SLEEPABLE, License: "GPL", Instructions: ins}, ebpf.ProgramOptions{LogDisabled: true})
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	var at uint64
	code, err := prog.Run(&ebpf.RunOptions{Context: &at, ContextOut: &at})
	if err == nil && code != 0 {
		err = syscall.Errno(-int32(code))
	}
	return at, err
}

// readSymbols gives the addresses of all symbols, data too, for kaddr().
func readSymbols() map[string]uint64 {
	syms := map[string]uint64{}
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return syms
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, rest, _ := strings.Cut(lines.Text(), " ")
		_, name, _ := strings.Cut(rest, " ")
		name, _, _ = strings.Cut(name, "\t")
		addr, err := strconv.ParseUint(text, 16, 64)
		if _, twice := syms[name]; err == nil && addr != 0 && !twice {
			syms[name] = addr
		}
	}
	return syms
}
