// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// An action is something that seine does when the kernel sends its number.
type action struct {
	kind   string // the function's name
	format string
	verbs  []verb
	types  []*Type   // of the values that come along
	texts  []*string // those of them that the script itself writes; nil: it does not
	names  []string
	m      *mapDef // of print, clear, zero
	key    bool    // print(@x[key]): the types are those of the keys, then the value's
	top    int64
	div    int64
	probe  string
	at     [2]Pos // of a read
}

// recordHead is the number of the action and the time.
const recordHead = 16

// joinMost and joinLen bound join().
const (
	joinMost = 16
	joinLen  = 128
)

// builtin leaves the value of a builtin in R0.
func (e *emitter) builtin(x *Ident) {
	if n, ok := argIndex(x.Name); ok {
		e.arg(n, x.typ())
		return
	}
	switch x.Name {
	case "pid", "tid":
		e.processID(x.Name, true)
	case "usermode":
		e.userMode()
	case "has_cpid":
		e.add(asm.Mov.Imm(asm.R0, int32(b2i(e.c.child != 0))))
	case "uid", "username":
		e.add(asm.FnGetCurrentUidGid.Call(), asm.Mov.Reg32(asm.R0, asm.R0))
	case "gid":
		e.add(asm.FnGetCurrentUidGid.Call(), asm.RSh.Imm(asm.R0, 32))
	case "nsecs":
		e.add(asm.FnKtimeGetBootNs.Call())
	case "elapsed":
		e.add(asm.FnKtimeGetBootNs.Call())
		e.global(asm.R1, startTime)
		e.add(asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), asm.Sub.Reg(asm.R0, asm.R1))
	case "jiffies":
		e.add(asm.FnJiffies64.Call())
	case "cgroup":
		e.add(asm.FnGetCurrentCgroupId.Call())
	case "cpu":
		e.add(asm.FnGetSmpProcessorId.Call(), asm.Mov.Reg32(asm.R0, asm.R0))
	case "numaid":
		e.add(asm.FnGetNumaNodeId.Call(), asm.Mov.Reg32(asm.R0, asm.R0))
	case "ncpus":
		cpus, err := host.OnlineCPUs()
		if err != nil {
			e.fail(x, "%v", err)
		}
		e.add(asm.Mov.Imm(asm.R0, int32(len(cpus))))
	case "rand":
		e.add(asm.FnGetPrandomU32.Call(), asm.Mov.Reg32(asm.R0, asm.R0))
	case "curtask":
		e.add(asm.FnGetCurrentTask.Call())
	case "cpid":
		e.add(e.imm(int64(e.c.child)))
	case "ppid":
		e.parent(x)
	case "ctx":
		e.add(asm.Mov.Reg(asm.R0, asm.R6))
	case "retval":
		e.returned(x.typ())
	case "func", "probe":
		switch {
		case e.calls != nil:
			e.load(asm.R0, e.number)
		case e.cookie:
			e.add(asm.Mov.Reg(asm.R1, asm.R6), asm.FnGetAttachCookie.Call())
		default:
			e.add(asm.Mov.Imm(asm.R0, int32(e.target.ID)))
		}
	case "kstack", "ustack":
		e.stackHash(x.typ())
	default:
		e.fail(x, "%s is not a number", x.Name)
	}
}

// parent is curtask->real_parent->tgid.
func (e *emitter) parent(x *Ident) {
	var task *btf.Struct
	spec, err := e.c.kernel.types()
	if err != nil || spec.TypeByName("task_struct", &task) != nil {
		e.fail(x, "ppid needs the kernel's BTF")
	}
	up := findMember(task.Members, "real_parent", InKernel, 0, 0)
	id := findMember(task.Members, "tgid", InKernel, 0, 0)
	if up == nil || id == nil {
		e.fail(x, "ppid: struct task_struct is not as expected")
	}
	e.add(asm.FnGetCurrentTask.Call())
	e.loadPlace(spot{off: up.off}, typeU64)
	e.loadPlace(spot{off: id.off}, typeU32)
}

