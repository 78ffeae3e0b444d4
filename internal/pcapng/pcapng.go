// SPDX-License-Identifier: Apache-2.0

// Package pcapng writes the blocks of a pcapng file (draft-ietf-opsawg-pcapng). Functions append
// a block to a buffer. Numbers are little-endian, and times are nanoseconds.
package pcapng

import "encoding/binary"

// Types of blocks.
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockStats     = 5
	blockPacket    = 6
)

// Codes of options.
const (
	optEnd     = 0
	optComment = 1

	sectionHardware, sectionOS, sectionApp = 2, 3, 4

	interfaceName, interfaceDescription, interfaceResolution = 2, 3, 9

	packetFlags, packetDropped, packetProcess = 2, 4, 8

	statsEnd, statsReceived, statsDropped = 3, 4, 5
)

// Link types.
const (
	Ethernet = 1   // LINKTYPE_ETHERNET
	IP       = 101 // LINKTYPE_RAW: begins with the IP header
)

// Direction is which way a packet goes.
type Direction uint32

// The directions, as in epb_flags.
const (
	Unknown Direction = iota
	In
	Out
)

// longest is how many bytes of a text an option holds here: a hostile name must not fill its 64 KB.
const longest = 4096

// Section begins a section: each file has one.
type Section struct{ Hardware, OS, App string }

// Interface is a device. Interfaces are numbered from 0 on in the order in which a section has them.
type Interface struct {
	Link              uint16
	Snaplen           uint32
	Name, Description string
}

// Packet is one packet.
type Packet struct {
	Interface uint32
	Time      uint64 // nanoseconds since the Unix epoch
	Data      []byte
	Len       uint32 // of the packet, of which Data may be the beginning
	Direction Direction
	PID, TID  uint32 // 0: unknown
	Dropped   uint64 // packets of the interface that were lost before this one and after the one before
	Comment   []byte
}

// Stats is what is known of an interface at a moment.
type Stats struct {
	Interface         uint32
	Time              uint64
	Received, Dropped uint64
	Comment           string
}

// AppendSection appends a section header.
func AppendSection(b []byte, s *Section) []byte {
	b, at := begin(b, blockSection)
	b = u32(b, 0x1A2B3C4D)
	b = append(b, 1, 0, 0, 0) // version 1.0
	b = u64(b, ^uint64(0))    // of unknown length
	b = text(b, sectionHardware, s.Hardware)
	b = text(b, sectionOS, s.OS)
	b = text(b, sectionApp, s.App)
	return end(b, at)
}

// AppendInterface appends the description of an interface.
func AppendInterface(b []byte, i *Interface) []byte {
	b, at := begin(b, blockInterface)
	b = u16(b, i.Link)
	b = u16(b, 0)
	b = u32(b, i.Snaplen)
	b = text(b, interfaceName, i.Name)
	b = text(b, interfaceDescription, i.Description)
	b = option(b, interfaceResolution, 1)
	b = append(b, 9, 0, 0, 0) // nanoseconds
	return end(b, at)
}

// AppendPacket appends a packet.
func AppendPacket(b []byte, p *Packet) []byte {
	b, at := begin(b, blockPacket)
	b = u32(b, p.Interface)
	b = moment(b, p.Time)
	b = u32(b, uint32(len(p.Data)))
	b = u32(b, p.Len)
	b = pad(append(b, p.Data...), len(p.Data))
	if p.Direction != Unknown {
		b = u32(option(b, packetFlags, 4), uint32(p.Direction))
	}
	if p.Dropped > 0 {
		b = u64(option(b, packetDropped, 8), p.Dropped)
	}
	if p.PID != 0 {
		b = u32(u32(option(b, packetProcess, 8), p.PID), p.TID)
	}
	b = text(b, optComment, p.Comment)
	return end(b, at)
}

// PacketMost is the longest block of a packet with so many bytes of data and of comment.
func PacketMost(data, comment int) int {
	return 32 + data + 3 + 8 + 12 + 12 + 4 + min(comment, longest) + 3 + 4
}

// AppendStats appends what is known of an interface.
func AppendStats(b []byte, s *Stats) []byte {
	b, at := begin(b, blockStats)
	b = u32(b, s.Interface)
	b = moment(b, s.Time)
	b = text(b, optComment, s.Comment)
	b = moment(option(b, statsEnd, 8), s.Time)
	b = u64(option(b, statsReceived, 8), s.Received)
	b = u64(option(b, statsDropped, 8), s.Dropped)
	return end(b, at)
}

// begin appends the head of a block; end writes its length there.
func begin(b []byte, kind uint32) ([]byte, int) {
	at := len(b)
	return u32(u32(b, kind), 0), at
}

// end closes the options and the block. Every block of ours has options.
func end(b []byte, at int) []byte {
	b = option(b, optEnd, 0)
	size := uint32(len(b) - at + 4)
	binary.LittleEndian.PutUint32(b[at+4:], size)
	return u32(b, size)
}

func option(b []byte, code, size uint16) []byte { return u16(u16(b, code), size) }

func text[T string | []byte](b []byte, code uint16, s T) []byte {
	if len(s) == 0 {
		return b
	}
	s = s[:min(len(s), longest)]
	return pad(append(option(b, code, uint16(len(s))), s...), len(s))
}

// pad fills up to a multiple of four bytes.
func pad(b []byte, n int) []byte { return append(b, []byte{0, 0, 0}[:-n&3]...) }

// moment appends a time: the upper half comes first.
func moment(b []byte, t uint64) []byte { return u32(u32(b, uint32(t>>32)), uint32(t)) }

func u16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }
func u32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func u64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }
