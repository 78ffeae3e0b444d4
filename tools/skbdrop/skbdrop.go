// SPDX-License-Identifier: Apache-2.0

// Package skbdrop counts dropped packets by reason, place and properties of the
// packet.
package skbdrop

import (
	_ "embed"
	"fmt"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

// proto is a protocol of IP, or the EtherType of a packet that is not IP's:
// PROTO_ETHER of skbdrop.bpf.c.
type proto uint32

const ether = 0x10000

var ethers = map[proto]string{
	0x0800: "ipv4", 0x0806: "arp", 0x8100: "vlan", 0x86dd: "ipv6", 0x8847: "mpls", 0x8863: "pppoe", 0x8864: "pppoe",
	0x888e: "eapol", 0x88a8: "vlan", 0x88cc: "lldp", 0x88e5: "macsec", 0x88f7: "ptp",
}

func (proto) Kind() row.Kind { return row.Text }

func (p *proto) Cell(c *row.Cell) {
	switch name, ok := ethers[*p-ether]; {
	case *p == 0: // also the number of IPv6 hop-by-hop options, but these are never the protocol
		*c = row.Cell{}
	case *p < ether:
		c.SetText(kern.Proto(*p).String())
	case ok:
		c.SetText(name)
	default:
		c.SetText(fmt.Sprintf("0x%04x", uint32(*p-ether)))
	}
}

// name is a text that Go makes.
type name string

func (name) Kind() row.Kind      { return row.Text }
func (n *name) Cell(c *row.Cell) { c.SetText(string(*n)) }

// key is struct drop_key of skbdrop.bpf.c.
type key struct {
	Location uint64            `col:"location,as=ksym,width=32,key" help:"function that dropped them"`
	Reason   family.DropReason `col:"reason,width=20,key" help:"why, by the running kernel's own name; unclassified before 5.17"`
	Kstack   kern.StackID      `col:"kstack,as=kstack,key" help:"kernel stack, innermost function first"`
	Laddr    kern.Addr         `col:"laddr,width=15,key" help:"local address: of the destination, unless a socket here has sent them"`
	Raddr    kern.Addr         `col:"raddr,width=15,key" help:"remote address"`
	Dev      kern.Comm         `col:"dev,width=8,key" help:"device; absent for packets in the queue of a TCP socket"`
	Lport    kern.ID16         `col:"lport,width=5,key" help:"local port"`
	Rport    kern.ID16         `col:"rport,width=5,key" help:"remote port"`
	Family   kern.Family       `col:"family,width=6,key" help:"address family"`
	Pad      uint16            `col:"-"`
	Proto    proto             `col:"proto,width=7,key" help:"protocol of IP; the EtherType of other packets"`
	Netns    kern.ID32         `col:"netns,width=10,key" help:"network namespace, by inode"`
	Dir      kern.Packet       `col:"dir,width=3,key" help:"out: a socket here has sent them; in: others"`
	Pad2     uint32            `col:"-"`
}

// value is struct drop_count of skbdrop.bpf.c.
type value struct {
	Count uint64 `col:"count,width=8,sum" help:"packets: a buffer of GSO or GRO counts as the packets that it stands for"`
	Skbs  uint64 `col:"skbs,width=8,sum" help:"buffers"`
	Bytes uint64 `col:"bytes,width=10,sum" help:"bytes in them, with those headers that were still there"`
}

// unclassified is the reason on kernels without reasons: some of the packets
// that they free with this call were not dropped.
func unclassified(k *key, _ *value, r *row.Row) {
	if c := r.Get("reason"); k.Reason == family.DropUntold && c != nil {
		c.SetText("unclassified")
	}
	if k.Family == 0 {
		*r.Get("family") = row.Cell{}
	}
}

// Tool is skbdrop.
var Tool = &tool.Tool{
	Name: "skbdrop", Layer: tool.Device, Short: "dropped packets by reason, place and stack, and the counters that moved",
	Banner:  "Counting dropped packets.",
	Doc:     readme,
	Filters: tool.BySock | tool.ByTuple | tool.FilterDev,
	Points: []probe.Point{
		{Name: "drop"},
		{Name: "tasks", Optional: true, Misses: "counters of network namespaces that ip-netns has no name for"},
	},
	Views: func(any) []tool.View {
		return []tool.View{
			{
				Name:   "drops",
				Output: tool.Snapshot[key, value]{Map: "drops", Each: unclassified},
				Show:   "reason location count kstack",
				Says:   "{count} packets dropped[: {reason}][ at {location}]",
				By:     []string{"reason", "location", "kstack"},
				Sort:   "count",
			},
			{
				Name:   "counters",
				Output: tool.Poll[counter]{Open: counters},
				Show:   "netns counter count",
				Says:   "{counter} grew by {count}",
			},
		}
	},
	Formats: []string{"folded"},
}