// stackHash leaves the id of a stack in R0, 0 if there is none. For a kernel stack it is the
// number in the kernel's own map of stacks, plus one. If another stack has that place, and for
// user stacks, it is a hash with the highest bit set, and the stack is kept under this hash. So
// no stack displaces another.
func (e *emitter) stackHash(t *Type) {
	f := e.enter()
	defer e.leave(f)
	n := t.frame() * t.Depth
	e.u.stacks[stackMap(t)] = stackSpec{n, false}
	none, done, end := e.label("nostack"), e.label("hashed"), e.label("stack")
	buf, rare := loc{}, false
	if t.Kind == KStack && e.c.kernel.stackMost() >= t.Depth {
		e.u.stacks[stackIDs(t)] = stackSpec{n, true}
		taken := e.label("taken")
		e.add(asm.Mov.Reg(asm.R1, asm.R6))
		e.mapPtr(asm.R2, stackIDs(t))
		e.add(asm.Mov.Imm(asm.R3, 0), asm.FnGetStackid.Call(), asm.JSLT.Imm(asm.R0, 0, taken), asm.Add.Imm(asm.R0, 1), asm.Ja.Label(end))
		e.here(taken)
		e.add(asm.JNE.Imm(asm.R0, -int32(unix.EEXIST), none))
		if rare = n > e.c.set.onStack; rare {
			buf = e.inRareScratch(n)
			e.takeRare(none)
		}
	}
	if !rare {
		buf = e.alloc(n)
	}
	key, unread := e.slot(), none
	if rare {
		unread = e.label("unread")
	}
	flags := int32(0)
	if t.Kind == UStack {
		flags = 1 << 8 // BPF_F_USER_STACK
	}
	if t.Format == buildIDs {
		flags |= 1 << 11 // BPF_F_USER_BUILD_ID
	}
	if buf.reg == asm.RFP {
		e.zero(buf, n) // 5.10 wants the stack initialised
	}
	e.add(asm.Mov.Reg(asm.R1, asm.R6))
	e.address(asm.R2, buf)
	e.add(asm.Mov.Imm(asm.R3, int32(n)), asm.Mov.Imm(asm.R4, flags), asm.FnGetStack.Call(), asm.JSLE.Imm(asm.R0, 0, unread))
	e.add(asm.Mov.Imm(asm.R0, int32(t.Depth)), asm.LoadImm(asm.R5, -7046029254386353131, asm.DWord)) // 2^64 / φ
	e.add(asm.Mov.Imm(asm.R4, 1))
	for i := range n / 8 { // two sums, by turns: they do not wait for each other
		sum, was := asm.R0, asm.R2
		if i%2 == 1 {
			sum, was = asm.R4, asm.R3
		}
		e.load(asm.R1, buf.at(8*i))
		if 8*i%t.frame() == 0 {
			e.add(asm.JEq.Imm(asm.R1, 0, done))
		}
		e.add(asm.Xor.Reg(sum, asm.R1), asm.Mul.Reg(sum, asm.R5),
			asm.Mov.Reg(was, sum), asm.RSh.Imm(was, 29), asm.Xor.Reg(sum, was))
	}
	e.here(done)
	e.add(asm.Mul.Reg(asm.R0, asm.R5), asm.Xor.Reg(asm.R0, asm.R4), asm.LoadImm(asm.R1, math.MinInt64, asm.DWord), asm.Or.Reg(asm.R0, asm.R1))
	e.store(key, asm.R0)
	kept := e.label("kept")
	e.lookup(stackMap(t), key)
	e.add(asm.JNE.Imm(asm.R0, 0, kept))
	e.mapPtr(asm.R1, stackMap(t))
	e.address(asm.R2, key)
	e.address(asm.R3, buf)
	e.add(asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call(), asm.JEq.Imm(asm.R0, 0, kept))
	e.lose(lostStacks)
	e.here(kept)
	if rare {
		e.releaseRare()
	}
	e.load(asm.R0, key)
	e.add(asm.Ja.Label(end))
	if rare {
		e.here(unread)
		e.releaseRare()
	}
	e.here(none)
	e.add(asm.Mov.Imm(asm.R0, 0))
	e.here(end)
}

// A stackSpec is a map of stacks: the bytes of one, and whether it is the kernel's kind.
type stackSpec struct {
	size   int
	kernel bool
}

// stackPlaces is how many stacks the kernel's map has place for.
var stackPlaces = 8192

// stackIDs is the kernel's map of stacks of a type.
func stackIDs(t *Type) string { return fmt.Sprintf("stackids%d", t.Depth) }

// stackMap is the map that keeps stacks of a type.
func stackMap(t *Type) string { return fmt.Sprintf("stacks%dx%d", t.Depth, t.frame()) }

// frame is how many bytes a frame of a stack has: an address, or a build id and an
// offset in that file.
func (t *Type) frame() int {
	if t.Format == buildIDs {
		return 32
	}
	return 8
}

