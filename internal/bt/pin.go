// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// iter:task:NAME is a file: whoever reads it runs the program, and gets what it prints. The kernel formats
// it, which can do less than seine.

// pin makes the file of an iterator.
func pin(it *link.Iter, path string, say func(format string, args ...any)) error {
	if err := it.Pin(path); err != nil {
		if _, there := os.Lstat(path); there == nil {
			return fmt.Errorf("pinning %s: it is there already", path)
		}
		return fmt.Errorf("pinning %s: %w: is a file system of type bpf mounted there?", path, err)
	}
	say("Program pinned to %s\n", path)
	return nil
}

// seqMost is how many values the kernel formats.
const seqMost = 12

// percents writes percent signs as the kernel wants them, which takes none alone.
func percents(s string) string { return strings.ReplaceAll(text(s), "%", "%%") }

// toFile prints into the file of a pinned iterator.
func (e *emitter) toFile(x *Call) {
	if x.Name != "printf" {
		e.fail(x, "%s() is not for a pinned iterator: only printf() writes into its file", x.Name)
	}
	line := x.Args[0].(*Str).V
	verbs, _ := parseFormatString(line)
	var format strings.Builder
	args := x.Args[1:]
	if len(args) > seqMost {
		e.fail(x, "a pinned iterator prints up to %d values at once", seqMost)
	}
	values := e.inScratch(8 * max(len(args), 1)) // the stack may not hold addresses
	for i, a := range args {
		v := verbs[i]
		format.WriteString(percents(v.before) + "%" + v.flags)
		if v.width >= 0 {
			fmt.Fprint(&format, v.width)
		}
		t := kept(a.typ())
		switch {
		case v.prec >= 0 || strings.Contains(v.flags, "#") || v.conv == 's' && t.Kind != String || v.conv != 's' && !t.word():
			e.fail(a, "a pinned iterator prints numbers and strings, in formats without precision")
		case v.conv == 's':
			s := e.inScratch(t.store())
			e.value(a, t, s)
			e.address(asm.R0, s)
			format.WriteString("s")
		case v.conv == 'd' || v.conv == 'i' || v.conv == 'u' || v.conv == 'x':
			e.scalar(a)
			format.WriteString("ll" + string(v.conv))
		default:
			e.fail(a, "a pinned iterator prints %%d, %%u, %%x and %%s, not %%%c", v.conv)
		}
		e.store(values.at(8*i), asm.R0)
	}
	format.WriteString(percents(tail(line)))
	n := format.Len() + 1
	at := e.inScratch(round8(n))
	e.literal(format.String(), round8(n), at)
	// struct bpf_iter_meta is the first that the program gets; its first is the struct seq_file.
	e.add(asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord))
	e.address(asm.R2, at)
	e.add(asm.Mov.Imm(asm.R3, int32(n)))
	e.address(asm.R4, values)
	e.add(asm.Mov.Imm(asm.R5, int32(8*len(args))), asm.FnSeqPrintf.Call())
}
