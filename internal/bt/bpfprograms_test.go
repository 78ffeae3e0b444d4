// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// TestBPFPrograms counts the runs of a BPF program that the test itself runs.
func TestBPFPrograms(t *testing.T) {
	needRoot(t)
	if err := running().fentry(); err != nil {
		t.Skip(err)
	}
	const name, result, runs = "seine_bt_target", 7, 11
	i32 := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	fn := &btf.Func{Name: name, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{Return: i32, Params: []btf.FuncParam{{Name: "ctx", Type: &btf.Pointer{Target: &btf.Struct{Name: "__sk_buff", Size: 4, Members: []btf.Member{{Name: "len", Type: i32}}}}}}}}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		btf.WithFuncMetadata(asm.Mov.Imm(asm.R0, result).WithSymbol(name), fn), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	id, _ := must(prog.Info()).ID()
	work := func() {
		for range runs {
			if code, _, err := prog.Test(make([]byte, 64)); err != nil || code != result {
				t.Errorf("the program gives %d, %v", code, err)
			}
		}
	}
	out, _ := live(t, script(fmt.Sprintf(`fentry:bpf:%s { @in[probe, func] = count(); } fexit:bpf:%d:seine_bt_* { @out[retval] = count(); }`, name, id)), Options{}, work)
	want(t, out, fmt.Sprintf("@in[fentry:bpf:%d:%s, %s]: %d\n", id, name, name, runs), fmt.Sprintf("@out[%d]: %d\n", result, runs))
	for text, wrong := range map[string]string{
		"fentry:bpf:seine_bt_targe { }":                      "no BPF program with BTF has a function seine_bt_targe: did you mean seine_bt_target?",
		fmt.Sprintf("fentry:bpf:%d:%s { }", id+100000, name): "no BPF program with BTF has a function",
		"fentry:bpf:x:" + name + " { }":                      "write a function of a BPF program as fentry:bpf:NAME or fentry:bpf:ID:NAME",
	} {
		if _, err := script(text)(Options{}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: got %v, want %s", text, err, wrong)
		}
	}
	var list strings.Builder
	check(List(&list, "fentry:bpf:*", true))
	want(t, list.String(), fmt.Sprintf("fentry:bpf:%d:%s\n    struct __sk_buff * ctx\n", id, name))
}

// TestPinned reads the file of a pinned iterator, and finds this process and its threads in it.
func TestPinned(t *testing.T) {
	needRoot(t)
	if err := running().fentry(); err != nil {
		t.Skip(err) // iterators are programs of the same type
	}
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Skipf("no file system of type bpf: %v", err)
	}
	defer func() { check(unix.Unmount(dir, 0)) }()
	file := filepath.Join(dir, "tasks")
	text := fmt.Sprintf(`iter:task:%s { if (ctx.task->tgid == %d) { printf("%%-6d|%%s|%%x|%%s 100%%\n", ctx.task->pid, ctx.task->comm, 255, "word"); } }`, file, os.Getpid())
	out, _ := live(t, script(text), Options{}, nil)
	want(t, out, "Program pinned to "+file+"\n")
	got := string(must(os.ReadFile(file)))
	want(t, got, fmt.Sprintf("%-6d|%s|ff|word 100%%\n", os.Getpid(), comm()))
	if n := strings.Count(got, "\n"); n < 1 || n > len(must(os.ReadDir("/proc/self/task")))+2 {
		t.Errorf("there are %d lines in\n%s", n, got)
	}
	if again := string(must(os.ReadFile(file))); !strings.Contains(again, "|ff|word") {
		t.Errorf("the second time it is\n%s", again)
	}
	for text, wrong := range map[string]string{
		"{ @ = count(); print(1); }":             "print() is not for a pinned iterator",
		`{ printf("%.2s", comm); }`:              "without precision",
		`{ printf("%c", 65); }`:                  "prints %d, %u, %x and %s, not %c",
		`{ printf("%s", ksym(ctx.task->pid)); }`: "a pinned iterator prints numbers and strings",
	} {
		if _, err := script("iter:task:x " + text)(Options{}); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: got %v, want %s", text, err, wrong)
		}
	}
	check(os.Remove(file))
}
