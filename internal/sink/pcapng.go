// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"seine/internal/pcapng"
	"seine/internal/row"
)

// Files is the destination of a format that writes several files in turn and begins anew in each.
type Files interface {
	Write([]byte) (int, error)
	Limit() int64 // bytes that a file may have
	Next() error  // what is written from now on goes to the next file
}

// pcapngSink writes packets for Wireshark and its like. Each has its process in the option
// epb_processid_threadid and in a comment. Interfaces are told when their first packet comes.
type pcapngSink struct {
	*writer
	files   Files // nil: there is one
	written int64 // bytes of this file, with those in the buffer
	netns   func(uint64) string
	schema  *row.Schema
	at      pcapngAt
	devs    map[pcapngDev]*pcapngState
	order   []*pcapngState // those of this file, by number
	comment []byte
	last    uint64 // time of the last packet
	lost    uint64 // packets, as the kernel side counts them at the end
	begun   bool
}

// pcapngDev tells devices apart. One may be renamed.
type pcapngDev struct {
	netns, ifindex uint64
	name           string
	link           string
}

type pcapngState struct {
	pcapngDev
	number         uint32 // in this file; valid if the file's order has it
	there          bool
	received, lost uint64
}

// pcapngAt is where the columns are that the format takes.
type pcapngAt struct {
	time, netns, container, pid, tid, comm, dev, ifindex, bytes, lost, toPID, toComm, dir, link int
}

// columns is where they are in a schema; false if one is missing.
func (a *pcapngAt) columns(s *row.Schema) bool {
	for id, at := range map[string]*int{
		"time": &a.time, "netns": &a.netns, "container": &a.container, "pid": &a.pid, "tid": &a.tid, "comm": &a.comm, "dev": &a.dev,
		"ifindex": &a.ifindex, "bytes": &a.bytes, "lost": &a.lost, "to_pid": &a.toPID, "to_comm": &a.toComm, "dir": &a.dir, "link": &a.link,
	} {
		if *at = s.Index(id); *at < 0 {
			return false
		}
	}
	return true
}

// Packets says whether rows of s have packets.
func Packets(s *row.Schema) bool { return new(pcapngAt).columns(s) }

func newPcapng(w *writer, o Options) (row.Sink, error) {
	if o.Terminal {
		return nil, errors.New("pcapng is not for a terminal: write it to a file with -w, or into a pipe: | wireshark -k -i -")
	}
	if len(o.Columns) > 0 {
		return nil, errors.New("pcapng has packets and no columns: leave out --columns")
	}
	if len(o.Schemas) != 1 || !Packets(o.Schemas[0]) {
		return nil, errors.New("pcapng needs packets, and these rows have none")
	}
	p := &pcapngSink{writer: w, netns: o.Netns, schema: o.Schemas[0], devs: map[pcapngDev]*pcapngState{}}
	p.files, _ = w.to.(Files)
	p.at.columns(p.schema)
	return p, nil
}

// add notes what has been appended to the buffer since it had n bytes.
func (p *pcapngSink) add(n int) { p.written += int64(len(p.buf) - n) }

// begin writes the head of a file.
func (p *pcapngSink) begin() {
	n := len(p.buf)
	p.buf = pcapng.AppendSection(p.buf, &pcapng.Section{Hardware: runtime.GOARCH, OS: "Linux", App: "seine capture"})
	p.add(n)
	p.begun = true
}

// dev is the device of a row, which the file knows when this returns.
func (p *pcapngSink) dev(r *row.Row) *pcapngState {
	key := pcapngDev{
		netns: r.Cells[p.at.netns].N, ifindex: r.Cells[p.at.ifindex].N,
		name: r.Cells[p.at.dev].S, link: r.Cells[p.at.link].S,
	}
	d := p.devs[key]
	if d == nil {
		key.name, key.link = string([]byte(key.name)), string([]byte(key.link)) // the row's are reused
		d = &pcapngState{pcapngDev: key}
		p.devs[key] = d
	}
	if !d.there {
		p.tell(d)
	}
	return d
}

