// SPDX-License-Identifier: Apache-2.0

package sni

import (
	"net/netip"
	"unsafe"

	"seine/internal/kern"
	"seine/internal/names"
)

// Names takes names from the ClientHellos of TLS clients.
var Names = names.Source{Object: "sni", Points: Tool.Points, Learn: learn}

func learn(raw []byte, tell func(names.Name)) {
	var h hello
	if len(raw) < int(unsafe.Sizeof(h)) {
		return
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h)), raw)
	name := kern.TLSHello(h.Data.V[:min(int(h.Len), len(h.Data.V))]).Name
	tell(names.Name{Netns: uint32(h.Netns), PID: uint32(h.PID), Sock: uint64(h.Sock), Addr: netip.AddrFrom16(h.Raddr), Name: name})
}
