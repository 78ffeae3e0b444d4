// SPDX-License-Identifier: Apache-2.0

package qdisclat

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

// functions are the kernel functions that enqueue and dequeue packets of a
// kind. Most kinds follow one naming scheme.
func functions(kind string) (enqueue, dequeue string) {
	switch kind {
	case "codel", "pie", "fq_pie", "ets", "dualpi2":
		kind += "_qdisc"
	}
	return kind + "_enqueue", kind + "_dequeue"
}

// instance is a queueing discipline of a device.
type instance struct {
	kind, dev string
	child     bool   // it is below another one, so no tracepoint fires for it
	under     string // the kind of the queue above
}

// hasNone are the kinds without a queue.
var hasNone = []string{"noqueue", "noop", "mq", "mqprio", "ingress", "clsact"}

// instances lists the queueing disciplines of the wanted network namespaces, as
// far as host.AllNetns knows them. whole is false if there may be more that
// cannot be read.
func instances(wanted []uint32) (out []instance, whole bool) {
	whole = host.HasCap(host.CapSysPtrace) // otherwise namespaces of other processes are not known
	found := 0
	for _, n := range host.AllNetns() {
		if len(wanted) > 0 && !slices.Contains(wanted, n.Inode) {
			continue
		}
		found++
		if n.Do(func() error { out = append(out, here()...); return nil }) != nil {
			whole = false
		}
	}
	return out, whole && found >= len(wanted)
}

// here lists the queueing disciplines of the thread's network namespace.
func here() []instance {
	links, _ := netlink.LinkList()
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return family(list(), names)
}

// qdisc is the kernel's description of a queueing discipline.
type qdisc struct {
	kind           string
	dev            int
	handle, parent uint32
}

// list asks the kernel for those of the thread's namespace. The function of
// package netlink would also parse the options of each kind, and fail for kinds
// that it does not know.
func list() (out []qdisc) {
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL})
	msgs, _ := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	for _, m := range msgs {
		t := nl.DeserializeTcMsg(m)
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofTcMsg:])
		if err != nil {
			continue
		}
		for _, a := range attrs {
			if a.Attr.Type == nl.TCA_KIND {
				out = append(out, qdisc{unix.ByteSliceToString(a.Value), int(t.Ifindex), t.Handle, t.Parent})
			}
		}
	}
	return out
}

// family finds the parent of each queueing discipline.
func family(all []qdisc, names map[int]string) (out []instance) {
	for i, q := range all {
		x := instance{kind: q.kind, dev: names[q.dev]}
		if q.parent != netlink.HANDLE_ROOT && q.parent != netlink.HANDLE_INGRESS {
			for j, p := range all {
				if i != j && p.dev == q.dev && p.handle>>16 == q.parent>>16 {
					x.under = p.kind
				}
			}
			x.child = x.under != "mq" && x.under != "mqprio"
		}
		out = append(out, x)
	}
	return out
}

// anyChild reports whether any queue of a kind is below another one.
func anyChild(kind string) bool {
	all, _ := instances(nil)
	return slices.ContainsFunc(all, func(i instance) bool { return i.kind == kind && i.child })
}

// look returns the reasons why there may be nothing to see.
func look(cfg any, w *tool.Wanted) ([]string, error) {
	kind := cfg.(*config).Kind
	all, whole := instances(w.Netns)
	all = slices.DeleteFunc(all, func(i instance) bool {
		return slices.Contains(hasNone, i.kind) || w.Dev != "" && i.dev != w.Dev
	})
	if kind == "" {
		if len(all) == 0 && whole {
			return []string{"no device has a queue: lo and veth get one by 'tc qdisc add dev DEV root fq_codel'"}, nil
		}
		return nil, nil
	}
	all = slices.DeleteFunc(all, func(i instance) bool { return i.kind != kind })
	if len(all) == 0 {
		there := findModule(kind)
		if there == loaded && !whole {
			return nil, nil // some device may have it
		}
		return unused(kind, there)
	}
	k, err := probe.Running()
	if err != nil {
		return nil, err
	}
	return hidden(kind, all, k.Offers()["kprobe"])
}

