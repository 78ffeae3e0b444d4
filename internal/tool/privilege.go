// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"seine/internal/host"
	"seine/internal/probe"
	"seine/internal/row"
)

// A Privilege is a capability and its purpose.
type Privilege struct {
	Cap host.Capability
	Why string
}

// Needs lists the capabilities that the tool needs on this kernel, as far as can be found out
// without them, and those that make it see more or cost less. CAP_SYS_ADMIN includes the first
// two.
func (p *Prepared) Needs() (must, better []Privilege) {
	must = []Privilege{{host.CapBPF, "loading programs"}, {host.CapPerfmon, "attaching them"}}
	add := func(to *[]Privilege, ps ...Privilege) {
		for _, one := range ps {
			if !slices.Contains(*to, one) {
				*to = append(*to, one)
			}
		}
	}
	k, err := probe.Running()
	if err != nil {
		return must, nil
	}
	for i, c := range probe.Predict(k, p.spec, p.Points, p.opts.Force) {
		// Another way may need less.
		to := &must
		for _, w := range p.Points[i].WaysIn(p.spec) {
			if k.Fits(p.spec, w) == nil && p.takes(k, w.Programs) == nil {
				to = &better
			}
		}
		if p.Points[i].Optional {
			to = &better
		}
		add(to, p.takes(k, c.Programs)...)
	}
	add(&better, p.Tool.Keeps...)
	add(&better, naming(p.Schemas, columns(p.Schemas, true))...)
	if host.MemlockLimited() {
		add(&better, Privilege{host.CapSysResource, "this kernel charges maps to RLIMIT_MEMLOCK"})
	}
	return must, slices.DeleteFunc(better, func(b Privilege) bool {
		return slices.ContainsFunc(must, func(m Privilege) bool { return m.Cap == b.Cap })
	})
}

// takes lists the capabilities that attaching needs besides the first two.
func (p *Prepared) takes(k *probe.Kernel, programs []string) (out []Privilege) {
	for _, name := range programs {
		switch kind, target, _ := strings.Cut(p.spec.Programs[name].SectionName, "/"); kind {
		case "tp_btf":
			if _, ok := k.Types.Tracepoint(target); !ok {
				out = append(out, Privilege{host.CapSysAdmin, "tracepoints of modules by their BTF"})
			}
		case "raw_tp":
			if codeNames(p.spec) != nil {
				out = append(out, Privilege{host.CapSyslog, "where functions of the kernel lie"})
			}
		case "cgroup", "cgroup_skb", "sockops":
			out = append(out, Privilege{host.CapNetAdmin, "programs on cgroups"})
			if path, err := host.Cgroup2(); err != nil || isPrivate(path) {
				out = append(out, Privilege{host.CapSysAdmin, "cgroup2 is not mounted"})
			}
		case "tracepoint":
			path, err := host.Tracefs()
			if err != nil || isPrivate(path) {
				out = append(out, Privilege{host.CapSysAdmin, "tracefs is not mounted"})
			} else if st, err := os.Stat(path); err != nil || st.Mode()&0o1 == 0 {
				out = append(out, Privilege{host.CapDACReadSearch, "tracefs is root's alone"})
			}
		}
	}
	return out
}

func isPrivate(path string) bool { return strings.HasPrefix(path, "/proc/self/fd/") }

// naming lists the capabilities that the names in rows need, for the columns in use.
func naming(schemas []*row.Schema, use map[string]bool) (out []Privilege) {
	as := map[string]bool{}
	for _, s := range schemas {
		for _, c := range s.Columns {
			as[c.As] = as[c.As] || use[c.ID]
		}
	}
	if as["ustack"] {
		const why = "symbols of other users' processes"
		out = append(out, Privilege{host.CapSysPtrace, why}, Privilege{host.CapDACReadSearch, why})
	} else if as["cgroup"] || as["container"] {
		out = append(out, Privilege{host.CapDACReadSearch, "names of control groups"})
	}
	if as["kstack"] || as["ksym"] || as["layer"] {
		out = append(out, Privilege{host.CapSyslog, "symbols of the kernel"})
	}
	return out
}

