// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Where the program below has the instruction of a probe, and the place that it writes
// to each round.
const usdtTick, usdtCounter = 0x400000 + 0x1000 + 38, 0x400000 + 0x2000 + 8

// usdtRounds is how often the program below comes by its probes.
const usdtRounds = 13

// usdtProgram writes a program that has static probes: tick, with arguments in a
// register, a constant, memory and a string, and guarded, which has a counter of
// listeners. It ends with that counter as its exit code.
func usdtProgram(t *testing.T) string {
	const base, notesAt, textAt, dataAt = 0x400000, 0x400, 0x1000, 0x2000
	// With an argument it waits for its input: cmp dword [rsp], 1; je +15; xor eax, eax; xor edi, edi; mov rsi, rsp; xor edx, edx; inc edx; syscall
	code := []byte{0x83, 0x3c, 0x24, 1, 0x74, 13, 0x31, 0xc0, 0x31, 0xff, 0x48, 0x89, 0xe6, 0x31, 0xd2, 0xff, 0xc2, 0x0f, 0x05}
	code = append(code, 0x31, 0xdb) // xor ebx, ebx
	loop := len(code)
	code = append(code, 0x89, 0x1d) // mov [counter], ebx
	code = binary.LittleEndian.AppendUint32(code, uint32(dataAt+8-(textAt+len(code)+4)))
	lea := len(code)
	code = append(code, 0x48, 0x8d, 0x35, 0, 0, 0, 0) // lea rsi, [text]
	binary.LittleEndian.PutUint32(code[lea+3:], uint32(dataAt+16-(textAt+len(code))))
	code = append(code, 0x89, 0xdf, 0xf7, 0xdf) // mov edi, ebx; neg edi
	tick := len(code)
	if base+textAt+tick != usdtTick {
		t.Fatalf("the probe is at %#x", base+textAt+tick)
	}
	code = append(code, 0x90) // nop
	guarded := len(code)
	code = append(code, 0x90)                                           // nop
	code = append(code, 0xff, 0xc3, 0x83, 0xfb, usdtRounds, 0x7c)       // inc ebx; cmp ebx, rounds; jl loop
	code = append(code, byte(int8(loop-len(code)-1)), 0x0f, 0xb7, 0x3d) // movzx edi, word [counter]
	code = binary.LittleEndian.AppendUint32(code, uint32(dataAt-(textAt+len(code)+4)))
	code = append(code, 0xb8, 60, 0, 0, 0, 0x0f, 0x05) // mov eax, exit; syscall

	var notes bytes.Buffer
	note := func(at, sem int, name, args string) {
		desc := binary.LittleEndian.AppendUint64(nil, uint64(base+textAt+at))
		desc = binary.LittleEndian.AppendUint64(desc, 0)
		if sem != 0 {
			sem += base
		}
		desc = binary.LittleEndian.AppendUint64(desc, uint64(sem))
		desc = append(desc, "test\x00"+name+"\x00"+args+"\x00"...)
		_ = binary.Write(&notes, binary.LittleEndian, []uint32{8, uint32(len(desc)), 3})
		notes.WriteString("stapsdt\x00")
		notes.Write(append(desc, make([]byte, (4-len(desc)%4)%4)...))
	}
	note(tick, 0, "tick", "-4@%edi -8@$-7 4@8(%rsi) 8@%rsi 4@-8(%rsi,%rbx,4) 4@foo(%rip)")
	note(guarded, dataAt, "guarded", "4@%ebx")

	file := make([]byte, dataAt+0x100)
	copy(file[notesAt:], notes.Bytes())
	copy(file[textAt:], code)
	copy(file[dataAt+16:], "texted\x00\x00\x2a\x00\x00\x00") // 42 at text + 8
	const names = "\x00" + stapNotes + "\x00.shstrtab\x00"
	copy(file[0x900:], names)
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Entry: base + textAt, Phoff: 64, Shoff: 0xa00, Ehsize: 64, Phentsize: 56, Phnum: 2,
		Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, h)
	load := func(flags elf.ProgFlag, from, to uint64) elf.Prog64 { // uprobes want code that cannot be written to
		return elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: from, Vaddr: base + from, Paddr: base + from, Filesz: to - from, Memsz: to - from, Align: 0x1000}
	}
	_ = binary.Write(&b, binary.LittleEndian, []elf.Prog64{load(elf.PF_R|elf.PF_X, 0, dataAt), load(elf.PF_R|elf.PF_W, dataAt, uint64(len(file)))})
	copy(file, b.Bytes())
	b.Reset()
	_ = binary.Write(&b, binary.LittleEndian, []elf.Section64{
		{}, {Name: 1, Type: uint32(elf.SHT_NOTE), Off: notesAt, Size: uint64(notes.Len()), Addralign: 4},
		{Name: uint32(len(stapNotes) + 2), Type: uint32(elf.SHT_STRTAB), Off: 0x900, Size: uint64(len(names)), Addralign: 1},
	})
	copy(file[0xa00:], b.Bytes())
	path := filepath.Join(t.TempDir(), "static")
	check(os.WriteFile(path, file, 0o755))
	return path
}

