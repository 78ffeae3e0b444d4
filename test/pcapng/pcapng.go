// SPDX-License-Identifier: Apache-2.0

// Package pcapng reads files of packets, for tests. It is independent of the
// writer.
package pcapng

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A Block is one of a pcapng file.
type Block struct {
	Type      uint32
	Interface uint32
	Time      uint64 // packets and statistics
	Len       uint32 // packets: of the packet, of which Data may be the beginning
	Data      []byte
	Link      uint16 // interfaces
	Options   map[uint16][]byte
}

// The types of blocks.
const (
	Section   = 0x0A0D0D0A
	Interface = 1
	Stats     = 5
	Packet    = 6
)

// Process is the option epb_processid_threadid.
func (b *Block) Process() (pid, tid uint32, ok bool) {
	o := b.Options[8]
	if len(o) != 8 {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint32(o), binary.LittleEndian.Uint32(o[4:]), true
}

// fixed is the number of bytes before the options of each type of block,
// without data.
var fixed = map[uint32]int{Section: 16, Interface: 8, Stats: 12, Packet: 20}

// Read reads a whole file, which must be little-endian.
func Read(b []byte) (all []Block, err error) {
	interfaces := uint32(0)
	for len(b) > 0 {
		if len(b) < 12 {
			return all, errors.New("a block is cut off")
		}
		one := Block{Type: binary.LittleEndian.Uint32(b)}
		size := binary.LittleEndian.Uint32(b[4:])
		if size%4 != 0 || size < 12 || int(size) > len(b) || binary.LittleEndian.Uint32(b[size-4:]) != size {
			return all, fmt.Errorf("block %d says that it has %d bytes", len(all), size)
		}
		body := b[8 : size-4]
		b = b[size:]
		n, ok := fixed[one.Type]
		if !ok || len(body) < n {
			return all, fmt.Errorf("block %d: type %#x, %d bytes", len(all), one.Type, len(body))
		}
		head, rest := body[:n], body[n:]
		switch one.Type {
		case Section:
			if binary.LittleEndian.Uint32(head) != 0x1A2B3C4D || len(all) > 0 {
				return all, errors.New("a section is not little-endian, or not the first block")
			}
		case Interface:
			one.Link, one.Interface = binary.LittleEndian.Uint16(head), interfaces
			interfaces++
		case Packet, Stats:
			one.Interface = binary.LittleEndian.Uint32(head)
			one.Time = uint64(binary.LittleEndian.Uint32(head[4:]))<<32 | uint64(binary.LittleEndian.Uint32(head[8:]))
			if one.Interface >= interfaces {
				return all, fmt.Errorf("block %d is of interface %d, and there are %d", len(all), one.Interface, interfaces)
			}
			if one.Type == Stats {
				break
			}
			kept := binary.LittleEndian.Uint32(head[12:])
			one.Len = binary.LittleEndian.Uint32(head[16:])
			if int((kept+3)&^3) > len(rest) {
				return all, fmt.Errorf("block %d has no %d bytes", len(all), kept)
			}
			one.Data, rest = rest[:kept], rest[(kept+3)&^3:]
		}
		if one.Options, err = options(rest); err != nil {
			return all, fmt.Errorf("block %d: %w", len(all), err)
		}
		all = append(all, one)
	}
	return all, nil
}

func options(b []byte) (map[uint16][]byte, error) {
	all := map[uint16][]byte{}
	for len(b) >= 4 {
		code, size := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
		if code == 0 {
			if size != 0 || len(b) != 4 {
				return nil, errors.New("something follows the last option")
			}
			return all, nil
		}
		if (size+3)&^3 > len(b)-4 {
			return nil, fmt.Errorf("option %d has no %d bytes", code, size)
		}
		all[code] = b[4 : 4+size]
		b = b[4+(size+3)&^3:]
	}
	if len(b) > 0 {
		return nil, errors.New("options are cut off")
	}
	return all, nil
}

// A Frame is a packet of a pcap file.
type Frame struct {
	Time time.Time
	Data []byte
}

// Frames reads the packets of a pcap file, as tcpdump writes it.
func Frames(b []byte) (all []Frame, err error) {
	if len(b) < 24 || binary.LittleEndian.Uint32(b) != 0xa1b2c3d4 {
		return nil, errors.New("this is no pcap file")
	}
	for b = b[24:]; len(b) >= 16; {
		at := time.Unix(int64(binary.LittleEndian.Uint32(b)), 1000*int64(binary.LittleEndian.Uint32(b[4:])))
		n := int(binary.LittleEndian.Uint32(b[8:]))
		if n > len(b)-16 {
			return all, errors.New("a packet is cut off")
		}
		all = append(all, Frame{at, b[16 : 16+n]})
		b = b[16+n:]
	}
	return all, nil
}
