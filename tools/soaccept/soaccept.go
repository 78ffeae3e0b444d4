// SPDX-License-Identifier: Apache-2.0

// Package soaccept shows each accept: the process, the peer and the result.
package soaccept

import (
	_ "embed"
	"slices"

	"golang.org/x/sys/unix"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/probe"
	"seine/internal/row"
	"seine/internal/tool"
)

//go:embed README.md
var readme string

type config struct {
	Failed  bool `flag:"failed" bpf:"only_failed" help:"show only failures, including those that found nothing to accept"`
	Errors  bool `flag:"errors" bpf:"only_errors" help:"show only failures, but not those that found nothing to accept"`
	Blocked bool `flag:"blocked" help:"also show calls that still wait for a connection, at each interval and at the end"`
}

// event is struct accept_event of soaccept.bpf.c.
type event struct {
	kern.Head
	kern.Tuple
	Result  result       `col:"result,width=17;errno,as=errno,width=13" help:"how it ended, in the words of accept(2); errno by name, absent on success"`
	By      kern.Via     `col:"via,width=7" help:"syscall or uring"`
	Path    kern.Path    `col:"-"`
	Peer    kern.Path    `col:"-"`
	Latency kern.Nanos   `col:"latency_us,head=LAT(us),div=1000,width=8,age" help:"how long the call waited; absent if its start was not seen"`
	Pending kern.Pending `col:"pending,width=7" help:"true if the call still waits: the latency is its age"`
	Pad     uint32       `col:"-"`
}

// result is what accept returned: 0 or a negative errno.
type result int32

// words are accept(2)'s descriptions of its errors, shortened.
var words = map[unix.Errno]string{
	unix.EAGAIN: "Nothing to accept", unix.EBADF: "Invalid sockfd", unix.ECONNABORTED: "Conn aborted",
	unix.EFAULT: "Sock struct addr invalid", unix.EINTR: "Interrupted", unix.EINVAL: "Not listening",
	unix.EMFILE: "Process FD limit", unix.ENFILE: "System FD limit", unix.ENOBUFS: "Out of memory",
	unix.ENOMEM: "Out of memory", unix.ENOTSOCK: "Not a socket", unix.EOPNOTSUPP: "Not SOCK_STREAM",
	unix.EPERM: "Firewall forbids", unix.EPROTO: "Protocol error",
}

func (result) Kind() row.Kind { return row.Text }

// Cell has the text for result and, in N, the number for errno.
func (r *result) Cell(c *row.Cell) {
	e := unix.Errno(-*r)
	if e >= 512 { // the call was interrupted and is restarted
		e = unix.EINTR
	}
	s, ok := words[e]
	switch {
	case *r >= 0:
		s = "Success"
	case !ok:
		s = kern.ErrnoText(int(e))
	}
	*c = row.Cell{Kind: row.Text, S: s, N: uint64(-int64(e))}
}

// tidy fills in names of UNIX sockets and removes addresses that a row does not
// have.
func tidy(e *event, r *row.Row) {
	if e.Pending != 0 {
		r.Get("result").SetText("Pending")
		*r.Get("raddr"), *r.Get("rport") = row.Cell{}, row.Cell{}
	}
	if e.Family == unix.AF_UNIX {
		e.Path.Cell(r.Get("laddr"))
		e.Peer.Cell(r.Get("raddr"))
	}
	inet := e.Family == unix.AF_INET || e.Family == unix.AF_INET6
	if !inet {
		*r.Get("lport"), *r.Get("rport") = row.Cell{}, row.Cell{}
	}
	if inet && e.Result < 0 {
		*r.Get("raddr"), *r.Get("rport") = row.Cell{}, row.Cell{}
	}
	if e.Family == unix.AF_UNSPEC { // the descriptor was not a socket
		for _, id := range []string{"laddr", "raddr", "family", "proto"} {
			*r.Get(id) = row.Cell{}
		}
	}
}

// failed are the points that see only calls that fail. Where the kernel does not tell the arguments
// of such a call, its entry is seen too.
func failed() []probe.Point {
	all := []probe.Point{{Name: "failed", Needed: func(k *probe.Kernel) bool { return !probe.LacksTaskRegs(k) }}}
	for _, p := range family.SockCalls {
		if p.Name == "call" {
			p.Needed = probe.LacksTaskRegs
		}
		all = append(all, p)
	}
	return all
}

func views(cfg any) []tool.View {
	c := cfg.(*config)
	v := tool.View{
		Points: family.SockCalls,
		Output: tool.Stream[event]{Type: "accept_event", Each: tidy},
		Show:   "pid comm:PROCESS family:FAM:5 raddr:ADDRESS rport:PORT result",
		Says:   "accept: {result}[ after {latency_us} us]",
	}
	if c.Errors && !c.Blocked {
		v.Points = failed()
	}
	if c.Blocked {
		v.Points = append(slices.Clone(v.Points), tool.Pending)
		v.Show = "pid comm:PROCESS family:FAM:5 laddr+lport raddr:ADDRESS rport:PORT latency_us result"
	}
	return []tool.View{v}
}

// Tool is soaccept.
var Tool = &tool.Tool{
	Name: "soaccept", Layer: tool.Socket, Short: "accepts with peer address and result",
	Banner:   "Tracing accepts.",
	Doc:      readme,
	Filters:  tool.ByWho | tool.BySock | tool.ByTuple,
	Families: []uint16{unix.AF_UNSPEC, unix.AF_INET, unix.AF_INET6},
	Config:   func() any { return &config{} },
	Views:    views,
}