// buildIDs is the form of user stacks that names files and not functions.
const buildIDs = "build_id"

// callValue leaves the value of a function in R0.
func (e *emitter) callValue(x *Call) {
	switch x.Name {
	case "ksym", "username", "strerror", "syscall_name", "kptr", "uptr", "cgroup_path", "comm", "signal_name":
		e.scalar(x.Args[0])
	case "strftime":
		e.scalar(x.Args[1])
	case "kstack":
		e.stackHash(x.typ())
	case "kaddr":
		e.add(asm.LoadImm(asm.R0, int64(e.c.kernel.address(x.Args[0].(*Str).V)), asm.DWord))
	case "cgroupid":
		id, _ := cgroupID(x.Args[0].(*Str).V)
		e.add(asm.LoadImm(asm.R0, int64(id), asm.DWord))
	case "nsecs":
		e.clock(x)
	case "strncmp":
		n, _ := e.c.constant(x.Args[2])
		e.compare(x.Args[0], x.Args[1], int(n))
	case "has_key":
		m := x.Args[0].(*MapRef)
		d := e.c.maps[m.Name]
		key := e.key(d, m)
		e.lookup(d.name, key)
		no := e.label("haskey")
		e.add(asm.JEq.Imm(asm.R0, 0, no), asm.Mov.Imm(asm.R0, 1))
		e.here(no)
	case "delete":
		gone := e.label("deleted")
		e.deleteKey(x.Args[0].(*MapRef))
		e.add(asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Imm(asm.R0, 1), asm.JEq.Imm(asm.R1, 0, gone), asm.Mov.Imm(asm.R0, 0))
		e.here(gone)
	case "bswap":
		e.scalar(x.Args[0])
		if size, ok := sizes[x.typ().Size]; ok && size != asm.Byte {
			e.add(asm.HostTo(asm.BE, asm.R0, size))
		}
	case "reg":
		e.add(asm.LoadMem(asm.R0, asm.R6, registers[x.Args[0].(*Str).V], asm.DWord))
	case "len":
		if m, ok := x.Args[0].(*MapRef); ok && m.Keys == nil {
			e.count(m)
		} else if t := x.Args[0].typ(); t.Kind == KStack || t.Kind == UStack {
			e.frames(t)
		} else {
			e.strlen(x)
		}
	case "strlen":
		e.strlen(x)
	case "find":
		e.findKey(x)
	case "globmatch":
		e.globmatch(x)
	case "skboutput":
		e.skbOutput(x)
	case "memcmp":
		e.memcmp(x)
	case "percpu_kaddr":
		e.percpu(x)
	case "uaddr":
		e.userAddress(x)
	case "write_user":
		e.writeUser(x)
	case "pid", "tid":
		e.processID(x.Name, x.Args[0].(*Ident).Name == "curr_ns")
	case "strcontains", "strstr":
		if s, ok := x.Args[1].(*Str); ok {
			e.contains(x.Args[0], s.V)
		} else {
			e.containsValue(x.Args[0], x.Args[1])
		}
		if x.Name == "strcontains" { // -1 and on becomes 0 and 1
			no := e.label("nowhere")
			e.add(asm.Mov.Reg(asm.R1, asm.R0), asm.Mov.Imm(asm.R0, 0), asm.JSLT.Imm(asm.R1, 0, no), asm.Mov.Imm(asm.R0, 1))
			e.here(no)
		}
	default:
		e.fail(x, "%s() is not a number", x.Name)
	}
}

// strlen counts the bytes before the first zero.
func (e *emitter) strlen(x *Call) {
	t := kept(x.Args[0].typ())
	l := e.alloc(t.store())
	e.value(x.Args[0], t, l)
	end := e.label("strlen")
	e.add(asm.Mov.Imm(asm.R0, 0))
	for i := range t.store() {
		e.add(asm.LoadMem(asm.R1, l.reg, int16(l.off+i), asm.Byte), asm.JEq.Imm(asm.R1, 0, end), asm.Mov.Imm(asm.R0, int32(i+1)))
	}
	e.here(end)
}

