// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"seine/internal/enrich"
	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/row"
	"seine/internal/tool"
)

// filterFlags holds the filters of the command line.
type filterFlags struct {
	pid, comm, uid, cgroup, container string
	port, lport, rport                string
	addr, laddr, raddr                string
	family, proto                     string
	netns                             []string
	dev                               string
	ip4, ip6                          bool
}

// declare adds all filters to fs. Filters that t does not support are hidden from
// help, and are refused with a reason.
func (f *filterFlags) declare(fs *pflag.FlagSet, t *tool.Tool, short map[string]string) {
	has := t.Filters
	some := func(known []string, otherwise string) string {
		if len(known) > 0 {
			return strings.Join(known, ",")
		}
		return otherwise
	}
	str := func(p *string, name, letter, help string, need tool.Filter) {
		if s := short[name]; s != "" {
			letter = s
		}
		fs.StringVarP(p, name, letter, "", help)
		fs.Lookup(name).Hidden = has&need == 0
	}
	str(&f.pid, "pid", "p", "only these processes: 17,4218", tool.FilterPID)
	str(&f.comm, "comm", "", "only processes whose name matches one of these: nginx,python*", tool.FilterComm)
	str(&f.uid, "uid", "u", "only these users, by name or number", tool.FilterUID)
	str(&f.cgroup, "cgroup", "", "only processes in this cgroup and below it", tool.FilterCgroup)
	str(&f.container, "container", "", "only this container, by name or id", tool.FilterCgroup)
	fs.StringArrayVar(&f.netns, "netns", nil, "only this network namespace: path, name, inode or pid")
	fs.Lookup("netns").Hidden = has&tool.FilterNetns == 0
	str(&f.port, "port", "", "only these ports at either end: 80,8000-8100", tool.FilterPort)
	str(&f.lport, "lport", "", "only these local ports", tool.FilterLport)
	str(&f.rport, "rport", "", "only these remote ports", tool.FilterRport)
	str(&f.addr, "addr", "", "only these addresses or networks at either end: 10.0.0.0/8,::1", tool.FilterAddr)
	str(&f.laddr, "laddr", "", "only these local addresses", tool.FilterLaddr)
	str(&f.raddr, "raddr", "", "only these remote addresses", tool.FilterRaddr)
	fs.BoolVarP(&f.ip4, "ipv4", "4", false, "only IPv4, also over IPv6 sockets")
	fs.BoolVarP(&f.ip6, "ipv6", "6", false, "only IPv6")
	fs.Lookup("ipv4").Hidden = has&tool.FilterIP4 == 0
	fs.Lookup("ipv6").Hidden = has&tool.FilterIP6 == 0
	str(&f.family, "family", "", "only sockets of these families: "+some(t.Sockets.Families, "inet,inet6,unix"), tool.FilterFamily)
	str(&f.proto, "proto", "", "only these protocols: "+some(t.Sockets.Protos, "tcp,udp"), tool.FilterProto)
	str(&f.dev, "dev", "", "only this network interface", tool.FilterDev)
}

