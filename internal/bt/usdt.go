// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf/asm"

	"seine/internal/row"
)

// A program says where its static probes (USDT) are in notes of the ELF file: the
// address of an instruction that does nothing, a counter that says whether anybody
// listens, and where the arguments are there.

// A usdtProbe is one place of a static probe.
type usdtProbe struct {
	provider, name string
	at             uint64 // in the file
	semaphore      uint64 // in the file; 0: none
	args           []usdtArg
}

// A usdtArg is where an argument is: a number, a register, or memory at base +
// index*scale + off.
type usdtArg struct {
	size        int
	signed      bool
	constant    bool
	base, index string
	scale, off  int64
	memory      bool
	bad         string // what could not be read
}

const (
	stapNotes = ".note.stapsdt"
	stapBase  = ".stapsdt.base"
	stapOwner = "stapsdt"
	stapType  = 3
)

// usdtProbes reads the static probes of a file.
func usdtProbes(path string) ([]usdtProbe, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := f.Section(stapNotes)
	if s == nil {
		return nil, nil
	}
	data, err := s.Data()
	if err != nil {
		return nil, err
	}
	moved := uint64(0) // prelink moves code, and not the notes
	base := f.Section(stapBase)
	var list []usdtProbe
	le := binary.LittleEndian
	for len(data) >= 12 {
		name, desc, typ := int(le.Uint32(data)), int(le.Uint32(data[4:])), le.Uint32(data[8:])
		nameEnd := 12 + (name+3)&^3
		end := nameEnd + (desc+3)&^3
		if name < 0 || desc < 0 || nameEnd < 12 || end < nameEnd || end > len(data) {
			return nil, errors.New("notes of static probes are cut short")
		}
		owner := string(bytes.TrimRight(data[12:12+name], "\x00"))
		d := data[nameEnd : nameEnd+desc]
		data = data[end:]
		if owner != stapOwner || typ != stapType || len(d) < 24 {
			continue
		}
		pc, was, sem := le.Uint64(d), le.Uint64(d[8:]), le.Uint64(d[16:])
		text := bytes.SplitN(d[24:], []byte{0}, 4)
		if len(text) < 3 {
			continue
		}
		if base != nil && was != 0 {
			moved = base.Addr - was
		}
		p := usdtProbe{provider: string(text[0]), name: string(text[1]), args: usdtArgs(string(text[2]))}
		if p.at = inFile(f, pc+moved); p.at == 0 {
			continue
		}
		if sem != 0 {
			p.semaphore = inFile(f, sem+moved)
		}
		list = append(list, p)
	}
	return list, nil
}

// inFile is where in a file an address lies, 0 if nowhere.
func inFile(f *elf.File, addr uint64) uint64 {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Memsz {
			return addr - p.Vaddr + p.Off
		}
	}
	return 0
}

var (
	argStart = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(-?\d+)f?@`) })
	x86Mem   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([-+]?(?:0x[0-9a-f]+|\d+))?\((%\w+)?(?:,(%\w+)(?:,(\d))?)?\)$`)
	})
	armMem = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\[(\w+)(?:, *#?(-?\d+)|, *(\w+)(?:, *[ls]xt?[wxl] *#?(\d))?)?\]$`)
	})
)

// usdtArgs reads "-4@%edi 8@-16(%rbp)".
func usdtArgs(text string) (args []usdtArg) {
	starts := argStart().FindAllStringSubmatchIndex(text, -1)
	for i, m := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		args = append(args, usdtOperand(text[m[2]:m[3]], strings.TrimSpace(text[m[1]:end])))
	}
	return args
}

