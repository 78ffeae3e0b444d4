// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/sym"
)

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// text is a value as bpftrace prints it.
func (r *Run) text(t *Type, b []byte) string {
	switch t.Kind {
	case Number, Pointer:
		return numberText(t, word(b))
	case Name:
		return r.name(t, word(b))
	case String:
		return clean(r.stringText(b[:t.store()]))
	case Buffer:
		n := min(int(word(b)), t.Len)
		return escapeBytes(b[8 : 8+n])
	case Inet:
		return inet(b)
	case PathOf:
		return pathText(b)
	case Mac:
		return net.HardwareAddr(b[:6]).String()
	case Time:
		return strftime(t.Format, bootWall(word(b)))
	case User:
		id := strconv.FormatUint(word(b), 10)
		if u, err := user.LookupId(id); err == nil {
			return u.Username
		}
		return id
	case SigName:
		if name := unix.SignalName(unix.Signal(word(b))); name != "" {
			return name
		}
		return strconv.FormatUint(word(b), 10)
	case CommOf:
		return clean(commOf(word(b)))
	case Cgroup:
		if path := host.CgroupPath(word(b)); path != "" {
			return clean(path)
		}
		return strconv.FormatUint(word(b), 10)
	case Errno:
		n := int64(word(b))
		if n < 0 {
			n = -n
		}
		s := unix.Errno(n).Error() // C begins it with a capital
		if n == 0 {
			s = "success"
		} else if unix.ErrnoName(unix.Errno(n)) == "" {
			s = "unknown error " + strconv.FormatInt(n, 10)
		}
		return strings.ToUpper(s[:1]) + s[1:]
	case SysCall:
		if name := callNames()[int64(word(b))]; name != "" {
			return name
		}
		return strconv.FormatInt(int64(word(b)), 10)
	case KSym:
		return symText(r.kernel.Frame(word(b)), false)
	case USym:
		return symText(r.procs.Frame(uint32(word(b[8:])), word(b)), false)
	case KStack, UStack:
		return r.stackText(t, b)
	case Combo:
		var parts []string
		for i, e := range t.Elems {
			text := r.text(e, b)
			if t.Names != nil {
				text = "." + t.Names[i] + " = " + text
			}
			parts = append(parts, text)
			b = b[e.store():]
		}
		if t.Names != nil {
			return "{ " + strings.Join(parts, ", ") + " }"
		}
		return "(" + strings.Join(parts, ", ") + ")"
	case Array, Record:
		return memoryText(t, b)
	}
	return "?"
}