// Shown is the columns that a table shows unless others are asked for.
func (s *Session) Shown() map[string]bool { return columns(s.schemas, false) }

// All is every column.
func (s *Session) All() map[string]bool { return columns(s.schemas, true) }

func columns(schemas []*row.Schema, all bool) map[string]bool {
	use := map[string]bool{}
	for _, s := range schemas {
		for i, c := range s.Columns {
			use[c.ID] = use[c.ID] || all || slices.Contains(s.Show, i)
		}
	}
	return use
}

// Keeps lists the capabilities that the session still needs after it is attached, for the columns
// in use.
func (s *Session) Keeps(use map[string]bool) []Privilege {
	var out []Privilege
	add := func(ps ...Privilege) { // each capability once, with what it is first needed for
		for _, p := range ps {
			if !slices.Contains(capsOf(out), p.Cap) {
				out = append(out, p)
			}
		}
	}
	add(naming(s.schemas, use)...)
	add(s.keeps...)
	if s.late {
		const why = "programs to attach as processes come"
		add(Privilege{host.CapBPF, why}, Privilege{host.CapPerfmon, why}, Privilege{host.CapSysAdmin, why},
			Privilege{host.CapSysPtrace, why}, Privilege{host.CapDACReadSearch, why})
	} else if s.readsNeed() {
		c := host.CapBPF
		if !host.HasCap(c) {
			c = host.CapSysAdmin
		}
		add(Privilege{c, "reading maps, which needs it before Linux 6.0"})
	}
	return out
}

// GiveUp drops all capabilities of the process but Keeps, for good, and returns those that it
// still has. Unless the process has to look into others, the kernel also refuses it to write or
// run anything.
func (s *Session) GiveUp(use map[string]bool) ([]Privilege, error) { return giveUp(s.Keeps(use)) }

// GiveUp drops all capabilities but those that the sessions keep. No tool can be added after it.
func (e *Engine) GiveUp(use func(*Session) map[string]bool) ([]Privilege, error) {
	var keeps []Privilege
	for _, s := range e.Sessions() {
		for _, p := range s.Keeps(use(s)) {
			if !slices.Contains(capsOf(keeps), p.Cap) {
				keeps = append(keeps, p)
			}
		}
	}
	return giveUp(keeps)
}

func giveUp(keeps []Privilege) ([]Privilege, error) {
	host.Cgroup2() // names of cgroups are looked up there, and it may have to be mounted
	kept := slices.DeleteFunc(slices.Clone(keeps), func(p Privilege) bool { return !host.HasCap(p.Cap) })
	if err := host.Keep(capsOf(keeps)...); err != nil {
		return kept, err
	}
	if slices.Contains(capsOf(keeps), host.CapSysPtrace) {
		return kept, nil
	}
	if err := host.Lock(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return kept, err
	}
	return kept, nil
}

func capsOf(ps []Privilege) (out []host.Capability) {
	for _, p := range ps {
		out = append(out, p.Cap)
	}
	return out
}

// attachesLate says whether programs of these kinds are attached to processes,
// or processors, that come while the tool runs.
func attachesLate(spec *ebpf.CollectionSpec) bool {
	for _, p := range spec.Programs {
		kind, _, _ := strings.Cut(p.SectionName, "/")
		if strings.HasPrefix(kind, "uprobe") || strings.HasPrefix(kind, "uretprobe") || kind == "perf_event" || kind == "usdt" {
			return true
		}
	}
	return false
}

// readsNeed tries whether reading maps needs a capability.
func (s *Session) readsNeed() (denied bool) {
	for _, m := range s.Maps {
		if t := m.Type(); t != ebpf.Array && t != ebpf.Hash && t != ebpf.LRUHash {
			continue
		}
		err := host.Without(func() {
			_, err := m.LookupBytes(make([]byte, m.KeySize()))
			denied = errors.Is(err, os.ErrPermission)
		})
		return denied || err != nil
	}
	return false
}
