// SPDX-License-Identifier: Apache-2.0

package kbtf

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// sample is a kernel with a tracepoint, functions, an enum, and structs that hold
// and point to each other. It returns the same types as cilium/ebpf has them.
func sample(t *testing.T) ([]byte, *btf.Spec) {
	t.Helper()
	u32 := &btf.Int{Name: "u32", Size: 4}
	far := &btf.Struct{Name: "far", Size: 4, Members: []btf.Member{{Name: "x", Type: u32}}}
	inner := &btf.Struct{Name: "inner", Size: 8, Members: []btf.Member{
		{Name: "a", Type: u32}, {Name: "b", Type: &btf.Const{Type: u32}, Offset: 32},
	}}
	sock := &btf.Struct{Name: "sock", Size: 40}
	sock.Members = []btf.Member{
		{Name: "in", Type: &btf.Typedef{Name: "inner_t", Type: inner}},
		{Name: "far", Type: &btf.Pointer{Target: far}, Offset: 64},
		{Name: "next", Type: &btf.Pointer{Target: sock}, Offset: 128},
		{Name: "list", Type: &btf.Array{Index: u32, Type: u32, Nelems: 4}, Offset: 192},
	}
	reason := &btf.Enum{Name: "reason", Size: 4, Values: []btf.EnumValue{{Name: "NONE", Value: 0}, {Name: "FULL", Value: 7}}}
	toSock := &btf.Pointer{Target: &btf.Const{Type: sock}}
	toFar := &btf.Pointer{Target: far}
	trace := &btf.Typedef{Name: "btf_trace_drop", Type: &btf.Pointer{Target: &btf.FuncProto{
		Return: &btf.Void{},
		Params: []btf.FuncParam{{Type: &btf.Pointer{Target: &btf.Void{}}}, {Type: toSock}, {Type: toFar}, {Type: reason}},
	}}}
	send := &btf.Func{Name: "send", Type: &btf.FuncProto{Return: u32, Params: []btf.FuncParam{{Name: "sk", Type: toSock}, {Name: "n", Type: u32}}}}
	other := &btf.Struct{Name: "other", Size: 8, Members: []btf.Member{{Name: "f", Type: &btf.Pointer{Target: far}}}}
	twice := []btf.Type{&btf.Func{Name: "twice", Type: &btf.FuncProto{Return: u32}}, &btf.Func{Name: "twice", Type: &btf.FuncProto{Return: &btf.Void{}}}}
	b, err := btf.NewBuilder(append(twice, other, sock, trace, send, reason, &btf.Fwd{Name: "gone"}), nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return raw, spec
}

func read(t *testing.T, raw []byte, base *Types) *Types {
	t.Helper()
	types, err := Read(raw, base)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

func TestQuestions(t *testing.T) {
	raw, _ := sample(t)
	types := read(t, raw, nil)
	args, ok := types.Tracepoint("drop")
	if want := []Param{{true, "sock"}, {true, "far"}, {}}; !ok || !reflect.DeepEqual(args, want) {
		t.Errorf("arguments of drop: %v, want %v", args, want)
	}
	params, ok := types.Function("send")
	if want := []Param{{true, "sock"}, {}}; !ok || !reflect.DeepEqual(params, want) {
		t.Errorf("parameters of send: %v, want %v", params, want)
	}
	if got, want := types.Enum("reason"), []Value{{"NONE", 0}, {"FULL", 7}}; !reflect.DeepEqual(got, want) {
		t.Errorf("enum: %v, want %v", got, want)
	}
	for _, absent := range []string{"", "sen", "end", "sock", "btf_trace_drop", "twice"} {
		if _, ok := types.Function(absent); ok {
			t.Errorf("there is a function %q", absent)
		}
	}
	if _, ok := types.Tracepoint("send"); ok {
		t.Error("there is a tracepoint send")
	}
	if ids := types.Find("gone", Struct); ids != nil {
		t.Errorf("a struct that is only declared has numbers %v", ids)
	}
}

// TestModule: a module's types refer to the kernel's, by number and by name.
func TestModule(t *testing.T) {
	raw, spec := sample(t)
	var sock *btf.Struct
	if err := spec.TypeByName("sock", &sock); err != nil {
		t.Fatal(err)
	}
	id, err := spec.TypeID(sock)
	if err != nil {
		t.Fatal(err)
	}
	base := read(t, raw, nil)
	sendAt := uint32(bytes.Index(base.strings, []byte("\x00send\x00")) + 1)
	// A pointer to the kernel's sock, a prototype with it, and two functions: one
	// of a name that the kernel has too, one of a name that is the module's first.
	at, next := base.first+ID(base.count), uint32(len(base.strings))
	var types []byte
	for _, n := range []uint32{
		0, uint32(Pointer) << 24, uint32(id),
		0, uint32(FuncProto)<<24 | 1, 0, 0, at,
		sendAt, uint32(Func) << 24, at + 1,
		next, uint32(Func) << 24, at + 1,
	} {
		types = binary.NativeEndian.AppendUint32(types, n)
	}
	module := read(t, btfOf(types, []byte("receive\x00")), base)
	for _, name := range []string{"send", "receive"} {
		if got, ok := module.Function(name); !ok || !slices.Equal(got, []Param{{true, "sock"}}) {
			t.Errorf("%s: %v %v", name, got, ok)
		}
	}
	if _, ok := base.Function("receive"); ok {
		t.Error("the kernel has the module's function")
	}
}

// btfOf puts sections together.
func btfOf(types, strings []byte) (out []byte) {
	for _, n := range []uint32{1<<16 | magic, headerSize, 0, uint32(len(types)), uint32(len(types)), uint32(len(strings))} {
		out = binary.NativeEndian.AppendUint32(out, n)
	}
	return append(append(out, types...), strings...)
}

// TestPart: what was asked for is the same type under the same number, and the
// rest is gone.
func TestPart(t *testing.T) {
	raw, spec := sample(t)
	part, err := read(t, raw, nil).Part([]string{"sock", "btf_trace_drop", "send", "absent"})
	if err != nil {
		t.Fatal(err)
	}
	same := func(name string, want, got btf.Type) {
		t.Helper()
		a, err := spec.TypeID(want)
		if err != nil {
			t.Fatal(err)
		}
		b, err := part.TypeID(got)
		if err != nil || a != b {
			t.Errorf("%s has number %d in the part, %d in the whole (%v)", name, b, a, err)
		}
	}
	var sock, wasSock *btf.Struct
	if err := part.TypeByName("sock", &sock); err != nil {
		t.Fatal(err)
	}
	spec.TypeByName("sock", &wasSock)
	same("sock", wasSock, sock)
	if len(sock.Members) != 4 || sock.Members[0].Name != "in" || sock.Members[3].Offset != 192 {
		t.Fatalf("members: %v", sock.Members)
	}
	if in, ok := btf.UnderlyingType(sock.Members[0].Type).(*btf.Struct); !ok || len(in.Members) != 2 || in.Members[1].Name != "b" {
		t.Errorf("what it holds: %v", sock.Members[0].Type)
	}
	if a, ok := sock.Members[3].Type.(*btf.Array); !ok || a.Nelems != 4 {
		t.Errorf("its array: %v", sock.Members[3].Type)
	}
	if p, ok := sock.Members[2].Type.(*btf.Pointer); !ok || p.Target != sock {
		t.Errorf("a pointer to what is kept: %v", sock.Members[2].Type)
	}
	var trace, wasTrace *btf.Typedef
	if err := part.TypeByName("btf_trace_drop", &trace); err != nil {
		t.Fatal(err)
	}
	spec.TypeByName("btf_trace_drop", &wasTrace)
	same("btf_trace_drop", wasTrace, trace)
	params := trace.Type.(*btf.Pointer).Target.(*btf.FuncProto).Params
	if far, ok := params[2].Type.(*btf.Pointer).Target.(*btf.Struct); !ok || far.Name != "far" || len(far.Members) != 0 {
		t.Errorf("what an argument points to: %v, want its name alone", params[2].Type)
	}
	var send, wasSend *btf.Func
	if err := part.TypeByName("send", &send); err != nil {
		t.Fatal(err)
	}
	spec.TypeByName("send", &wasSend)
	same("send", wasSend, send)
	if err := btf.CheckTypeCompatibility(wasSend.Type, send.Type); err != nil {
		t.Error(err)
	}
	if _, err := part.AnyTypeByName("other"); err == nil {
		t.Error("what nobody asked for is there")
	}
}

// TestRunning: the kernel of this machine, beside what cilium/ebpf makes of it.
func TestRunning(t *testing.T) {
	types, err := Running()
	if os.IsNotExist(err) {
		t.Skip("no BTF here")
	}
	if err != nil {
		t.Fatal(err)
	}
	whole, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"sock", "tcp_sock", "sk_buff", "task_struct", "btf_trace_kfree_skb", "tcp_v4_rcv", "skb_drop_reason"}
	part, err := types.Part(names)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		a, err := whole.AnyTypeByName(name)
		if err != nil {
			continue // this kernel has no such thing
		}
		b, err := part.AnyTypeByName(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		wantID, _ := whole.TypeID(a)
		if id, _ := part.TypeID(b); id != wantID {
			t.Errorf("%s has number %d, want %d", name, id, wantID)
		}
		sa, ok := a.(*btf.Struct)
		if !ok {
			continue
		}
		sb, ok := b.(*btf.Struct)
		if !ok || len(sa.Members) != len(sb.Members) || sa.Size != sb.Size {
			t.Errorf("%s has %v, want %v", name, b, a)
			continue
		}
		for i, m := range sa.Members {
			n := sb.Members[i]
			if m.Name != n.Name || m.Offset != n.Offset || reflect.TypeOf(m.Type) != reflect.TypeOf(n.Type) {
				t.Errorf("%s: member %v, want %v", name, n, m)
			}
		}
	}
}

// TestBroken: BTF that is not whole is an error, never a panic.
func TestBroken(t *testing.T) {
	raw, _ := sample(t)
	for n := range len(raw) {
		if _, err := Read(raw[:n], nil); err == nil {
			t.Fatalf("%d of %d bytes are taken", n, len(raw))
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		b := slices.Clone(raw)
		for range 1 + r.IntN(4) {
			b[r.IntN(len(b))] = byte(r.Uint32())
		}
		types, err := Read(b, nil)
		if err != nil {
			continue
		}
		types.Tracepoint("drop")
		types.Function("send")
		types.Enum("reason")
		types.Part([]string{"sock", "btf_trace_drop", "send"})
	}
}