// tell describes a device in this file.
func (p *pcapngSink) tell(d *pcapngState) {
	where := "network namespace " + strconv.FormatUint(d.netns, 10)
	if p.netns != nil {
		if name := p.netns(d.netns); name != "" {
			where += " (" + name + ")"
		}
	}
	i := &pcapng.Interface{Link: pcapng.Ethernet, Name: d.name, Description: where}
	if d.link == "ip" {
		i.Link = pcapng.IP
	}
	n := len(p.buf)
	p.buf = pcapng.AppendInterface(p.buf, i)
	p.add(n)
	d.there, d.number = true, uint32(len(p.order))
	p.order = append(p.order, d)
}

// statsMost is the longest block of statistics, and interfaceMost that of an interface.
const statsMost, interfaceMost = 256, 512

func (p *pcapngSink) Row(r *row.Row) error {
	if r.Schema != p.schema {
		return errors.New("pcapng: a row of another kind")
	}
	p.says(r)
	need := int64(pcapng.PacketMost(len(r.Bytes), len(p.comment)) + interfaceMost + statsMost*(len(p.order)+1))
	if p.files != nil && p.begun && p.written+need > p.files.Limit() {
		if err := p.next(); err != nil {
			return err
		}
	}
	if !p.begun {
		p.begin()
	}
	d := p.dev(r)
	lost := r.Cells[p.at.lost].N
	out := pcapng.Packet{
		Interface: d.number, Time: r.Cells[p.at.time].N, Data: r.Bytes, Len: uint32(r.Cells[p.at.bytes].N),
		Direction: pcapng.In, PID: uint32(r.Cells[p.at.pid].N), TID: uint32(r.Cells[p.at.tid].N), Comment: p.comment,
	}
	if r.Cells[p.at.dir].S == "out" {
		out.Direction = pcapng.Out
	}
	if lost > d.lost { // processors count in parallel: a packet may have a smaller count than the one before it
		out.Dropped, d.lost = lost-d.lost, lost
	}
	d.received++
	p.last = out.Time
	n := len(p.buf)
	p.buf = pcapng.AppendPacket(p.buf, &out)
	p.add(n)
	return p.room()
}

// says makes the comment of a packet: pid comm container, and who receives it where it stays here.
func (p *pcapngSink) says(r *row.Row) {
	c := p.comment[:0]
	if pid := &r.Cells[p.at.pid]; pid.Kind != row.Null {
		c = appendWho(c, pid, &r.Cells[p.at.comm])
		if box := &r.Cells[p.at.container]; box.Kind == row.Text && box.S != "" {
			c = append(append(c, " container "...), box.S...)
		}
	}
	if to := &r.Cells[p.at.toPID]; to.Kind != row.Null {
		if len(c) > 0 {
			c = append(c, ' ')
		}
		c = appendWho(append(c, "to "...), to, &r.Cells[p.at.toComm])
	}
	for i := range c { // a name can hold anything; the comment is one line of UTF-8
		if c[i] < ' ' || c[i] >= 0x7f {
			c[i] = '?'
		}
	}
	p.comment = c
}

func appendWho(b []byte, pid, comm *row.Cell) []byte {
	b = strconv.AppendUint(append(b, "pid "...), pid.N, 10)
	return append(append(b, ' '), comm.S...)
}

// next ends the file and begins the next one.
func (p *pcapngSink) next() error {
	p.stats("")
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.files.Next(); err != nil {
		return err
	}
	for _, d := range p.order {
		d.there, d.received = false, 0
	}
	p.order, p.written, p.begun = p.order[:0], 0, false
	return nil
}

// stats says of each device of the file how many packets came and how many were lost.
func (p *pcapngSink) stats(comment string) {
	n := len(p.buf)
	for _, d := range p.order {
		p.buf = pcapng.AppendStats(p.buf, &pcapng.Stats{
			Interface: d.number, Time: p.last, Received: d.received, Dropped: d.lost, Comment: comment,
		})
	}
	p.add(n)
}

func (p *pcapngSink) End(e row.End) error {
	if !p.begun {
		p.begin()
	}
	for _, l := range e.Losses {
		if l.Kind == row.RingFull {
			p.lost += l.N
		}
	}
	if e.Last {
		known := uint64(0)
		for _, d := range p.devs {
			known += d.lost
		}
		comment := ""
		if p.lost > known {
			comment = fmt.Sprintf("%d more packets were lost after the last one of their interface", p.lost-known)
		}
		p.stats(comment)
	}
	return p.flush()
}
