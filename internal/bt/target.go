// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A ProbeKind is a type of probe.
type ProbeKind uint8

// The probe types.
const (
	Begin ProbeKind = iota
	End
	Interval
	Profile
	Software
	Hardware
	Tracepoint
	RawTracepoint
	Kprobe
	Kretprobe
	Fentry
	Fexit
	Uprobe
	Uretprobe
	Usdt
	Watch
	Iter
	Self
	Bench
	Test
)

var kindNames = map[string]ProbeKind{
	"BEGIN": Begin, "begin": Begin, "END": End, "end": End,
	"interval": Interval, "i": Interval, "profile": Profile, "p": Profile,
	"software": Software, "s": Software, "hardware": Hardware, "h": Hardware,
	"tracepoint": Tracepoint, "t": Tracepoint, "rawtracepoint": RawTracepoint, "rt": RawTracepoint,
	"kprobe": Kprobe, "k": Kprobe, "kretprobe": Kretprobe, "kr": Kretprobe,
	"fentry": Fentry, "fexit": Fexit, "f": Fentry, "fr": Fexit, "kfunc": Fentry, "kretfunc": Fexit,
	"uprobe": Uprobe, "u": Uprobe, "uretprobe": Uretprobe, "ur": Uretprobe,
	"usdt": Usdt, "U": Usdt,
	"watchpoint": Watch, "w": Watch, "asyncwatchpoint": Watch, "aw": Watch, "iter": Iter, "it": Iter, "self": Self, "bench": Bench, "test": Test,
}

func (k ProbeKind) String() string {
	return [...]string{
		"BEGIN", "END", "interval", "profile", "software", "hardware", "tracepoint", "rawtracepoint",
		"kprobe", "kretprobe", "fentry", "fexit", "uprobe", "uretprobe", "usdt", "watchpoint", "iter", "self", "bench", "test",
	}[k]
}

// returns says whether the probe fires when a function returns.
func (k ProbeKind) returns() bool { return k == Kretprobe || k == Fexit || k == Uretprobe }

// function says whether the probe is on a kernel function.
func (k ProbeKind) function() bool { return k >= Kprobe && k <= Fexit }

// user says whether the probe is in code of user space.
func (k ProbeKind) user() bool { return k == Uprobe || k == Uretprobe || k == Usdt }

// ownTask says whether the current task is seine's, so that -p does not apply.
func (k ProbeKind) ownTask() bool { return k <= Interval || k == Iter || k >= Self }

// A Target is one place that a clause is attached to.
type Target struct {
	Kind  ProbeKind // as written
	Way   ProbeKind // as attached: a kprobe may become a fentry
	Probe string    // full name: kprobe:tcp_sendmsg
	Func  string    // what the builtin func prints

	Group, Name string // tracepoint; Name is also the kernel function
	Module      string
	Offset      uint64
	Path        string // of a uprobe
	Addr        uint64 // uprobe without a symbol
	Every       time.Duration
	Hz          uint64 // profile
	Count       uint64 // software and hardware events
	Event       uint64
	ID          int // in the table of names, both for func and for probe
	Wild        bool

	bpf    ebpf.ProgramID // whose function it is; 0: the kernel's
	pin    string         // of an iterator, whose output is then the file's
	usdt   *usdtProbe
	watch  *watchpoint
	iter   *btf.Struct // what the program gets
	signal unix.Signal
	format []tpField
	proto  *btf.FuncProto // nil: not known or not asked for
	noType error          // why proto is nil
	pos    AttachPoint
}