// TestUSDT traces static probes of a program whose counts and values are known.
func TestUSDT(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the program is one of amd64")
	}
	path := usdtProgram(t)
	listeners := func() int {
		var ended *exec.ExitError
		if err := exec.Command(path).Run(); errors.As(err, &ended) {
			return ended.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return 0
	}
	if n := listeners(); n != 0 {
		t.Fatalf("the program ends with %d before anybody listens", n)
	}
	heard := -1
	out, errs := live(t, script(fmt.Sprintf(`usdt:%[1]s:test:tick { @n = count(); @low = min(arg0); @c[arg1, arg2, str(arg3), probe, func] = count(); @at[arg4 == 42] = count(); }
		usdt:%[1]s:guarded { @g = sum(arg0); }`, path)), Options{}, func() { heard = listeners() })
	want(t, out, fmt.Sprintf("@n: %d\n", usdtRounds), fmt.Sprintf("@low: -%d\n", usdtRounds-1), fmt.Sprintf("@g: %d\n", usdtRounds*(usdtRounds-1)/2),
		fmt.Sprintf("@c[-7, 42, texted, usdt:%s:test:tick, tick]: %d\n", path, usdtRounds), "@at[true]: 1\n")
	if heard != 1 {
		t.Errorf("the program counts %d listeners, want 1\n%s", heard, errs)
	}
	if n := listeners(); n != 0 {
		t.Errorf("the program counts %d listeners at the end, want none", n)
	}
	// In all files of a process.
	cmd := exec.Command(path, "wait")
	in := must(cmd.StdinPipe())
	check(cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	soon(func() bool { // it is the program, not the test any more
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
		return err == nil && strings.Contains(string(maps), path)
	})
	out, _ = live(t, script(`usdt:*:tick { @all[probe] = count(); } usdt::tick { @any[probe] = count(); }`), Options{PIDs: []uint32{uint32(cmd.Process.Pid)}}, func() {
		_, _ = io.WriteString(in, "x")
		_ = in.Close()
		_, _ = cmd.Process.Wait()
	})
	want(t, out, fmt.Sprintf("@all[usdt:%s:test:tick]: %d\n", path, usdtRounds), fmt.Sprintf("@any[usdt:%s:test:tick]: %d\n", path, usdtRounds))
	for text, want := range map[string]string{
		"usdt:" + path + ":tock { }":             "has no static probe tock",
		"usdt:" + path + ":tick { @ = arg6; }":   "has 6 arguments",
		"usdt:" + path + ":tick { @ = arg5; }":   `arg5 of usdt:` + path + `:test:tick is at "foo(%rip)", which is not understood`,
		"usdt:/proc/self/exe:x { }":              "/proc/self/exe has no static probes",
		"usdt:" + path + " { }":                  "write a static probe as usdt:PATH:NAME",
		"usdt:*:tick { }":                        "needs -p",
		"usdt:" + path + ":tick { @ = retval; }": "usdt has no retval",
	} {
		if _, err := Compile(&Source{Name: "-e", Text: text}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	var list strings.Builder
	check(List(&list, "usdt:"+path+":*", true))
	if want := "usdt:" + path + ":test:tick\n    int32 arg0\n    int64 arg1\n"; !strings.HasPrefix(list.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", list.String(), want)
	}
}
