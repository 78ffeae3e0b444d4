// SPDX-License-Identifier: Apache-2.0

package sockstat

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

const bodyCompat = "sockstat-compat"

// caller is a program that makes a socket and five more descriptors of it by the
// 32-bit dup. The number of that call is the number of the 64-bit socket call. Its
// exit code is the last descriptor.
var caller = []byte{
	0xb8, 41, 0, 0, 0, // mov eax, 41: socket
	0xbf, unix.AF_INET, 0, 0, 0, // mov edi
	0xbe, unix.SOCK_STREAM, 0, 0, 0, // mov esi
	0x31, 0xd2, // xor edx, edx
	0x0f, 0x05, // syscall
	0x89, 0xc3, // mov ebx, eax
	0xbd, 5, 0, 0, 0, // mov ebp, 5
	0xb8, 41, 0, 0, 0, // again: mov eax, 41: dup
	0xcd, 0x80, // int 0x80
	0xff, 0xcd, // dec ebp
	0x75, 0xf5, // jnz again
	0x89, 0xc7, // mov edi, eax
	0xb8, 60, 0, 0, 0, // mov eax, 60: exit
	0x0f, 0x05, // syscall
}

// program is code as an executable file.
func program(code []byte) []byte {
	const base, head = 0x400000, 64 + 56
	size := uint64(head + len(code))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01")
	b.Write(make([]byte, 9))
	for _, v := range []any{
		uint16(2), uint16(62), uint32(1), uint64(base + head), uint64(64), uint64(0), // ET_EXEC, EM_X86_64
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000), // PT_LOAD, r-x
	} {
		binary.Write(&b, binary.LittleEndian, v)
	}
	return append(b.Bytes(), code...)
}

func doCompat(c *lab.Child) error {
	fd, err := unix.MemfdCreate("caller", 0)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, program(caller)); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	err = exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)).Run()
	var end *exec.ExitError
	if !errors.As(err, &end) {
		return fmt.Errorf("a program that ends with a descriptor: %w", err)
	}
	return c.Report(end.ExitCode())
}

// compat: 32-bit calls are not mistaken for the 64-bit calls with their
// numbers.
func compat(x *trial.Trial) error {
	if runtime.GOARCH != "amd64" {
		return trial.Skip("the program is in amd64's code")
	}
	p, err := x.World.Start("", "caller", bodyCompat, nil)
	if err != nil {
		return err
	}
	var last int
	rows, err := x.Rows(func() error { return p.Call("go", &last) }, "--interval=1h")
	if err != nil {
		return err
	}
	if last == -1 {
		return trial.Skip("this kernel refuses 32-bit calls")
	}
	if last < 8 || last > 99 {
		return fmt.Errorf("the program ended with %d, want its eighth descriptor or later", last)
	}
	n := uint64(0)
	for _, r := range rows {
		if trial.Value(r.Get("op")) == "socket" {
			n += r.Get("count").N
		}
	}
	if n != 1 {
		x.Errorf("%d sockets, want 1", n)
	}
	return p.Wait()
}