func usdtOperand(size, op string) usdtArg {
	a := usdtArg{scale: 1, bad: op}
	n, _ := strconv.Atoi(size)
	a.size, a.signed = max(n, -n), n < 0
	if a.size != 1 && a.size != 2 && a.size != 4 && a.size != 8 {
		return a
	}
	num := func(s string) int64 { v, _ := strconv.ParseInt(s, 0, 64); return v }
	ok := false
	if rest, is := strings.CutPrefix(op, "$"); is || op != "" && (isDigit(op[0]) || op[0] == '-') && !strings.Contains(op, "(") {
		a.constant, ok = true, true
		a.off = num(strings.TrimPrefix(rest, "#"))
	} else if m := x86Mem().FindStringSubmatch(op); m != nil {
		a.memory, ok = true, true
		if a.off = num(m[1]); m[2] != "" {
			a.base, ok = register(m[2])
		}
		if m[3] != "" && ok {
			a.index, ok = register(m[3])
		}
		if m[4] != "" {
			a.scale = num(m[4])
		}
	} else if m := armMem().FindStringSubmatch(op); m != nil {
		a.memory = true
		a.off = num(m[2])
		if a.base, ok = register(m[1]); m[3] != "" && ok {
			a.index, ok = register(m[3])
		}
		if m[4] != "" {
			a.scale = 1 << num(m[4])
		}
	} else {
		a.base, ok = register(op)
	}
	if ok {
		a.bad = ""
	}
	return a
}

// register is the name by which reg() knows a register that a note names.
func register(name string) (string, bool) {
	name = strings.TrimPrefix(name, "%")
	if runtime.GOARCH == "arm64" {
		if len(name) > 1 && (name[0] == 'x' || name[0] == 'w') && isDigit(name[1]) {
			name = "r" + name[1:]
		}
	} else {
		switch {
		case len(name) == 3 && (name[0] == 'r' || name[0] == 'e') && !isDigit(name[1]): // rax, eax
			name = name[1:]
		case len(name) == 2 && name[1] == 'l': // al
			name = name[:1] + "x"
		case len(name) == 3 && name[2] == 'l': // sil
			name = name[:2]
		case len(name) > 2 && name[0] == 'r' && isDigit(name[1]): // r8d, r10b
			name = strings.TrimRight(name, "dwb")
		}
	}
	_, ok := registers[name]
	return name, ok
}

// staticProbes gives the places of a static probe.
func (x *expander) staticProbes(ap AttachPoint, parts []string) ([]*Target, error) {
	if len(parts) < 3 || len(parts) > 4 || parts[len(parts)-1] == "" {
		return nil, x.src.errorf(ap.pos, ap.end, "write a static probe as usdt:PATH:NAME or usdt:PATH:PROVIDER:NAME")
	}
	file, provider, name := parts[1], "*", parts[len(parts)-1]
	if len(parts) == 4 && parts[2] != "" {
		provider = parts[2]
	}
	if file == "" {
		file = "*"
	}
	files, err := x.usdtFiles(ap, file)
	if err != nil {
		return nil, err
	}
	var list []*Target
	var names []string
	for _, path := range files {
		probes, err := usdtProbes(path)
		if err != nil {
			if !wild(file) {
				return nil, x.missing(ap, "%s: %v", path, err)
			}
			continue
		}
		for i := range probes {
			p := &probes[i]
			full := p.provider + ":" + p.name
			if !match(provider, p.provider) || !match(name, p.name) {
				names = append(names, full)
				continue
			}
			list = append(list, &Target{
				Kind: Usdt, Way: Uprobe, Path: path, Name: full, Func: p.name, Addr: p.at, usdt: p,
				Probe: "usdt:" + path + ":" + full, Wild: wild(file + provider + name),
			})
		}
	}
	switch {
	case len(list) > 0:
		return list, nil
	case wild(file):
		return nil, x.missing(ap, "no file that matches %s has a static probe %s", file, name)
	case len(names) == 0:
		return nil, x.missing(ap, "%s has no static probes", files[0])
	}
	want := name
	if provider != "*" {
		want = provider + ":" + name
	}
	if near := row.Nearest(want, names); near != "" {
		return nil, x.missing(ap, "%s has no static probe %s: did you mean %s?", files[0], want, near)
	}
	return nil, x.missing(ap, "%s has no static probe %s: seine run -l 'usdt:%s' lists those that it has", files[0], want, files[0])
}

