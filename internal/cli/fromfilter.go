// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
)

// A rowFilter applies a filter to rows that the kernel tests in a live run. As there,
// an unknown value does not match.
type rowFilter struct {
	flag    string
	columns []string // at least one must match
	match   func(*row.Cell) bool
}

// rows makes the filters for rows of a recording, nil if there is none. It refuses a filter
// if the rows lack its column.
func (f *filterFlags) rows(r *run, c *record.Contents, names *record.Names) (func(*row.Row) bool, error) {
	filters, err := f.onRows(names)
	if err != nil {
		return nil, err
	}
	more, err := r.bounds()
	if err != nil {
		return nil, err
	}
	filters = append(filters, more...)
	for i := range filters {
		if err := filters[i].possible(r, c); err != nil {
			return nil, err
		}
	}
	if len(filters) == 0 {
		return nil, nil
	}
	return func(r *row.Row) bool {
		for i := range filters {
			if !filters[i].matches(r) {
				return false
			}
		}
		return true
	}, nil
}

func (f *rowFilter) matches(r *row.Row) bool {
	for _, id := range f.columns {
		if c := r.Get(id); c != nil && c.Kind != row.Null && f.match(c) {
			return true
		}
	}
	return false
}

// possible refuses a filter that the rows have no column for.
func (f *rowFilter) possible(r *run, c *record.Contents) error {
	if slices.Contains(c.Filters, "--"+f.flag) {
		return nil
	}
	for _, s := range c.Schemas {
		if r.flags.view != "" && s.View != r.flags.view {
			continue
		}
		if !slices.ContainsFunc(f.columns, s.Has) {
			value := ""
			if g := r.flags.given.Lookup(f.flag); g != nil && g.Value.Type() != "bool" {
				value = "=" + strings.Trim(g.Value.String(), "[]")
			}
			return tool.Usagef("--%s: rows of %s in the recording lack that column: 'seine record %s --dir DIR' would have recorded only these rows", f.flag, r.tool.Name, quoted(r.asked()+" --"+f.flag+value))
		}
	}
	return nil
}

// onRows makes filters of the flags. names are those of the recorded machine.
func (f *filterFlags) onRows(names *record.Names) (out []rowFilter, err error) {
	add := func(given bool, flag string, columns []string, make func() (func(*row.Cell) bool, error)) {
		if !given || err != nil {
			return
		}
		match, e := make()
		if e != nil {
			err = tool.Usagef("--%s: %v", flag, e)
			return
		}
		out = append(out, rowFilter{flag, columns, match})
	}
	if f.ip4 && f.ip6 {
		return nil, tool.Usagef("-4 and -6 exclude each other: give one of them")
	}
	add(f.pid != "", "pid", []string{"pid"}, func() (func(*row.Cell) bool, error) { return numbersIn(f.pid) })
	add(f.comm != "", "comm", []string{"comm"}, func() (func(*row.Cell) bool, error) { return glob(f.comm) })
	add(f.uid != "", "uid", []string{"uid"}, func() (func(*row.Cell) bool, error) { return f.users(names) })
	add(f.cgroup != "", "cgroup", []string{"cgroup"}, func() (func(*row.Cell) bool, error) {
		under := path.Clean("/" + strings.TrimPrefix(strings.TrimPrefix(f.cgroup, "/sys/fs/cgroup"), "/"))
		return func(c *row.Cell) bool {
			return c.S == under || strings.HasPrefix(c.S, strings.TrimSuffix(under, "/")+"/")
		}, nil
	})
	add(f.container != "", "container", []string{"container"}, func() (func(*row.Cell) bool, error) {
		return func(c *row.Cell) bool { return c.S == f.container }, nil
	})
	add(len(f.netns) > 0, "netns", []string{"netns"}, func() (func(*row.Cell) bool, error) { return f.namespaces(names) })
	ends := func(local, remote bool, ids ...string) (columns []string) {
		for _, id := range ids {
			isLocal := id[0] == 'l'
			if local && remote || local && isLocal || remote && !isLocal && id[0] == 'r' {
				columns = append(columns, id)
			}
		}
		return columns
	}
	for _, p := range []struct {
		flag, value   string
		local, remote bool
	}{{"port", f.port, true, true}, {"lport", f.lport, true, false}, {"rport", f.rport, false, true}} {
		add(p.value != "", p.flag, ends(p.local, p.remote, "lport", "rport", "sport", "dport"), func() (func(*row.Cell) bool, error) { return portsIn(p.value) })
	}
	for _, a := range []struct {
		flag, value   string
		local, remote bool
	}{{"addr", f.addr, true, true}, {"laddr", f.laddr, true, false}, {"raddr", f.raddr, false, true}} {
		add(a.value != "", a.flag, ends(a.local, a.remote, "laddr", "raddr", "saddr", "daddr"), func() (func(*row.Cell) bool, error) { return netsWith(a.value) })
	}
	addresses := []string{"laddr", "raddr", "saddr", "daddr"}
	add(f.ip4, "ipv4", addresses, func() (func(*row.Cell) bool, error) {
		return func(c *row.Cell) bool { return c.Kind == row.Addr && c.IP().Is4() }, nil
	})
	add(f.ip6, "ipv6", addresses, func() (func(*row.Cell) bool, error) {
		return func(c *row.Cell) bool { return c.Kind == row.Addr && c.IP().Is6() }, nil
	})
	add(f.family != "", "family", []string{"family"}, func() (func(*row.Cell) bool, error) {
		list, err := parseNames(f.family, kern.Families)
		return named(list, func(n uint16) string { return kern.Family(n).String() }), err
	})
	add(f.proto != "", "proto", []string{"proto"}, func() (func(*row.Cell) bool, error) {
		list, err := parseNames(f.proto, kern.Protos)
		return named(list, func(n uint16) string { return kern.Proto(n).String() }), err
	})
	add(f.dev != "", "dev", []string{"dev"}, func() (func(*row.Cell) bool, error) {
		return func(c *row.Cell) bool { return c.S == f.dev }, nil
	})
	return out, err
}

