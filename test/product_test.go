// SPDX-License-Identifier: Apache-2.0

package test

import (
	"debug/elf"
	"debug/gosym"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProduct: only test binaries have live cases. The product has demos and
// self-tests. The linker leaves out code that is reached only through Live of a
// tool or RegisterForTests of the lab.
func TestProduct(t *testing.T) {
	files := linked(t, "./cmd/seine")
	for _, wrong := range liveFiles(files) {
		t.Errorf("%s is in the product: what demo and self-test need belongs into demo.go, and variables of live*.go may not call functions", wrong)
	}
	if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/tools/tcplife/demo.go") }) {
		t.Errorf("no function of tools/tcplife/demo.go was found among %d files: the test sees nothing", len(files))
	}
}

// TestLiveFiles: a live case that is linked is found.
func TestLiveFiles(t *testing.T) {
	got := liveFiles([]string{"/x/tools/tcplife/live.go", "/x/tools/tcplife/demo.go", "/x/internal/lab/fortests.go", "/x/tools/solife/livelab.go"})
	if want := []string{"tools/tcplife/live.go", "internal/lab/fortests.go", "tools/solife/livelab.go"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// liveFiles picks the files that hold live cases.
func liveFiles(files []string) (out []string) {
	for _, f := range files {
		for _, pattern := range []string{"tools/*/live*.go", "internal/lab/fortests.go"} {
			parts := strings.Split(f, "/")
			short := strings.Join(parts[max(0, len(parts)-3):], "/")
			if ok, _ := filepath.Match(pattern, short); ok {
				out = append(out, short)
			}
		}
	}
	return out
}

// linked builds a command and lists the files that its functions are from.
func linked(t *testing.T, pkg string) []string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "product")
	cmd := exec.Command("go", "build", "-o", bin, pkg)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := f.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(lines, f.Section(".text").Addr))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range table.Funcs {
		f := &table.Funcs[i]
		end := f.Entry + 1
		if strings.HasPrefix(f.Name, "seine/tools/") {
			end = f.End // what is inlined, and init, which sets variables of all files
		}
		for pc := f.Entry; pc < end; pc++ {
			file, _, _ := table.PCToLine(pc)
			seen[file] = true
		}
	}
	var out []string
	for file := range seen {
		out = append(out, file)
	}
	return out
}