// contains leaves in R0 where a string has another one in it, -1 if nowhere. It
// compares words at every place: strings are padded with zeroes.
func (e *emitter) contains(x Expr, part string) {
	t := kept(x.typ())
	room := t.store()
	l := e.inScratch(room + 8) // the stack takes no words that are not aligned
	e.value(x, t, l)
	e.zero(l.at(room), 8)
	word := func(i int) (v, mask int64) {
		b, m := make([]byte, 8), make([]byte, 8)
		for k := range copy(b, part[i:]) {
			m[k] = 0xff
		}
		return int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(m))
	}
	compare := func(at, i int, no string) {
		v, mask := word(i)
		e.add(asm.LoadImm(asm.R2, v, asm.DWord), asm.LoadImm(asm.R3, mask, asm.DWord))
		e.load(asm.R1, l.at(at+i))
		e.add(asm.And.Reg(asm.R1, asm.R3), asm.JNE.Reg(asm.R1, asm.R2, no))
	}
	end := e.label("contained")
	first, mask := word(0)
	e.add(asm.LoadImm(asm.R4, first, asm.DWord), asm.LoadImm(asm.R5, mask, asm.DWord))
	for at := 0; at+len(part) <= room; at++ {
		no := e.label("elsewhere")
		e.load(asm.R1, l.at(at))
		e.add(asm.And.Reg(asm.R1, asm.R5), asm.JNE.Reg(asm.R1, asm.R4, no))
		for i := 8; i < len(part); i += 8 {
			compare(at, i, no)
		}
		e.add(asm.Mov.Imm(asm.R0, int32(at)), asm.Ja.Label(end))
		e.here(no)
	}
	e.add(asm.Mov.Imm(asm.R0, -1))
	e.here(end)
}

// callStmt emits a function that is called for its effect.
func (e *emitter) callStmt(x *Call) {
	a := &action{kind: x.Name, probe: e.target.Kind.String()}
	if e.target.pin != "" {
		e.toFile(x)
		return
	}
	switch x.Name {
	case "printf", "cat", "system", "errorf", "warnf":
		a.format = x.Args[0].(*Str).V
		a.verbs, _ = parseFormatString(a.format)
		a.names = keyNames(x.Args[1:])
		e.send(x, a, x.Args[1:])
	case "time":
		a.format = "%H:%M:%S\n"
		if len(x.Args) == 1 {
			a.format = x.Args[0].(*Str).V
		}
		e.send(x, a, nil)
	case "print":
		e.print(x, a)
	case "clear", "zero":
		a.m = e.c.maps[x.Args[0].(*MapRef).Name]
		e.send(x, a, nil)
	case "delete":
		m := x.Args[0].(*MapRef)
		d := e.c.maps[m.Name]
		if m.Keys == nil && d.keyed {
			a.kind, a.m = "clear", d
			e.send(x, a, nil)
			return
		}
		e.deleteKey(m)
	case "unwatch":
		e.send(x, a, x.Args)
	case "exit":
		e.send(x, a, x.Args)
		e.add(asm.Ja.Label(e.out))
	case "join":
		e.join(x, a)
	case "signal":
		e.scalar(x.Args[0])
		e.add(asm.Mov.Reg(asm.R1, asm.R0), asm.FnSendSignal.Call())
	case "signal_thread":
		e.scalar(x.Args[0])
		e.add(asm.Mov.Reg(asm.R1, asm.R0), asm.FnSendSignalThread.Call())
	case "debugf":
		e.debugf(x)
	case "write_user":
		e.writeUser(x)
	case "skboutput":
		e.skbOutput(x)
	case "override":
		e.override(x)
	case "fail":
		e.refuse(x)
	default:
		if !functions[x.Name].stmt {
			e.discard(x)
		}
	}
}

// deleteKey leaves 0 in R0 if there was such a key.
func (e *emitter) deleteKey(m *MapRef) {
	d := e.c.maps[m.Name]
	key := e.key(d, m)
	e.mapPtr(asm.R1, d.name)
	e.address(asm.R2, key)
	e.add(asm.FnMapDeleteElem.Call())
}

func (e *emitter) print(x *Call, a *action) {
	if len(x.Args) > 1 {
		a.top, _ = e.c.constant(x.Args[1])
	}
	if len(x.Args) > 2 {
		a.div, _ = e.c.constant(x.Args[2])
	}
	m, ok := x.Args[0].(*MapRef)
	if !ok {
		a.kind = "value"
		a.names = keyNames(x.Args)
		e.send(x, a, x.Args)
		return
	}
	a.m = e.c.maps[m.Name]
	if m.Keys == nil {
		e.send(x, a, nil)
		return
	}
	a.key = true
	args := m.Keys
	if !a.m.value.aggregate() {
		args = append(append([]Expr{}, m.Keys...), m)
	}
	e.sendAs(x, a, args, func(i int) *Type {
		if i < len(a.m.keys) {
			return a.m.keys[i]
		}
		return a.m.value
	})
}

