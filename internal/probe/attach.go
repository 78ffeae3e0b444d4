// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// kindOf is the first word of a program's section.
func kindOf(ps *ebpf.ProgramSpec) string {
	kind, _, _ := strings.Cut(ps.SectionName, "/")
	return kind
}

// bySection attaches a program where its section says. An iterator over the elements
// of a map finds the map by the last part of the program's name.
func bySection(prog *ebpf.Program, ps *ebpf.ProgramSpec, maps map[string]*ebpf.Map) (io.Closer, error) {
	kind, target, _ := strings.Cut(ps.SectionName, "/")
	switch kind {
	case "tp_btf", "fentry", "fexit":
		return link.AttachTracing(link.TracingOptions{Program: prog})
	case "raw_tp":
		return link.AttachRawTracepoint(link.RawTracepointOptions{Name: target, Program: prog})
	case "tracepoint":
		group, name, _ := strings.Cut(target, "/")
		return tracepoint(prog, group, name)
	case "kprobe":
		return link.Kprobe(target, prog, nil)
	case "kretprobe":
		return link.Kretprobe(target, prog, nil)
	case "iter":
		o := link.IterOptions{Program: prog}
		if target == "bpf_map_elem" {
			name := ps.Name[strings.LastIndex(ps.Name, "__")+2:]
			if o.Map = maps[name]; o.Map == nil {
				return nil, fmt.Errorf("no map %s to walk over", name)
			}
		}
		return link.AttachIter(o)
	case "cgroup", "cgroup_skb", "sockops":
		root, err := host.Cgroup2()
		if err != nil {
			return nil, err
		}
		return link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ps.AttachType, Program: prog})
	}
	return nil, fmt.Errorf("section %q: no such way", ps.SectionName)
}

// perfEvent is a program on a perf event. Closing the event detaches it.
type perfEvent int

func (p perfEvent) Close() error { return unix.Close(int(p)) }

// tracepoint attaches by perf_event_open, with the number read from a tracefs
// that may be mounted for this process alone; cilium/ebpf looks only at the
// usual places.
func tracepoint(prog *ebpf.Program, group, name string) (io.Closer, error) {
	id, err := host.TracepointID(group, name)
	if err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Sample_type: unix.PERF_SAMPLE_RAW, Sample: 1, Wakeup: 1,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("perf event of %s:%s: %w", group, name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("program on %s:%s: %w", group, name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("enabling %s:%s: %w", group, name, err)
	}
	return perfEvent(fd), nil
}

// Reason is an error in one line: for an error of the verifier, its last line.
func Reason(err error) string {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) {
		for i := len(ve.Log) - 1; i >= 0; i-- {
			line := strings.TrimSpace(ve.Log[i])
			if line != "" && !strings.HasPrefix(line, "processed ") {
				return fmt.Sprintf("the verifier refuses it (%v): %s", ve.Cause, line)
			}
		}
		return fmt.Sprintf("the verifier refuses it: %v", ve.Cause)
	}
	msg := strings.ReplaceAll(err.Error(), "\n", " ")
	msg = strings.ReplaceAll(msg, ErrNotSupported.Error()+": ", "")
	// cilium/ebpf suggests MEMLOCK for every EPERM.
	msg, _, _ = strings.Cut(msg, " (MEMLOCK")
	return msg
}
