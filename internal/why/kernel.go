// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"seine/internal/watch"
)

// kernelRules are about packets that the kernel drops and resources that it lacks.
var kernelRules = []Rule{
	{
		Class: "udp-overflow", Short: "UDP receive buffers overflow", Looks: "the UDP counters RcvbufErrors, and drops by port; a closer look (sormem) names the process",
		Threshold: "ten datagrams", Severity: "warn; bad from 1,000 datagrams on", Sure: "certain: the kernel counts them", Needs: []string{watch.Counters, "skbdrop"}, Any: true,
		Advice: "the process reads too slowly, or its buffer is too small: SO_RCVBUF, net.core.rmem_max, net.core.rmem_default",
		find:   udpOverflow,
		closer: func(found []*Finding) string {
			line := "sormem --view overflow --proto udp"
			if port := found[0].Object.Lport; len(found) == 1 && port != 0 {
				line += fmt.Sprintf(" --lport %d", port)
			}
			return line
		},
	},
	{
		Class: "memory-pressure", Short: "TCP is short of memory", Looks: "counters of memory pressure and pruning, and TCP's memory against net.ipv4.tcp_mem; a closer look (sormem) names the process whose buffers are full",
		Threshold: "memory pressure once, or ten segments pruned", Severity: "bad for pressure, warn for pruning", Sure: "certain: the kernel counts it", Needs: []string{watch.Counters},
		Advice: "find sockets whose data nobody reads (ss -tm), or raise net.ipv4.tcp_mem",
		find:   memory,
		closer: func([]*Finding) string { return fullTCP },
	},
	{
		Class: "packets-dropped", Short: "the kernel drops packets", Looks: "dropped packets by reason, and the connection tracking table",
		Threshold: "ten packets for reasons that are not part of normal operation, or the table is 95 % full", Severity: "warn; bad from 1,000 packets on, or for a full table; info for netfilter, whose rules may intend it",
		Sure: "certain: the kernel gives the reason", Needs: []string{"skbdrop", watch.Counters}, Any: true,
		Advice: "the reason says what to change: firewall rules, routes, rp_filter, neighbours, or a device's checksums",
		find:   dropped,
	},
	{
		Class: "softirq-starved", Short: "processors do not keep up with received packets", Looks: "softnet_stat: packets dropped at the backlog, and softirqs that ended with packets left",
		Threshold: "one packet dropped, or ten such softirqs a second", Severity: "bad for drops, else warn", Sure: "certain: the kernel counts it", Needs: []string{watch.Counters},
		Advice: "spread receive work (RSS, RPS), raise net.core.netdev_budget and net.core.netdev_max_backlog",
		find:   starved,
	},
	{
		Class: "cpu-imbalance", Short: "one processor does the receive work", Looks: "softnet_stat: packets by processor",
		Threshold: "nine of ten packets on one processor, 10,000 packets a second in all, and packets left for later", Severity: "warn", Sure: "likely: the other processors may be busy with other work",
		Needs: []string{watch.Counters}, Advice: "spread interrupts (RSS, irqbalance) or softirqs (RPS: /sys/class/net/DEV/queues/rx-*/rps_cpus)",
		find: imbalance,
	},
	{
		Class: "ecn-marks", Short: "routers mark packets for congestion", Looks: "received packets marked Congestion Experienced; a closer look (ipecn) names their sender", Threshold: "ten packets, and one in a hundred of those that can be marked",
		Severity: "info; warn if one in ten is marked", Sure: "certain: the kernel counts them", Needs: []string{watch.Counters},
		Advice: "a queue on the path is filling up; the marks make senders slow down: find the narrow link",
		find:   marks,
		closer: func([]*Finding) string { return "ipecn --summary -i 1 --by dir,dev,saddr,netns" },
	},
}

// udpFull is the kernel's drop reason for a full receive buffer.
const udpFull = "SOCKET_RCVBUFF"