// wanted resolves the filters and refuses those that t does not support.
func (f *filterFlags) wanted(t *tool.Tool) (w tool.Wanted, err error) {
	if f.ip4 && f.ip6 {
		return w, tool.Usagef("-4 and -6 exclude each other: give one of them")
	}
	if f.cgroup != "" && f.container != "" {
		return w, tool.Usagef("--cgroup and --container: give one of them")
	}
	for _, step := range []struct {
		given bool
		name  string
		bit   tool.Filter
		parse func() error
	}{
		{f.pid != "", "pid", tool.FilterPID, func() (err error) { w.PIDs, err = parsePIDs(f.pid); return }},
		{f.comm != "", "comm", tool.FilterComm, func() (err error) { w.Comm, err = tool.ParseGlob(f.comm); return }},
		{f.uid != "", "uid", tool.FilterUID, func() (err error) { w.UIDs, err = parseUIDs(f.uid); return }},
		{f.cgroup != "", "cgroup", tool.FilterCgroup, func() (err error) { w.Cgroup, w.CgroupLevel, err = host.CgroupID(f.cgroup); return }},
		{f.container != "", "container", tool.FilterCgroup, func() error { return f.resolveContainer(&w) }},
		{len(f.netns) > 0, "netns", tool.FilterNetns, func() (err error) { w.Netns, err = parseNetns(f.netns); return }},
		{f.port != "", "port", tool.FilterPort, func() (err error) { w.Ports[0], err = parsePorts(f.port); return }},
		{f.lport != "", "lport", tool.FilterLport, func() (err error) { w.Ports[1], err = parsePorts(f.lport); return }},
		{f.rport != "", "rport", tool.FilterRport, func() (err error) { w.Ports[2], err = parsePorts(f.rport); return }},
		{f.addr != "", "addr", tool.FilterAddr, func() error { return addNets(&w, f.addr, tool.FilterAddr) }},
		{f.laddr != "", "laddr", tool.FilterLaddr, func() error { return addNets(&w, f.laddr, tool.FilterLaddr) }},
		{f.raddr != "", "raddr", tool.FilterRaddr, func() error { return addNets(&w, f.raddr, tool.FilterRaddr) }},
		{f.ip4, "ipv4", tool.FilterIP4, func() error { return nil }},
		{f.ip6, "ipv6", tool.FilterIP6, func() error { return nil }},
		{f.family != "", "family", tool.FilterFamily, func() (err error) { w.Families, err = parseNames(f.family, kern.Families); return }},
		{f.proto != "", "proto", tool.FilterProto, func() (err error) { w.Protos, err = parseNames(f.proto, kern.Protos); return }},
		{f.dev != "", "dev", tool.FilterDev, func() error { w.Dev = f.dev; return nil }},
	} {
		if !step.given {
			continue
		}
		if t.Filters&step.bit == 0 {
			return w, tool.Usagef("--%s: %s cannot be filtered by that", step.name, t.Name)
		}
		if err := step.parse(); errors.As(err, new(errPermission)) {
			return w, err
		} else if err != nil {
			return w, tool.Usagef("--%s: %v", step.name, err)
		}
		w.On |= step.bit
	}
	if err := f.possible(t, &w); err != nil {
		return w, err
	}
	if f.family == "" && len(t.Families) > 0 {
		w.Families = t.Families
		w.On |= tool.FilterFamily
	}
	return w, nil
}

// possible refuses families and protocols that t never has rows of. A run would
// wait for them forever.
func (f *filterFlags) possible(t *tool.Tool, w *tool.Wanted) error {
	var families, protos []string
	for _, n := range w.Families {
		families = append(families, kern.Family(n).String())
	}
	for _, n := range w.Protos {
		protos = append(protos, kern.Proto(n).String())
	}
	if err := known(t, "family", f.family, families, t.Sockets.Families); err != nil {
		return err
	}
	if err := known(t, "proto", f.proto, protos, t.Sockets.Protos); err != nil {
		return err
	}
	// The protocol of a socket that is not an IP socket is its family.
	if len(t.Sockets.Families) > 0 && !slices.ContainsFunc(w.Protos, func(p uint16) bool { return kern.Proto(p).OfIP() }) {
		return known(t, "proto", f.proto, protos, []string{"protocols of IP"})
	}
	return nil
}

// known refuses names of which t has none.
func known(t *tool.Tool, flag, given string, asked, has []string) error {
	if len(asked) == 0 || len(has) == 0 || slices.ContainsFunc(asked, func(a string) bool { return slices.Contains(has, a) }) {
		return nil
	}
	hint := ""
	for _, a := range asked {
		if other := t.Sockets.Else[a]; other != "" {
			hint = ": use " + other
			break
		}
	}
	return tool.Usagef("--%s %s: %s has only rows of %s%s", flag, given, t.Name, strings.Join(has, " and "), hint)
}

func (f *filterFlags) resolveContainer(w *tool.Wanted) error {
	paths, err := enrich.NewContainers("").Resolve(f.container)
	if err != nil {
		return err
	}
	if len(paths) != 1 {
		return fmt.Errorf("%q is in %d cgroups: name one with --cgroup: %s", f.container, len(paths), strings.Join(paths, ", "))
	}
	w.Cgroup, w.CgroupLevel, err = host.CgroupID(paths[0])
	return err
}

// splitList splits a list at commas; empty words are an error.
func splitList(s string) ([]string, error) {
	list := strings.Split(s, ",")
	for i := range list {
		if list[i] = strings.TrimSpace(list[i]); list[i] == "" {
			return nil, fmt.Errorf("%q has an empty part", s)
		}
	}
	return list, nil
}

