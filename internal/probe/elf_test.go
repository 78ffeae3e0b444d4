// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf/btf"

	"seine/internal/kbtf"
)

// TestInELF: BTF in a file has the types that it has alone, and takes little memory to read.
func TestInELF(t *testing.T) {
	types, err := kbtf.Running()
	if errors.Is(err, os.ErrNotExist) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	part := types.Part([]string{"sock", "task_struct", "btf_trace_inet_sock_set_state"})
	plain, err := btf.LoadSpecFromReader(bytes.NewReader(part))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	wrapped, err := btf.LoadSpecFromReader(inELF(part))
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sock", "sock_common", "task_struct", "list_head"} {
		want, err := plain.AnyTypeByName(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wrapped.AnyTypeByName(name)
		if err != nil {
			t.Fatal(err)
		}
		wantID, err1 := plain.TypeID(want)
		gotID, err2 := wrapped.TypeID(got)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		a, _ := btf.Sizeof(got)
		b, _ := btf.Sizeof(want)
		if gotID != wantID || a != b {
			t.Errorf("%s: type %d of %d bytes, want type %d of %d bytes", name, gotID, a, wantID, b)
		}
	}
	// A copy of it, and the numbers of where its types are.
	if took := after.TotalAlloc - before.TotalAlloc; took > 2*uint64(len(part)) {
		t.Errorf("reading %d bytes takes %d bytes of memory", len(part), took)
	}
}