// usdtFiles are the files that a path or pattern stands for.
func (x *expander) usdtFiles(ap AttachPoint, file string) ([]string, error) {
	if !wild(file) {
		path, ok := findBinary(file)
		if !ok {
			return nil, x.missing(ap, "there is no file %s", file)
		}
		return []string{path}, nil
	}
	return x.matchingFiles(ap, file)
}

// matchingFiles are the files of a pattern, each once: a path, or the name of a file
// that a process of -p has mapped.
func (x *expander) matchingFiles(ap AttachPoint, pattern string) (list []string, err error) {
	var files []string
	switch {
	case strings.Contains(pattern, "/"):
		files, _ = filepath.Glob(pattern)
	case len(x.pids) > 0:
		for _, pid := range x.pids {
			mapped, err := mappedFiles(pid)
			if err != nil {
				return nil, x.missing(ap, "%v", err)
			}
			files = append(files, mapped...)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return !match(pattern, filepath.Base(f)) })
	default:
		return nil, x.src.errorf(ap.pos, ap.end, "%s needs -p: the files that a process has mapped are looked through", ap.Raw)
	}
	slices.Sort(files)
	same := map[string]bool{} // a file can have several names
	for _, f := range slices.Compact(files) {
		real, err := filepath.EvalSymlinks(f)
		if err != nil || same[real] {
			continue
		}
		same[real] = true
		list = append(list, f)
	}
	return list, nil
}

// usdtArg is the type of an argument of a static probe.
func (c *checker) usdtArg(e *Ident, n int) *Type {
	args := c.target.usdt.args
	if n >= len(args) {
		c.failAt(e, "%s has %s", c.target.Probe, plural(len(args), "argument"))
	}
	if bad := args[n].bad; bad != "" {
		c.failAt(e, "%s of %s is at %q, which is not understood", e.Name, c.target.Probe, bad)
	}
	return &Type{Kind: Number, Size: args[n].size, Signed: args[n].signed, Space: InUser}
}

// usdtArg leaves an argument of a static probe in R0.
func (e *emitter) usdtArg(n int) {
	a := e.target.usdt.args[n]
	t := &Type{Kind: Number, Size: a.size, Signed: a.signed}
	switch {
	case a.constant:
		e.add(asm.LoadImm(asm.R0, truncate(a.off, a.size, a.signed), asm.DWord))
		return
	case !a.memory:
		e.add(asm.LoadMem(asm.R0, asm.R6, registers[a.base], asm.DWord))
		e.extend(t)
		return
	}
	e.add(asm.LoadImm(asm.R0, a.off, asm.DWord))
	if a.base != "" {
		e.add(asm.LoadMem(asm.R1, asm.R6, registers[a.base], asm.DWord), asm.Add.Reg(asm.R0, asm.R1))
	}
	if a.index != "" {
		e.add(asm.LoadMem(asm.R1, asm.R6, registers[a.index], asm.DWord), asm.Mul.Imm(asm.R1, int32(a.scale)), asm.Add.Reg(asm.R0, asm.R1))
	}
	e.loadPlace(spot{space: InUser}, t)
}

// usdt lists static probes.
func (l *lister) usdt(pattern string) error {
	path, rest, _ := strings.Cut(pattern, ":")
	found, ok := findBinary(path)
	if !ok || path == "" {
		return (&Source{Name: "-l", Text: "usdt:" + pattern}).errorf(0, Pos(len(pattern)), "write static probes as usdt:FILE or usdt:FILE:PATTERN")
	}
	probes, err := usdtProbes(found)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, p := range probes {
		full := p.provider + ":" + p.name
		if seen[full] || rest != "" && !match(rest, full) && !match(rest, p.name) {
			continue
		}
		seen[full] = true
		var args []string
		for i, a := range p.args {
			args = append(args, fmt.Sprintf("%s arg%d", &Type{Kind: Number, Size: a.size, Signed: a.signed}, i))
		}
		l.add("usdt:"+found+":"+full, args...)
	}
	return nil
}
