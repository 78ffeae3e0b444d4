// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"os"
	"strings"

	"github.com/cilium/ebpf"

	"seine/internal/object"
	"seine/internal/probe"
)

// helpers are the constants of probe.h and sysarg.h that say whether a kernel has features that came after
// 5.10.
var helpers = []struct {
	constant, function string
	fits               func() bool
}{
	{constant: "make_cookies", function: "bpf_get_socket_ptr_cookie"},
	{constant: "typed_task", function: "bpf_get_current_task_btf"},
	{constant: "task_regs", function: "bpf_task_pt_regs"},
	{constant: "typed_any", function: "bpf_rdonly_cast", fits: compiles},
}

// functions are those of the kernel that settle asks for.
func functions() []string {
	names := []string{allocator}
	for _, h := range helpers {
		names = append(names, h.function)
	}
	return names
}

// asked are all names that a tool is going to look for in the types of the kernel. To look for all of them at first
// takes one pass.
func asked(name string) ([]string, error) {
	needs, err := object.Needs(name)
	return append(needs, functions()...), err
}

func setHelpers(spec *ebpf.CollectionSpec, k *probe.Kernel) error {
	if k.Given() {
		return nil // all of them take types that the verifier knows
	}
	for _, h := range helpers {
		if _, ok := spec.Variables[h.constant]; !ok || !k.HasFunc(h.function) || h.fits != nil && !h.fits() {
			continue
		}
		if err := setConstant(spec, h.constant, true); err != nil {
			return err
		}
	}
	return nil
}

// compiles says whether programs are compiled to machine code: only then may they call functions
// of the kernel. If it cannot be found out, the answer is no.
func compiles() bool {
	b, err := os.ReadFile("/proc/sys/net/core/bpf_jit_enable")
	return err == nil && strings.TrimSpace(string(b)) != "0"
}