func named(list []uint16, name func(uint16) string) func(*row.Cell) bool {
	var all []string
	for _, n := range list {
		all = append(all, name(n))
	}
	return func(c *row.Cell) bool { return slices.Contains(all, c.S) }
}

func numbersIn(s string) (func(*row.Cell) bool, error) {
	list, err := splitList(s)
	var all []uint64
	for _, w := range list {
		n, err := strconv.ParseUint(w, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", w)
		}
		all = append(all, n)
	}
	return func(c *row.Cell) bool { return c.Kind == row.Uint && slices.Contains(all, c.N) }, err
}

// glob matches names as the kernel side does: with shell patterns, on the part of the name that
// the kernel keeps.
func glob(s string) (func(*row.Cell) bool, error) {
	g, err := tool.ParseGlob(s)
	if err != nil {
		return nil, err
	}
	return func(c *row.Cell) bool { return g.Match(c.S) }, nil
}

// users matches user ids, or names that the recorded machine had for them.
func (f *filterFlags) users(names *record.Names) (func(*row.Cell) bool, error) {
	list, err := splitList(f.uid)
	if err != nil {
		return nil, err
	}
	return func(c *row.Cell) bool {
		return c.Kind == row.Uint && (slices.Contains(list, strconv.FormatUint(c.N, 10)) || slices.Contains(list, names.Users[c.N]))
	}, nil
}

// namespaces matches inodes, or names that the recorded machine had for them.
func (f *filterFlags) namespaces(names *record.Names) (func(*row.Cell) bool, error) {
	var all []string
	for _, one := range f.netns {
		list, err := splitList(one)
		if err != nil {
			return nil, err
		}
		for _, w := range list {
			all = append(all, strings.TrimPrefix(w, "/run/netns/"))
		}
	}
	return func(c *row.Cell) bool {
		return c.Kind == row.Uint && (slices.Contains(all, strconv.FormatUint(c.N, 10)) || slices.Contains(all, names.Netns[c.N]))
	}, nil
}

func portsIn(s string) (func(*row.Cell) bool, error) {
	ranges, err := parsePorts(s)
	return func(c *row.Cell) bool {
		return c.Kind == row.Uint && slices.ContainsFunc(ranges, func(r tool.PortRange) bool { return c.N >= uint64(r.From) && c.N <= uint64(r.To) })
	}, err
}

func netsWith(s string) (func(*row.Cell) bool, error) {
	var w tool.Wanted
	err := addNets(&w, s, tool.FilterAddr)
	return func(c *row.Cell) bool {
		return c.Kind == row.Addr && slices.ContainsFunc(w.Nets, func(n tool.Net) bool { return n.Prefix.Contains(unmapped(c.IP())) })
	}, err
}

func unmapped(a netip.Addr) netip.Addr { return a.Unmap() }

// bounds makes filters of --min and --max on the latency column.
func (r *run) bounds() (out []rowFilter, err error) {
	values := config(r.cfg)
	for _, flag := range onRows {
		if values[flag] == "" {
			continue
		}
		d, err := time.ParseDuration(values[flag])
		if err != nil || !r.flags.given.Changed(flag) {
			continue
		}
		column := ""
		for _, s := range r.prepared.Schemas {
			for i := range s.Columns {
				if c := &s.Columns[i]; c.Age && (column == "" || c.ID == "latency_us") {
					column = c.ID
				}
			}
		}
		if column == "" {
			return nil, tool.Usagef("--%s: rows of %s have no latency: 'seine record %s --dir DIR' would have recorded only these rows", flag, r.tool.Name, quoted(r.asked()))
		}
		out = append(out, rowFilter{flag, []string{column}, func(c *row.Cell) bool {
			if flag == "min" {
				return c.N >= uint64(d)
			}
			return c.N <= uint64(d)
		}})
	}
	return out, nil
}
