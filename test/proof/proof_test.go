// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tree is a repository with the inputs of soak.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, in := range append(inputs["soak"], Folder) {
		if err := os.MkdirAll(filepath.Join(root, in), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, root, in+"/x", "first")
	}
	run(t, root, "init", "-q")
	commit(t, root)
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, root string, args ...string) {
	t.Helper()
	c := exec.Command("git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example"}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func commit(t *testing.T, root string) {
	t.Helper()
	run(t, root, "add", "-A")
	run(t, root, "commit", "-qm", "x")
}

// verdict is what Check says of the one proof.
func verdict(t *testing.T, root string) string {
	t.Helper()
	all, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		return fmt.Sprint(len(all), " proofs")
	}
	return fmt.Sprint(all[0].Text, "; ", all[0].Err)
}

func TestCheck(t *testing.T) {
	root := tree(t)
	want := func(what string) {
		t.Helper()
		if got := verdict(t, root); !strings.Contains(got, what) {
			t.Errorf("%q is not in %q", what, got)
		}
	}
	defer func(old []string) { Required = old }(Required)
	Required = nil
	want("0 proofs")
	Required = []string{"soak"}
	want("it is missing: run make soak")

	p, err := Of(root, "soak", "6.12")
	if err != nil {
		t.Fatal(err)
	}
	p.Attr("=== ATTR  TestSockets sockets 100000 of 100000")
	p.Attr("=== RUN   TestSockets")
	p.Attr("6197 passed, 17 failed, 207 skipped")
	p.Attr("    6197 passed, 17 failed")
	if len(p.Figures) != 2 || p.Figures["tests"] != "6197 passed, 17 failed, 207 skipped" || p.Figures["sockets"] != "100000 of 100000" {
		t.Errorf("figures %v", p.Figures)
	}
	if err := p.Write(root); err != nil {
		t.Fatal(err)
	}
	want("it failed")
	p.OK = true
	if err := p.Write(root); err != nil {
		t.Fatal(err)
	}
	commit(t, root)
	want("on 6.12: nothing has changed since; <nil>")

	for i := range Behind {
		write(t, root, "bpf/x", fmt.Sprint(i))
		commit(t, root)
		write(t, root, "README", fmt.Sprint(i)) // it is not about that
		commit(t, root)
	}
	want("30 commits behind, of 30; <nil>")
	write(t, root, "bpf/x", "last")
	commit(t, root)
	want("31 commits behind, of 30; it is stale: run make soak")
	if _, err := Of(root, "unheard", "6.12"); err == nil {
		t.Error("a proof that nothing is known about")
	}
}

// TestInputs: the inputs of proofs exist.
func TestInputs(t *testing.T) {
	for name, in := range inputs {
		if _, err := hashOf("../..", in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