// memoryText is a value that lies in memory as C has it: a number, a string in an
// array of characters, [element,…], or { .field = value, … }.
func memoryText(t *Type, b []byte) string {
	switch {
	case t.Size > len(b):
		return "?"
	case t.number():
		return numberText(t, element(b, 0, t))
	case t.charArray():
		return clean(cstring(b[:t.Size]))
	case t.Kind == Array:
		e := t.Elem()
		var parts []string
		for i := range t.Len {
			parts = append(parts, memoryText(e, b[i*e.Size:]))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case t.Kind == Record:
		var parts []string
		for _, n := range t.Rec.names() {
			m := t.Rec.field(n, InKernel)
			if m == nil || m.off+m.t.Size > len(b) {
				continue
			}
			text := ""
			if m.bits > 0 {
				unit := element(b[m.off:], 0, &Type{Size: m.t.Size})
				text = numberText(m.t, uint64(bitsOf(int64(unit), m, m.t.Signed)))
			} else {
				text = memoryText(m.t, b[m.off:])
			}
			parts = append(parts, "."+n+" = "+text)
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return "?"
}

// bitsOf takes a bit field out of the bytes around it.
func bitsOf(unit int64, m *member, signed bool) int64 {
	v := unit << (64 - m.bitStart - m.bits)
	if signed {
		return v >> (64 - m.bits)
	}
	return int64(uint64(v) >> (64 - m.bits))
}

func element(b []byte, i int, e *Type) uint64 {
	var w [8]byte
	copy(w[:], b[i*e.Size:min(len(b), (i+1)*e.Size)])
	return uint64(truncate(int64(word(w[:])), e.Size, e.Signed))
}

// numberText prints by sign: what is narrower than 64 bits fits the signed form.
func numberText(t *Type, v uint64) string {
	if t.Kind == Pointer {
		return "0x" + strconv.FormatUint(v, 16)
	}
	if t.Bool {
		return strconv.FormatBool(v != 0)
	}
	if t.Enum != nil {
		if name := t.Enum.of(int64(v)); name != "" {
			return name
		}
	}
	if t.Kind == Number && !t.Signed && t.Size == 8 && !t.Lit {
		return strconv.FormatUint(v, 10)
	}
	return strconv.FormatInt(int64(v), 10)
}

func (r *Run) name(t *Type, id uint64) string {
	if id >= uint64(len(r.p.u.names)) {
		return strconv.FormatUint(id, 10)
	}
	if t.Format == "probe" {
		return r.p.u.names[id].Probe
	}
	return r.p.u.names[id].Func
}

// stringText is a string, with str_trunc_trailer if it was cut: see markCut.
func (r *Run) stringText(b []byte) string {
	last := len(b) - 1
	if last < 0 || b[last] == 0 {
		return cstring(b)
	}
	return cstring(b[:last]) + r.p.set.trailer
}

func cstring(b []byte) string {
	if i := strings.IndexByte(string(b), 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// clean escapes control characters: the traced process chooses its strings.
func clean(s string) string {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			var b strings.Builder
			for j := range len(s) {
				if c := s[j]; c < ' ' && c != '\t' || c == 0x7f {
					fmt.Fprintf(&b, "\\x%02x", c)
				} else {
					b.WriteByte(c)
				}
			}
			return b.String()
		}
	}
	return s
}

func escapeBytes(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		if c < ' ' || c >= 0x7f {
			fmt.Fprintf(&s, "\\x%02x", c)
		} else {
			s.WriteByte(c)
		}
	}
	return s.String()
}

func inet(b []byte) string {
	n := word(b)
	if n != 4 && n != 16 {
		return ""
	}
	addr, _ := netip.AddrFromSlice(b[8 : 8+n])
	return addr.String()
}

func symText(f sym.Frame, offset bool) string {
	switch {
	case f.Sym == "":
		return "0x" + strconv.FormatUint(f.Addr, 16)
	case offset:
		return f.Sym + "+" + strconv.FormatUint(f.Off, 10)
	}
	return f.Sym
}

// rawStack is a stack as the kernel gave it.
func (r *Run) rawStack(t *Type, b []byte) []byte {
	raw := make([]byte, t.frame()*t.Depth)
	m, hash := r.l.maps[stackMap(t)], word(b)
	key := any(hash)
	if hash>>63 == 0 {
		m, key = r.l.maps[stackIDs(t)], uint32(hash-1)
	}
	if m == nil || hash == 0 || m.Lookup(key, &raw) != nil {
		return nil
	}
	return raw
}

// frames are the functions of a stack, innermost first.
func (r *Run) frames(t *Type, b []byte) []sym.Frame {
	raw := r.rawStack(t, b)
	var addrs []uint64
	for i := 0; i < len(raw) && word(raw[i:]) != 0; i += 8 {
		addrs = append(addrs, word(raw[i:]))
	}
	if t.Kind == UStack {
		return r.procs.Stack(nil, uint32(word(b[8:])), addrs)
	}
	return r.kernel.Stack(nil, addrs)
}

// stackText is one frame a line, after a line break.
func (r *Run) stackText(t *Type, b []byte) string {
	var s strings.Builder
	s.WriteByte('\n')
	if t.Format == buildIDs {
		for _, line := range r.buildIDs(t, b) {
			fmt.Fprintf(&s, "    %s\n", line)
		}
		return s.String()
	}
	for i, f := range r.frames(t, b) {
		switch t.Format {
		case "raw":
			fmt.Fprintf(&s, "    %x\n", f.Addr)
		case "perf":
			mod := f.Module
			if mod == "" {
				mod = "[unknown]"
			}
			fmt.Fprintf(&s, "\t%x %s%s (%s)\n", f.Addr, clean(symText(f, true)), clean(r.sourceText(t, b, f, i == 0)), clean(mod))
		default:
			fmt.Fprintf(&s, "    %s%s\n", clean(symText(f, true)), clean(r.sourceText(t, b, f, i == 0)))
		}
	}
	return s.String()
}

// buildIDs are the frames of a stack as the build id of a file and an offset in it;
// an address where the kernel found no build id.
func (r *Run) buildIDs(t *Type, b []byte) []string {
	list := []string{}
	raw := r.rawStack(t, b)
	for i := 0; i+32 <= len(raw); i += 32 {
		f := raw[i : i+32]
		switch binary.LittleEndian.Uint32(f) {
		case unix.BPF_STACK_BUILD_ID_VALID:
			list = append(list, fmt.Sprintf("%x 0x%x", f[4:24], word(f[24:])))
		case unix.BPF_STACK_BUILD_ID_IP:
			list = append(list, fmt.Sprintf("0x%x", word(f[24:])))
		default:
			return list
		}
	}
	return list
}

// json is a value for encoding/json.
func (r *Run) json(t *Type, b []byte) any {
	switch t.Kind {
	case Number:
		if t.Bool {
			return word(b) != 0
		}
		if t.Enum != nil {
			if name := t.Enum.of(int64(word(b))); name != "" {
				return name
			}
		}
		if !t.Signed && t.Size == 8 && !t.Lit {
			return word(b)
		}
		return int64(word(b))
	case KStack, UStack:
		if t.Format == buildIDs {
			return r.buildIDs(t, b)
		}
		list := []map[string]any{}
		for _, f := range r.frames(t, b) {
			m := map[string]any{}
			if f.Sym != "" {
				m["sym"], m["off"] = f.Sym, f.Off
			} else {
				m["off"] = f.Addr
			}
			if f.Module != "" {
				m["mod"] = f.Module
			}
			list = append(list, m)
		}
		return list
	case Combo:
		list, fields := []any{}, map[string]any{}
		for i, e := range t.Elems {
			v := r.json(e, b)
			if t.Names != nil {
				fields[t.Names[i]] = v
			}
			list = append(list, v)
			b = b[e.store():]
		}
		if t.Names != nil {
			return fields
		}
		return list
	case Array:
		e := t.Elem()
		if e.Kind == Number {
			list := []any{}
			for i := range t.Len {
				list = append(list, int64(element(b, i, e)))
			}
			return list
		}
	case String:
		return strings.ToValidUTF8(r.stringText(b[:t.store()]), "\ufffd")
	}
	return r.text(t, b)
}

// cgroupID is the id of a path in the cgroup2 hierarchy.
func cgroupID(path string) (uint64, error) {
	root, err := host.Cgroup2()
	if err != nil {
		return 0, err
	}
	rel := strings.TrimPrefix(path, "/sys/fs/cgroup")
	rel = strings.TrimPrefix(rel, "/unified")
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(root, filepath.Clean("/"+rel)), &st); err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return st.Ino, nil
}