// hidden reports the existing queues that cannot be seen.
func hidden(kind string, all []instance, functions error) ([]string, error) {
	i := slices.IndexFunc(all, func(i instance) bool { return i.child })
	if i < 0 || functions == nil {
		return nil, nil
	}
	c := all[i]
	roots := slices.ContainsFunc(all, func(i instance) bool { return !i.child })
	text := fmt.Sprintf("%s of %s is below %s", kind, c.dev, c.under)
	if roots {
		return []string{text + ", and not visible on this kernel, which has no kprobes: only those that are a device's own are shown"}, nil
	}
	return nil, fmt.Errorf("%w: %s: without kprobes only the root queue of a device can be seen; 'seine qdisclat %s' shows it, with all below it", probe.ErrNotSupported, text, c.under)
}

// presence is whether a kernel has a queueing discipline, and how.
type presence int

const (
	absent presence = iota
	onDisk          // a module that is not loaded
	loaded          // or built in
)

// findModule looks for a kind's functions in the kernel, then for its module.
func findModule(kind string) presence {
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil || hasFunction(symbols, kind) {
		return loaded // or it is not known
	}
	dir := filepath.Join("/lib/modules", host.KernelVersion())
	for _, f := range []string{"modules.dep", "modules.builtin"} {
		if b, err := os.ReadFile(filepath.Join(dir, f)); err == nil && hasModule(b, kind) {
			return onDisk
		}
	}
	return absent
}

// hasFunction looks for the function that puts packets into a kind's queue. The
// compiler may add a dot and more to its name.
func hasFunction(symbols []byte, kind string) bool {
	name, _ := functions(kind)
	for lines := bufio.NewScanner(bytes.NewReader(symbols)); lines.Scan(); {
		f := bytes.Fields(lines.Bytes())
		if len(f) < 3 {
			continue
		}
		if rest, ok := bytes.CutPrefix(f[2], []byte(name)); ok && (len(rest) == 0 || rest[0] == '.' || rest[0] == '_') {
			return true
		}
	}
	return false
}

func hasModule(list []byte, kind string) bool {
	return bytes.Contains(list, []byte("/sch_"+kind+".ko"))
}

// kinds are known names, for suggestions after a typing error.
var kinds = []string{
	"bfifo", "cake", "cbq", "cbs", "choke", "codel", "drr", "etf", "ets", "fq", "fq_codel", "fq_pie", "gred", "hfsc", "hhf", "htb",
	"multiq", "netem", "pfifo", "pfifo_fast", "pie", "plug", "prio", "qfq", "red", "sfb", "sfq", "skbprio", "taprio", "tbf", "teql",
}

// unused says why no device uses a kind.
func unused(kind string, p presence) ([]string, error) {
	use := fmt.Sprintf("'tc qdisc add dev DEV root %s …'", kind)
	switch {
	case p == loaded:
		return []string{fmt.Sprintf("no device uses %s: there is nothing to see until %s", kind, use)}, nil
	case p == onDisk:
		return []string{fmt.Sprintf("%s is not loaded: 'modprobe sch_%s', or let tc do it: %s", kind, kind, use)}, nil
	case kind == "cbq":
		return nil, fmt.Errorf("%w: CBQ no longer exists: Linux 6.3 and the stable kernels before it removed it; htb and hfsc replace it", probe.ErrNotSupported)
	}
	text := fmt.Sprintf("there is no queueing discipline %s, built in or as a module sch_%s", kind, kind)
	if near := row.Nearest(kind, kinds); near != "" && !slices.Contains(kinds, kind) {
		text += fmt.Sprintf(": did you mean %s?", strings.TrimSpace(near))
	}
	return nil, fmt.Errorf("%w: %s", probe.ErrNotSupported, text)
}
