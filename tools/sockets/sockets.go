// SPDX-License-Identifier: Apache-2.0

// Package sockets shows all open sockets.
package sockets

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Tick    time.Duration `bpf:"tick_ns"`
	Changes bool          `flag:"changes" help:"with an interval: from the second output on, show only sockets that are new, have gone, or have another state"`
}

// entry is struct sock_entry of sockets.bpf.c.
type entry struct {
	main    `col:",inline"`
	figures `col:",inline"`
	Path    kern.Path `col:"-"`
	Also    also      `col:"also,width=16" help:"other processes that have the socket open, as comm/pid; beyond three, their number"`
	Age     kern.ID   `col:"age_ms,width=8" help:"with an interval: time since the first output that showed the socket, a lower bound of its age; absent in that output"`
	Change  change    `col:"change,width=6,left" words:",new,gone,state" help:"with an interval, since the previous output: new, gone (only with --changes), or state: the state has changed"`
	Pad     uint32    `col:"-"`
}

// change is the change of a socket since the previous output.
type change uint32

const (
	_ change = iota
	isNew
	hasGone
	otherState
)

// also is the processes that have a socket open, without the first one.
type also [3]struct {
	PID  kern.ID32
	Comm kern.Comm
}

// main is struct sock_main.
type main struct {
	kern.Head
	kern.Tuple
	Sk        uint64           `col:"-"`
	Inode     kern.ID          `col:"inode,width=8" help:"inode of the socket, as in /proc/PID/fd"`
	PeerInode kern.ID          `col:"peer_inode,width=10" help:"inode of the peer of a UNIX socket"`
	FD        kern.Opt         `col:"fd,width=4" help:"lowest descriptor of the socket in the process"`
	Rcvbuf    kern.ID32        `col:"rcvbuf_bytes,head=RCVBUF,width=8" help:"size limit of the receive buffer"`
	Sndbuf    kern.ID32        `col:"sndbuf_bytes,head=SNDBUF,width=8" help:"size limit of the send buffer"`
	Drops     uint32           `col:"drops,width=6,sum" help:"received packets that the socket dropped"`
	Holders   uint32           `col:"holders,width=7" help:"number of processes that have the socket open; the row shows the first one"`
	Last      uint32           `col:"-"`
	PeerPID   kern.ID32        `col:"peer_pid,width=8" help:"process at the other end, if it is on this machine"`
	PeerComm  kern.Comm        `col:"peer_comm,width=16" help:"name of that process"`
	Type      uint16           `col:"type,width=9,left" words:",stream,dgram,raw,rdm,seqpacket,dccp,,,,packet" help:"type of socket"`
	State     kern.State       `col:"state,width=11,left" help:"state; UNCONN: not connected"`
	Hidden    bool             `col:"-"`
	Options   kern.SockOptions `col:"options,width=20" help:"options that are on: reuseaddr, reuseport, freebind, transparent, bind_address_no_port, v6only, keepalive, linger, broadcast, nodelay, cork"`
	Ifindex   kern.ID32        `col:"ifindex,head=IF,width=3" help:"index of the interface that the socket is bound to"`
	Mark      kern.ID32        `col:"mark,width=4" help:"mark of the socket's packets (SO_MARK)"`
}

// figures is struct sock_figures.
type figures struct {
	RXQueue    kern.Opt  `col:"rx_queue_bytes,head=RX_QUEUE,width=8,sum" help:"received and not read: bytes of TCP and UNIX sockets, memory of the packets of UDP and raw sockets"`
	TXQueue    kern.Opt  `col:"tx_queue_bytes,head=TX_QUEUE,width=8,sum" help:"written and not acknowledged: bytes of TCP; for others the memory of packets that are not sent, or that the peer of a UNIX socket has not read"`
	Backlog    kern.Opt  `col:"backlog,width=7,sum" help:"connections of a listener that wait to be accepted"`
	BacklogMax kern.Opt  `col:"backlog_max,width=11" help:"limit of the backlog"`
	TX         kern.Opt  `col:"tx_bytes,width=9,sum" help:"payload bytes sent over TCP, each counted once"`
	RX         kern.Opt  `col:"rx_bytes,width=9,sum" help:"payload bytes received over TCP"`
	Sent       kern.Opt  `col:"last_send_ms,width=12" help:"time since TCP last sent data; absent if it never did"`
	Received   kern.Opt  `col:"last_recv_ms,width=12" help:"time since TCP last received data; absent if it never did"`
	Waiting    kern.Opt  `col:"waiting_ms,width=10" help:"time that TCP has waited: for the answer to a connect, for an acknowledgement or the peer's window, for a reader since the last data arrived, or for an accept"`
	SRTT_us    kern.Opt  `col:"srtt_us,width=8" help:"smoothed round-trip time"`
	Cwnd       kern.Opt  `col:"cwnd,width=6" help:"congestion window, in segments"`
	Retrans    kern.Opt  `col:"retrans,width=7,sum" help:"segments that were retransmitted"`
	CC         kern.Comm `col:"cc,width=8" help:"congestion control of TCP"`
}

