// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxKernelFunc ends a function that no other symbol follows closely, as at
	// the end of a module.
	maxKernelFunc = 256 << 10

	// kernelAgain is how long an address without a symbol must wait until
	// kallsyms is read again for it: reading takes up to 0.1 s. Modules and BPF
	// programs come and go.
	kernelAgain = 10 * time.Second
)

// A Kernel names kernel addresses, from /proc/kallsyms, which is read when first
// needed. The zero value is ready to use, also by several goroutines at once.
type Kernel struct {
	mu   sync.Mutex // one reader of the file at a time
	tab  atomic.Pointer[table]
	err  error
	last atomic.Int64 // when the file was read, UnixNano
}

// Err tells why no kernel symbols are to be had, or returns nil. It is an
// fs.ErrPermission when the kernel hides them.
func (k *Kernel) Err() error {
	k.table()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Frame names a kernel address. Of several names at one address it gives the
// one that the kernel's own stack traces show.
func (k *Kernel) Frame(addr uint64) Frame {
	t := k.table()
	i := t.find(addr)
	if i < 0 && addr>>63 == 1 && time.Now().UnixNano()-k.last.Load() > int64(kernelAgain) {
		t = k.read(t)
		i = t.find(addr)
	}
	if i < 0 {
		return Frame{Addr: addr}
	}
	return Frame{Addr: addr, Sym: t.sym(i), Off: addr - t.addr[i], Module: t.mods[t.mod[i]]}
}

// Stack appends the frames of a kernel stack, innermost first, to buf.
func (k *Kernel) Stack(buf []Frame, addrs []uint64) []Frame {
	return stack(buf, addrs, k.Frame)
}

// Lookup returns the address of a function. Static functions may share a name:
// the lowest address of that name is returned. It looks at every name, which
// takes half a millisecond.
func (k *Kernel) Lookup(name string) (addr uint64, ok bool) {
	t := k.table()
	for i := range t.addr {
		if t.raw(i) == name {
			return t.addr[i], true
		}
	}
	return 0, false
}

func (k *Kernel) table() *table {
	if t := k.tab.Load(); t != nil {
		return t
	}
	return k.read(nil)
}

// read replaces the table old, unless another goroutine has done so.
func (k *Kernel) read(old *table) *table {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.tab.Load(); t != old {
		return t
	}
	t, err := readKallsyms()
	k.last.Store(time.Now().UnixNano())
	if err != nil && old != nil {
		return old // better than nothing
	}
	k.err = err
	k.tab.Store(t)
	return t
}

func readKallsyms() (*table, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return &table{}, fmt.Errorf("kernel symbols: %w", err)
	}
	defer f.Close()
	return parseKallsyms(f)
}

// parseKallsyms reads lines like
//
//	ffffffff81c3a2b0 t tcp_sendmsg	[module]
//
// It keeps functions. Data ends the function before it, and so do the padding
// symbols (__pfx_NAME, since 6.2), which are half of all symbols and in no stack.
func parseKallsyms(r io.Reader) (*table, error) {
	b := builder{mods: []string{Vmlinux}}
	mods := map[string]uint16{"": 0}
	lines, zeroes := 0, 0
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(in)
		if err != nil {
			if err != io.EOF {
				return &table{}, fmt.Errorf("kernel symbols: %w", err)
			}
			break
		}
		addr, line, ok := cutHex(line, ' ')
		if !ok || len(line) < 3 || line[1] != ' ' {
			continue
		}
		lines++
		if addr == 0 {
			zeroes++ // hidden, or per-CPU data
			continue
		}
		name, module, _ := bytes.Cut(line[2:], []byte{'\t'})
		f := function{addr: addr, soft: true}
		if !strings.ContainsRune("tTwW", rune(line[0])) || bytes.HasPrefix(name, []byte("__pfx_")) {
			name = nil
		}
		module = bytes.TrimSuffix(bytes.TrimPrefix(module, []byte{'['}), []byte{']'})
		f.mod, ok = mods[string(module)]
		if !ok && len(mods) < 1<<16 {
			f.mod = uint16(len(mods))
			mods[string(module)] = f.mod
			b.mods = append(b.mods, string(module))
		}
		if !b.add(f, maxKernelFunc, name) {
			break
		}
	}
	b.sort()
	b.settle()
	t := b.table()
	switch {
	case len(t.addr) > 0:
		return t, nil
	case zeroes > 0:
		return t, fmt.Errorf("kernel symbols: /proc/kallsyms shows only zeroes: "+
			"run as root, with kernel.kptr_restrict at 0 or 1: %w", fs.ErrPermission)
	case lines > 0:
		return t, fmt.Errorf("kernel symbols: no function among the %d lines of /proc/kallsyms", lines)
	}
	return t, fmt.Errorf("kernel symbols: /proc/kallsyms is empty: the kernel needs CONFIG_KALLSYMS")
}