func udpOverflow(j *judge) (all []*Finding) {
	for _, t := range j.Tallied(watch.Drop) {
		if t.What == udpFull && strings.EqualFold(t.Note, "udp") && t.Lport != 0 && t.Count >= 10 {
			f := j.fullPort(t, "skbdrop")
			if o := j.fullest("udp", func(o *watch.Tally) bool { return o.Lport == t.Lport && o.Netns == t.Netns }); o != nil {
				j.fullBuffer(f, o)
			}
			all = append(all, f)
		}
	}
	n := j.Grown("UdpRcvbufErrors") + j.Grown("Udp6RcvbufErrors")
	if len(all) > 0 || n < 10 {
		return all
	}
	// Before 5.17 the kernel gives no reason for a drop, but a closer look knows the socket.
	for _, t := range j.Tallied(watch.Overflow) {
		if strings.EqualFold(t.Note, "udp") && t.Lport != 0 && t.Count >= 10 {
			f := j.fullPort(t, "sormem")
			f.within(j.Closer)
			j.fullBuffer(f, t)
			all = append(all, f)
		}
	}
	if len(all) > 0 {
		return all
	}
	f := j.finding(Object{Name: Machine}, worse(n >= 1000), float64(n))
	f.Title = fmt.Sprintf("%d datagrams dropped: a receive buffer was full", n)
	f.add("datagrams dropped", float64(n), "", "UdpRcvbufErrors").sure(Certain, "the kernel counts them")
	f.Next = "seine skbdrop --by reason,proto,lport"
	return append(all, f)
}

// fullPort is a finding about a UDP port whose datagrams a tool counted as dropped.
func (j *judge) fullPort(t *watch.Tally, from string) *Finding {
	f := j.finding(Object{Name: fmt.Sprintf("UDP :%d", t.Lport), Lport: t.Lport, Who: watch.Who{Netns: t.Netns}}, worse(t.Count >= 1000), float64(t.Count))
	f.Title = fmt.Sprintf("%d datagrams dropped: its receive buffer was full", t.Count)
	f.add("datagrams dropped", float64(t.Count), "", from).sure(Certain, "the kernel gives the reason")
	f.Next = fmt.Sprintf("seine sormem --lport %d", t.Lport)
	return f
}

// fullest is what most often did not fit into a receive buffer, of a protocol and where fits is
// true. It is nil if no closer look has seen any.
func (j *judge) fullest(proto string, fits func(*watch.Tally) bool) (most *watch.Tally) {
	for _, t := range j.Tallied(watch.Overflow) {
		if strings.EqualFold(t.Note, proto) && fits(t) && (most == nil || t.Count > most.Count) {
			most = t
		}
	}
	return most
}

// fullBuffer adds whose buffer was full.
func (j *judge) fullBuffer(f *Finding, t *watch.Tally) {
	f.Object.PID = t.PID
	f.add("times that a buffer of "+cmp.Or(t.Comm, "an unknown process")+" had no room", float64(t.Count), "", "sormem").within(j.Closer)
	f.add("its limit", float64(t.Limit), "bytes", "sormem").within(j.Closer)
}

// fullTCP shows which TCP sockets have no room for what arrives.
const fullTCP = "sormem --view overflow --proto tcp"

func memory(j *judge) []*Finding {
	pressure := j.Grown("TcpExtTCPMemoryPressures") + j.Grown("TcpExtTCPAbortOnMemory")
	pruned := j.Grown("TcpExtRcvPruned") + j.Grown("TcpExtOfoPruned") + j.Grown("TcpExtTCPRcvQDrop")
	used, least := j.Gauges[watch.CounterKey{Name: watch.TCPMemory}].Most, j.Gauges[watch.CounterKey{Name: watch.TCPMemPressure}].Last
	short := least > 0 && used >= least
	if pressure == 0 && pruned < 10 && !short {
		return nil
	}
	f := j.finding(Object{Name: Machine}, worse(pressure > 0 || short), float64(pressure*1000+pruned))
	f.Title = fmt.Sprintf("%d times under memory pressure, %d segments pruned", pressure, pruned)
	f.add("memory pressure", float64(pressure), "", "TcpExtTCPMemoryPressures").add("segments pruned", float64(pruned), "", "TcpExtRcvPruned")
	f.add("TCP's memory", used, "pages", "sockstat").add("pressure threshold", least, "pages", "net.ipv4.tcp_mem")
	f.sure(Certain, "the kernel counts it")
	if t := j.fullest("tcp", func(*watch.Tally) bool { return true }); t != nil {
		j.fullBuffer(f, t)
	}
	f.Next = "seine " + fullTCP
	return []*Finding{f}
}

