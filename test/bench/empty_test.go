// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/host"
	"seine/internal/kern"
	"seine/internal/object"
)

// TestKeyed: programs that look a hash with a large key up find their entry, and add to it.
func TestKeyed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if err := host.Memlock(); err != nil {
		t.Fatal(err)
	}
	e := &empty{hashes: 1, key: ioKey, adds: 2}
	defer e.release()
	code, err := e.program()
	if err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	for range 3 {
		if _, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
			t.Fatal(err)
		}
	}
	var entry [8]uint64
	if err := e.maps[0].Lookup(make([]byte, ioKey), &entry); err != nil {
		t.Fatal(err)
	}
	if entry[1] != 3 || entry[2] != 3 {
		t.Errorf("the entry has %v, want 3 in its second and third number", entry)
	}
}

// TestKeySize: the leasts of socketio and sormem have a key of the tool's size.
func TestKeySize(t *testing.T) {
	if got := unsafe.Sizeof(kern.IOKey{}); got != ioKey {
		t.Errorf("the key of sends and receives has %d bytes, the least one of %d", got, ioKey)
	}
	spec, err := object.Spec("sormem")
	if err != nil {
		t.Fatal(err)
	}
	if got := spec.Maps["fills"].KeySize; got != memKey {
		t.Errorf("the key of fills has %d bytes, the least one of %d", got, memKey)
	}
}
