// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"encoding/binary"
	"maps"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"seine/internal/object"
)

// TestHardirqNames: handlers that share a line are distinguished by their names,
// which hardirqs compares by words of memory. Not every machine has such handlers,
// so the test runs the program with synthetic ones.
func TestHardirqNames(t *testing.T) {
	spec, err := object.Spec("hardirqs")
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != "entry__raw" })
	if err := spec.Variables["counting"].Set(true); err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := newAction()
	if err != nil {
		t.Fatal(err)
	}
	defer a.memory.Close()

	const full = 39 // of the 40 bytes one is for the end
	long := strings.Repeat("0123456789", 5)
	want := map[string]uint64{}
	for i, text := range []string{
		"eth0", "eth0-rx", "eth0\x00rx", "eth", "12345678", "12345678\x00", "123456789", "12345678\x009", "",
		"\x00eth0", long, long + "0", long[:full], "eth0\x00\x01\x01\x80\x80", "eth1", "eth0\x80",
	} {
		if err := a.run(c.Programs["entry__raw"], text); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		name, _, _ := strings.Cut(text, "\x00")
		want[name[:min(len(name), full)]]++
	}
	if got := counted(t, c.Maps["times"]); !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	var lost [16]uint64
	if err := c.Variables["losses"].Get(lost[:c.Variables["losses"].Size()/8]); err != nil || lost != [16]uint64{} {
		t.Errorf("lost %v (%v)", lost, err)
	}
}

// counted is the count of each name, over all processors.
func counted(t *testing.T, times *ebpf.Map) map[string]uint64 {
	st := times.ValueSize()
	got := map[string]uint64{}
	var key [12]byte
	value := make([]byte, st)
	it := times.Iterate()
	for it.Next(&key, &value) {
		name := value[st-40:] // the last field of the last struct
		name, _, _ = bytes.Cut(name, []byte{0})
		got[string(name)] += binary.LittleEndian.Uint64(value)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// An action is a struct irqaction in memory of the kernel: the only value of a map.
type action struct {
	memory  *ebpf.Map
	address uint64
	name    uint32 // offset of the field
}

const actionText, actionSize = 512, 1024

func newAction() (*action, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, err
	}
	var st *btf.Struct
	if err := kernel.TypeByName("irqaction", &st); err != nil {
		return nil, err
	}
	a := &action{}
	for _, m := range st.Members {
		if m.Name == "name" {
			a.name = m.Offset.Bytes()
		}
	}
	a.memory, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: actionSize, MaxEntries: 1})
	if err != nil {
		return nil, err
	}
	// The memory gets its own address, to be read from it.
	self, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, a.memory.FD()), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.StoreMem(asm.R0, 0, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return(),
	}})
	if err != nil {
		a.memory.Close()
		return nil, err
	}
	defer self.Close()
	value := make([]byte, actionSize)
	_, err = self.Run(&ebpf.RunOptions{})
	if err == nil {
		err = a.memory.Lookup(uint32(0), &value)
	}
	if err != nil {
		a.memory.Close()
		return nil, err
	}
	a.address = binary.LittleEndian.Uint64(value)
	return a, nil
}

// run runs the program with an interrupt whose handler is called text.
func (a *action) run(p *ebpf.Program, text string) error {
	value := make([]byte, actionSize)
	binary.LittleEndian.PutUint64(value[a.name:], a.address+actionText)
	copy(value[actionText:], text)
	if err := a.memory.Put(uint32(0), value); err != nil {
		return err
	}
	_, err := p.Run(&ebpf.RunOptions{Context: []uint64{7, a.address}})
	return err
}