// wrong are prefixes of drop reasons that do not occur in normal operation.
var wrong = []string{
	"NETFILTER_DROP", "IP_RPFILTER", "IP_OUTNOROUTES", "IP_INNOROUTES", "IP_CSUM", "TCP_CSUM", "UDP_CSUM", "ICMP_CSUM", "SKB_CSUM", "NEIGH_FAILED", "NEIGH_QUEUEFULL", "NEIGH_DEAD",
	"PKT_TOO_BIG", "XFRM_POLICY", "TC_INGRESS", "TC_EGRESS", "BPF_CGROUP_EGRESS", "FULL_RING", "NOMEM", "IP_INADDRERRORS", "IP_INHDR", "TCP_MD5", "TCP_AO", "HDR_TRUNC", "DEV_HDR", "VXLAN_", "FRAG_",
}

// wanted are prefixes of drop reasons that an administrator may intend.
var wanted = []string{"NETFILTER_DROP", "TC_INGRESS", "TC_EGRESS", "BPF_CGROUP_EGRESS", "XFRM_POLICY"}

func begins(reason string, with []string) bool {
	return slices.ContainsFunc(with, func(w string) bool { return strings.HasPrefix(reason, w) })
}

func dropped(j *judge) (all []*Finding) {
	type place struct {
		dev   string
		netns uint32
	}
	at := map[place]map[string]uint64{}
	for _, t := range j.Tallied(watch.Drop) {
		if !begins(t.What, wrong) {
			continue
		}
		p := place{cmp.Or(t.Dev, Machine), t.Netns}
		if at[p] == nil {
			at[p] = map[string]uint64{}
		}
		at[p][t.What] += t.Count
	}
	for p, reasons := range at {
		var n, meant, most uint64
		var main string
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			c := reasons[reason]
			if n += c; begins(reason, wanted) {
				meant += c
			}
			if c > most {
				main, most = reason, c
			}
		}
		if n < 10 {
			continue
		}
		severity := worse(n-meant >= 1000)
		if n-meant < 10 {
			severity = Info
		}
		f := j.finding(Object{Name: p.dev, Who: watch.Who{Netns: p.netns}}, severity, float64(n))
		f.Title = fmt.Sprintf("%d packets dropped, most for %s", n, main)
		for _, reason := range slices.Sorted(maps.Keys(reasons)) {
			f.add("packets dropped for "+reason, float64(reasons[reason]), "", "skbdrop")
		}
		f.sure(Certain, "the kernel gives the reason")
		if f.Next = "seine skbdrop"; p.dev != Machine {
			f.Next = onDevice("skbdrop", p.dev)
		}
		all = append(all, f)
	}
	return append(all, conntrack(j)...)
}

// conntrack finds namespaces whose connection tracking table is full.
func conntrack(j *judge) (all []*Finding) {
	for k, most := range j.Gauges {
		used := j.Gauges[watch.CounterKey{Netns: k.Netns, Name: watch.ConntrackUsed}].Most
		if k.Name != watch.ConntrackMost || most.Last == 0 || used < 0.95*most.Last {
			continue
		}
		f := j.finding(Object{Name: "connection tracking", Who: watch.Who{Netns: k.Netns}}, Bad, used)
		f.Title = fmt.Sprintf("%.0f of %.0f connection tracking entries are in use", used, most.Last)
		f.add("entries", used, "", "nf_conntrack_count").add("limit", most.Last, "", "nf_conntrack_max").sure(Certain, "the kernel counts them")
		f.Advice = "raise net.netfilter.nf_conntrack_max, shorten its timeouts, or leave traffic untracked (notrack)"
		f.Next = "seine skbdrop --by reason"
		all = append(all, f)
	}
	return all
}