// send writes the record of an action into the ring.
func (e *emitter) send(x *Call, a *action, args []Expr) {
	e.sendAs(x, a, args, func(i int) *Type { return kept(args[i].typ()) })
}

// kept is the type in which a value is sent: an array of characters is sent as a string.
func kept(t *Type) *Type {
	if t.charArray() {
		return stringOf(t.Size)
	}
	return t
}

func (e *emitter) sendAs(x *Call, a *action, args []Expr, typ func(int) *Type) {
	size := recordHead
	for i := range args {
		t := typ(i)
		a.types = append(a.types, t)
		a.texts = append(a.texts, nil)
		if s, ok := args[i].(*Str); ok {
			a.texts[i] = &s.V
		}
		size += t.store()
	}
	l := e.alloc(size)
	at := l.at(recordHead)
	for i, arg := range args {
		e.value(arg, a.types[i], at)
		at = at.at(a.types[i].store())
	}
	e.output(e.u.action(x, a), l, size)
}

// action numbers an action. The same call with the same types is one, for
// however many targets it is compiled.
func (u *unit) action(x *Call, a *action) int {
	var key strings.Builder
	fmt.Fprintf(&key, "%p %s %t", x, a.kind, a.probe == End.String()) // what END does counts after exit() too
	for _, t := range a.types {
		fmt.Fprintf(&key, " %s/%d/%v/%d", t, t.store(), t.Signed, t.Depth)
	}
	if id, ok := u.known[key.String()]; ok {
		return id
	}
	u.actions = append(u.actions, a)
	u.known[key.String()] = len(u.actions) - 1
	return len(u.actions) - 1
}

func (e *emitter) output(id int, l loc, size int) {
	e.add(e.imm(int64(id)))
	e.store(l, asm.R0)
	if e.u.stamped {
		e.add(asm.FnKtimeGetNs.Call())
		e.store(l.at(8), asm.R0)
	} else {
		e.zero(l.at(8), 8)
	}
	ok := e.label("sent")
	e.mapPtr(asm.R1, mapRing)
	e.address(asm.R2, l)
	e.add(asm.Mov.Imm(asm.R3, int32(size)), asm.Mov.Imm(asm.R4, 0), asm.FnRingbufOutput.Call(), asm.JEq.Imm(asm.R0, 0, ok))
	e.lose(lostEvents)
	e.here(ok)
}

// join sends the strings of a list that ends with a null pointer.
func (e *emitter) join(x *Call, a *action) {
	a.format = " "
	if len(x.Args) == 2 {
		a.format = x.Args[1].(*Str).V
	}
	space := x.Args[0].typ().Space
	size := recordHead + joinMost*joinLen
	l := e.alloc(size)
	base, p := e.slot(), e.slot()
	e.scalar(x.Args[0])
	e.store(base, asm.R0)
	for i := range joinMost { // an empty string ends the list
		e.add(storeImm(l.reg, l.off+recordHead+i*joinLen, 0))
	}
	end := e.label("joined")
	for i := range joinMost {
		e.load(asm.R3, base)
		e.add(asm.Add.Imm(asm.R3, int32(8*i)))
		e.readTo(p, 8, space)
		e.load(asm.R3, p)
		e.add(asm.JEq.Imm(asm.R3, 0, end))
		e.readStringTo(l.at(recordHead+i*joinLen), joinLen, space)
	}
	e.here(end)
	e.output(e.u.action(x, a), l, size)
}

// mapSeen is the processes of which user addresses have been kept.
const mapSeen = "seen"

// seen sends the id of a process, which is in R0, to user space when one of its addresses is kept
// for the first time: the process may be gone when the address is printed.
func (e *emitter) seen() {
	f := e.enter()
	defer e.leave(f)
	key, rec := e.slot(), e.alloc(recordHead+8)
	e.store(key, asm.R0)
	e.store(rec.at(recordHead), asm.R0)
	known := e.label("seen")
	e.lookup(mapSeen, key)
	e.add(asm.JNE.Imm(asm.R0, 0, known))
	e.mapPtr(asm.R1, mapSeen)
	e.address(asm.R2, key)
	e.address(asm.R3, key)
	e.add(asm.Mov.Imm(asm.R4, 0), asm.FnMapUpdateElem.Call())
	e.output(e.u.action(nil, &action{kind: "seen", types: []*Type{typeU64}}), rec, recordHead+8)
	e.here(known)
	e.load(asm.R0, key)
}