// again merges another record of a socket, from another descriptor or from unix_diag. It counts
// processes, not descriptors. The walk visits one process after the other, so the last PID is
// enough to tell them apart.
func again(have, t *entry) {
	if t.PID == 0 {
		if t.Family == unix.AF_UNIX {
			have.RXQueue, have.TXQueue, have.Backlog, have.BacklogMax, have.Sock = t.RXQueue, t.TXQueue, t.Backlog, t.BacklogMax, t.Sock
		}
		return
	}
	last := have.Last
	if last == 0 {
		last = uint32(have.PID)
	}
	other := t
	if have.Hidden && !t.Hidden { // show the first process that passes the filters
		was := *have
		other = &was
		have.Head, have.FD, have.Hidden = t.Head, t.FD, false
	}
	if last == uint32(t.PID) {
		return
	}
	have.Last = uint32(t.PID)
	if n := int(have.Holders); n < len(have.Also) {
		have.Also[n].PID, have.Also[n].Comm = other.PID, other.Comm
	}
	have.Holders++
}

func init() { row.Register[also]() }

// Kind is Text.
func (also) Kind() row.Kind { return row.Text }

// Cell is the names and PIDs. It is empty for a socket of one process.
func (a *also) Cell(c *row.Cell) {
	if *c = (row.Cell{}); a[0].PID == 0 {
		return
	}
	var all []string
	for i := range a {
		if a[i].PID != 0 {
			var comm row.Cell
			a[i].Comm.Cell(&comm)
			all = append(all, fmt.Sprintf("%s/%d", comm.S, a[i].PID))
		}
	}
	c.SetText(strings.Join(all, ","))
}

// ends is the addresses of both ends of a connection.
type ends struct {
	laddr, raddr kern.Addr
	lport, rport uint16
	proto        kern.Proto
}

// whole finds the process at the other end: by inode for UNIX sockets, by addresses for
// connections. Several network namespaces may use the same addresses. A socket of the same
// namespace is preferred. One of another namespace is taken only if it is the only match.
func whole(all []*entry) func(*entry, *row.Row) bool {
	// Indices into all: the collector does not scan a map without pointers.
	inodes := map[kern.ID]int32{}
	flows := make(map[ends]int32, len(all))
	more := map[ends][]*entry{} // of other namespaces
	of := func(inode kern.ID) *entry {
		if i, known := inodes[inode]; known && inode != 0 {
			return all[i]
		}
		return nil
	}
	for i, t := range all {
		if t.PID != 0 {
			t.Holders++
		}
		if t.Proto != protoTCP {
			if of(t.Inode) == nil {
				inodes[t.Inode] = int32(i)
			}
		} else if t.PID == 0 {
			if have := of(t.Inode); have != nil { // a subflow has the inode of its MPTCP socket
				t.Who, t.FD, t.Holders, t.Also = have.Who, have.FD, have.Holders, have.Also
			}
		}
		if t.Rport != 0 {
			e := ends{t.Laddr, t.Raddr, t.Lport, t.Rport, t.Proto}
			if _, known := flows[e]; !known {
				flows[e] = int32(i)
			} else {
				more[e] = append(more[e], t)
			}
		}
	}
	for _, t := range all {
		if p := of(t.PeerInode); p != nil {
			t.PeerPID, t.PeerComm = p.PID, p.Comm
		}
		if t.Rport == 0 {
			continue
		}
		e := ends{t.Raddr, t.Laddr, t.Rport, t.Lport, t.Proto}
		i, known := flows[e]
		if !known {
			continue
		}
		p := all[i]
		if p.Netns != t.Netns {
			others := more[e]
			if i := slices.IndexFunc(others, func(o *entry) bool { return o.Netns == t.Netns }); i >= 0 {
				p = others[i]
			} else if len(others) > 0 {
				continue
			}
		}
		t.PeerPID, t.PeerComm = p.PID, p.Comm
	}
	return func(t *entry, r *row.Row) bool {
		if p := of(t.PeerInode); p != nil {
			p.name(r, "raddr")
		}
		finish(t, r)
		return !t.Hidden
	}
}