func starved(j *judge) []*Finding {
	drops, squeezed := j.Grown(watch.SoftnetDropped), j.Grown(watch.SoftnetSqueezed)
	if drops == 0 && float64(squeezed) < 10*j.Seconds() {
		return nil
	}
	f := j.finding(Object{Name: Machine}, worse(drops > 0), float64(drops*10+squeezed))
	f.Title = fmt.Sprintf("%d packets dropped at the backlog, %d softirqs left packets for later", drops, squeezed)
	f.add("packets dropped at the backlog", float64(drops), "", "softnet_stat").add("softirqs that left packets", float64(squeezed), "", "softnet_stat")
	f.sure(Certain, "the kernel counts it")
	f.Next = "seine softirqs"
	return []*Finding{f}
}

func imbalance(j *judge) []*Finding {
	var all, most int64
	var cpu string
	cpus := 0
	for k, n := range j.Counters {
		name, ok := strings.CutPrefix(k.Name, watch.SoftnetProcessed)
		if !ok {
			continue
		}
		cpus++
		if all += n; n > most {
			cpu, most = name, n
		}
	}
	left := j.Grown(watch.SoftnetSqueezed) + j.Grown(watch.SoftnetDropped)
	if cpus < 2 || 10*most < 9*all || float64(all) < 10_000*j.Seconds() || float64(left) < j.Seconds() {
		return nil
	}
	f := j.finding(Object{Name: "processor " + cpu}, Warn, float64(most))
	f.Title = fmt.Sprintf("%d of %d packets received on processor %s", most, all, cpu)
	f.add("packets on it", float64(most), "", "softnet_stat").add("packets on all", float64(all), "", "softnet_stat").add("softirqs that left packets", float64(left), "", "softnet_stat")
	f.sure(Likely, "the other processors may be busy with other work")
	f.Next = "seine softirqs"
	return []*Finding{f}
}

func marks(j *judge) []*Finding {
	marked := j.Grown("IpExtInCEPkts") + j.Grown("Ip6InCEPkts")
	able := marked + j.Grown("IpExtInECT0Pkts") + j.Grown("IpExtInECT1Pkts") + j.Grown("Ip6InECT0Pkts") + j.Grown("Ip6InECT1Pkts")
	if marked < 10 || 100*marked < able {
		return nil
	}
	f := j.finding(Object{Name: Machine}, Info, float64(marked))
	if 10*marked >= able {
		f.Severity = Warn
	}
	f.Title = fmt.Sprintf("%d of %d received packets were marked", marked, able)
	f.add("packets marked", float64(marked), "", "IpExtInCEPkts").add("packets that can be marked", float64(able), "", "IpExtInECT0Pkts").sure(Certain, "the kernel counts them")
	var most *watch.Tally
	for _, t := range j.Tallied(watch.Marked) {
		if most == nil || t.Count > most.Count {
			most = t
		}
	}
	if most != nil {
		f.add("of them received on "+most.Dev+" from "+most.Raddr.String(), float64(most.Count), "", "ipecn").within(j.Closer)
	}
	f.Next = "seine ipecn"
	return []*Finding{f}
}

// device sums up the queueing disciplines of a device.
type device struct {
	dev     string
	netns   uint32
	dropped int64
	backlog float64
}

func (j *judge) byDevice() (out []*device) {
	by := map[watch.CounterKey]*device{}
	get := func(netns uint32, dev string) *device {
		k := watch.CounterKey{Netns: netns, Name: dev}
		if by[k] == nil {
			by[k] = &device{dev: dev, netns: netns}
			out = append(out, by[k])
		}
		return by[k]
	}
	for k, n := range j.Counters {
		if dev, ok := strings.CutPrefix(k.Name, watch.QdiscDropped); ok {
			get(k.Netns, dev).dropped = n
		}
	}
	for k, g := range j.Gauges {
		if dev, ok := strings.CutPrefix(k.Name, watch.QdiscBacklog); ok {
			get(k.Netns, dev).backlog = g.Most
		}
	}
	return out
}