// outerPIDs converts process ids of this PID namespace to the ids that BPF programs see.
func outerPIDs(own []uint32) ([]uint32, error) {
	if err := checkPermission(); err != nil {
		return nil, err
	}
	all, err := tool.OuterPIDs(host.PIDNamespace())
	if err != nil {
		return nil, fmt.Errorf("this process is in a PID namespace, and the kernel does not show the ids of the host: %w: run seine in the host's PID namespace (a container with --pid=host)", err)
	}
	var out []uint32
	for _, pid := range own {
		outer, ok := all[pid]
		if !ok {
			return nil, fmt.Errorf("there is no process %d in this PID namespace", pid)
		}
		out = append(out, outer)
	}
	return out, nil
}

func parsePIDs(s string) (out []uint32, err error) {
	list, err := splitList(s)
	for _, w := range list {
		n, err := strconv.ParseUint(w, 10, 31)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is not a valid process id", w)
		}
		if host.InPIDNamespace() { // /proc may belong to another namespace
			out = append(out, uint32(n))
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n))
		if err != nil {
			return nil, fmt.Errorf("there is no process %d", n)
		}
		// Threads have a directory in /proc too, but BPF programs filter by process.
		_, rest, _ := strings.Cut(string(status), "\nTgid:")
		if f := strings.Fields(rest); len(f) > 0 && f[0] != strconv.FormatUint(n, 10) {
			return nil, fmt.Errorf("%d is a thread of process %s: give the process id", n, f[0])
		}
		out = append(out, uint32(n))
	}
	if err == nil && host.InPIDNamespace() {
		return outerPIDs(out)
	}
	return out, err
}

func parseUIDs(s string) (out []uint32, err error) {
	list, err := splitList(s)
	for _, w := range list {
		n, err := strconv.ParseUint(w, 10, 32)
		if err != nil {
			uid, err := host.UID(w)
			if err != nil {
				return nil, err
			}
			n = uint64(uid)
		}
		out = append(out, uint32(n))
	}
	return out, err
}

func parseNetns(specs []string) (out []uint32, err error) {
	for _, s := range specs {
		list, err := splitList(s)
		if err != nil {
			return nil, err
		}
		for _, w := range list {
			inode, err := host.NetnsInode(w)
			if err != nil {
				return nil, err
			}
			out = append(out, inode)
		}
	}
	return out, nil
}

func parsePorts(s string) (out []tool.PortRange, err error) {
	list, err := splitList(s)
	for _, w := range list {
		lo, hi, ranged := strings.Cut(w, "-")
		if !ranged {
			hi = lo
		}
		a, err1 := strconv.ParseUint(lo, 10, 16)
		b, err2 := strconv.ParseUint(hi, 10, 16)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%q is not a valid port: write 80, 80,443 or 8000-8100", w)
		}
		if a > b {
			return nil, fmt.Errorf("%q: the range is empty", w)
		}
		out = append(out, tool.PortRange{From: uint16(a), To: uint16(b)})
	}
	return out, err
}

func addNets(w *tool.Wanted, s string, as tool.Filter) error {
	list, err := splitList(s)
	for _, word := range list {
		p, err := netip.ParsePrefix(word)
		if err != nil {
			a, err := netip.ParseAddr(word)
			if err != nil || a.Zone() != "" {
				return fmt.Errorf("%q is not a valid address or network: write 10.0.0.1, 10.0.0.0/8 or 2001:db8::/32", word)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		w.Nets = append(w.Nets, tool.Net{Prefix: p.Masked(), For: as})
	}
	return err
}

// parseNames reads a list of names or numbers.
func parseNames[N ~uint16](s string, names map[N]string) (out []uint16, err error) {
	list, err := splitList(s)
	for _, w := range list {
		found := false
		for n, name := range names {
			if strings.EqualFold(name, w) {
				out, found = append(out, uint16(n)), true
			}
		}
		if found {
			continue
		}
		n, err := strconv.ParseUint(w, 10, 16)
		if err != nil {
			var all []string
			for _, name := range names {
				all = append(all, name)
			}
			slices.Sort(all)
			if near := row.Nearest(w, all); near != "" {
				return nil, fmt.Errorf("%q is not known: did you mean %s?", w, near)
			}
			return nil, fmt.Errorf("%q is not known: one of %s", w, strings.Join(all, ", "))
		}
		out = append(out, uint16(n))
	}
	return out, err
}
