// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/cilium/ebpf/asm"

// In an event: the time and the namespace, the process, the connection, and what the tool adds.
const (
	theEvent = theArgs // nothing of the context is read after that

	eventTime, eventNetns, eventWho, eventThread, eventTuple, eventOwn = 0, 12, 16, 56, 72, 120
)

// says reserves an event of so many bytes, has blocks fill it, and sends it.
func says(bytes int32, fills ...block) block {
	return func(b *body) {
		ring, err := b.listen()
		if err != nil {
			b.keep(err)
			return
		}
		const noWakeUp = 1
		b.do(asm.LoadMapPtr(asm.R1, ring.FD()), asm.Mov.Imm(asm.R2, bytes), asm.Mov.Imm(asm.R3, 0), asm.FnRingbufReserve.Call(),
			asm.JEq.Imm(asm.R0, 0, "end"), asm.Mov.Reg(theEvent, asm.R0))
		b.add(fills)
		b.do(asm.Mov.Reg(asm.R1, theEvent), asm.Mov.Imm(asm.R2, noWakeUp), asm.FnRingbufSubmit.Call())
	}
}

// heads writes when, and in which network namespace.
func heads(b *body) {
	b.do(asm.StoreMem(theEvent, eventTime, theTime, asm.DWord))
	b.load(asm.R2, theSocket, "sock", "__sk_common.skc_net.net")
	b.copies(theEvent, eventNetns, asm.R2, "net", "ns.inum", asm.Word)
	b.do(asm.Mov.Imm(asm.R1, 0), asm.StoreMem(theEvent, eventThread, asm.R1, asm.DWord), asm.StoreMem(theEvent, eventThread+8, asm.R1, asm.DWord))
}

// owner writes the process that the entry has.
func owner(b *body) {
	for i := int16(0); i < whoBytes; i += 8 {
		b.do(asm.LoadMem(asm.R1, theEntry, i, asm.DWord), asm.StoreMem(theEvent, eventWho+i, asm.R1, asm.DWord))
	}
}

// self writes the current process.
func self(b *body) {
	b.process(theEvent, eventWho)
	b.do(asm.Mov.Imm(asm.R1, 0), asm.StoreMem(theEvent, eventWho+whoFlags, asm.R1, asm.Word))
}

// tuple writes the addresses and ports of a connection over IPv4, and the socket's cookie.
func tuple(b *body) {
	const local, remote, localPort, remotePort, family, protocol, cookie = eventTuple, eventTuple + 16, eventTuple + 32, eventTuple + 34, eventTuple + 36, eventTuple + 38, eventTuple + 40
	b.copies(theEvent, local, theSocket, "sock", "__sk_common.skc_rcv_saddr", asm.Word)
	b.copies(theEvent, remote, theSocket, "sock", "__sk_common.skc_daddr", asm.Word)
	b.copies(theEvent, remotePort, theSocket, "sock", "__sk_common.skc_dport", asm.Half)
	b.copies(theEvent, family, theSocket, "sock", "__sk_common.skc_family", asm.Half)
	b.copies(theEvent, protocol, theSocket, "sock", "sk_protocol", asm.Half)
	b.copies(theEvent, cookie, theSocket, "sock", "__sk_common.skc_cookie", asm.DWord)
	b.cast(theSocket, "inet_sock")
	b.copies(theEvent, localPort, asm.R0, "inet_sock", "inet_sport", asm.Half)
}

// change writes what tcpstates adds: the socket, the time in the old state, and both states.
func change(b *body) {
	b.do(asm.StoreMem(theEvent, eventOwn, theSocket, asm.DWord))
	b.spent(eventOwn + 8)
	b.do(asm.LoadMem(asm.R1, asm.RFP, stackOld, asm.DWord), asm.StoreMem(theEvent, eventOwn+16, asm.R1, asm.Byte),
		asm.LoadMem(asm.R1, asm.RFP, stackNew, asm.DWord), asm.StoreMem(theEvent, eventOwn+17, asm.R1, asm.Byte))
}

// queued writes what tcpaccept adds, without the length of the queue: the time in it.
func queued(b *body) { b.spent(eventOwn) }

func (b *body) spent(at int16) {
	b.do(asm.LoadMem(asm.R1, asm.RFP, stackSpent, asm.DWord), asm.StoreMem(theEvent, at, asm.R1, asm.DWord))
}

// session writes what tcplife adds: the socket's numbers of bytes and segments, two times, the congestion control, the state
// and the error.
func session(b *body) {
	const tcp = asm.R0
	b.do(asm.LoadMem(asm.R1, theEntry, entrySince, asm.DWord), asm.StoreMem(theEvent, eventOwn, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, theEntry, entryLater, asm.DWord), asm.StoreMem(theEvent, eventOwn+8, asm.R1, asm.DWord))
	b.do(asm.LoadMem(asm.R1, asm.RFP, stackOld, asm.DWord), asm.StoreMem(theEvent, eventOwn+16, asm.R1, asm.Byte))
	b.copies(theEvent, eventOwn+20, theSocket, "sock", "sk_err", asm.Word)
	b.cast(theSocket, "tcp_sock")
	b.copies(theEvent, eventOwn+24, tcp, "tcp_sock", "bytes_acked", asm.DWord)
	b.copies(theEvent, eventOwn+32, tcp, "tcp_sock", "bytes_received", asm.DWord)
	for i, number := range []string{"snd_una", "snd_nxt", "write_seq", "total_retrans", "srtt_us"} {
		b.copies(theEvent, eventOwn+40+4*int16(i), tcp, "tcp_sock", number, asm.Word)
	}
	b.load(asm.R2, tcp, "tcp_sock", "inet_conn.icsk_ca_ops")
	b.text(theEvent, eventOwn+64, asm.R2, "tcp_congestion_ops", "name")
}