const (
	stateClose  = 7
	stateListen = 10
	protoTCP    = 6
)

// name writes the name of a UNIX socket, if it has one.
func (t *entry) name(r *row.Row, id string) {
	if t.Path != (kern.Path{}) {
		t.Path.Cell(r.Get(id))
	}
}

func finish(t *entry, r *row.Row) {
	if t.State == stateClose && t.Proto != protoTCP {
		r.Get("state").SetText("UNCONN")
	}
	t.name(r, "laddr")
	if t.Rport == 0 {
		kern.NoEnd(r, "raddr", "rport")
	}
	if !t.Proto.OfIP() {
		*r.Get("lport") = row.Cell{}
	}
	if t.PID == 0 {
		*r.Get("uid") = row.Cell{}
	}
	if shown := uint32(1 + len(t.Also)); t.Holders > shown {
		c := r.Get("also")
		c.SetText(fmt.Sprintf("%s and %d more", c.S, t.Holders-shown))
	}
}

// key identifies a socket by its address in memory, which has the highest bit set. UNIX sockets use
// the inode, or the cookie and a bit that neither of the others has, because unix_diag does not
// tell the address.
type key uint64

const byCookie key = 1 << 62

func keyOf(t *entry) key {
	switch {
	case t.Family != unix.AF_UNIX:
		return key(t.Sk)
	case t.Inode != 0:
		return key(t.Inode)
	}
	return key(t.Sock) | byCookie
}

// sameSocket reports whether two records with the same key are of one socket. The kernel may have reused the memory.
func sameSocket(before, now *entry) bool {
	if before.Inode != 0 && now.Inode != 0 {
		return before.Inode == now.Inode
	}
	return before.Lport == now.Lport && before.Rport == now.Rport && before.Laddr == now.Laddr && before.Raddr == now.Raddr
}

// compare fills in age and change. It returns the row to show, or nil.
func (c *config) compare(before, now *entry, seen time.Duration) *entry {
	switch {
	case now == nil:
		if before.Change = hasGone; !c.Changes {
			return nil
		}
		return before
	case before == nil:
		now.Change = isNew
	default:
		now.Age = kern.ID(seen.Milliseconds())
		if before.State != now.State {
			now.Change = otherState
		}
	}
	if c.Changes && now.Change == 0 {
		return nil
	}
	return now
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	v := tool.View{
		Output: tool.Exists[key, entry]{Type: "sock_entry", Read: readAll, Key: keyOf, Again: again, Whole: whole, Same: sameSocket, Compare: c.compare},
		Show:   "proto state rx_queue_bytes tx_queue_bytes backlog laddr lport raddr rport pid comm::12 peer_comm:PEER:12",
		Says:   "{proto} {state}, {rx_queue_bytes} bytes not read, {tx_queue_bytes} not acknowledged",
	}
	if c.Changes {
		v.Show, v.Says, v.Ticks = "change "+v.Show, "[{change}: ]"+v.Says, "changes"
	}
	return []tool.View{v}
}

// Tool is sockets.
var Tool = &tool.Tool{
	Name: "sockets", Layer: tool.Socket, Short: "all sockets of all network namespaces, with their processes",
	Banner:  "Reading sockets.",
	Doc:     readme,
	Filters: tool.ByWho | tool.BySock | tool.ByTuple,
	Config:  func() any { return &config{Tick: kern.Jiffy()} },
	Once:    true,
	Look:    look,
	Keeps:   keeps,
	Points:  []probe.Point{{Name: "walk"}, {Name: "tcp", Optional: true, Misses: misses}, {Name: "udp", Optional: true, Misses: misses}},
	Views:   views,
}
