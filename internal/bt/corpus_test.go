// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"seine/internal/host"
	"seine/internal/lab"
)

//go:embed testdata/corpus
var corpus embed.FS

// traced is a function for uprobes.
//
//go:noinline
func traced(n int) int { return n * 3 }

// needRoot skips where BPF may not be used.
func needRoot(t *testing.T) {
	t.Helper()
	if len(host.NeedTrace.Missing()) > 0 {
		t.Skip("needs CAP_BPF and CAP_PERFMON")
	}
	if err := host.Memlock(); err != nil {
		t.Log(err)
	}
}

// lack ends a test that needs what make test installs, or what the machine that runs it
// has: guests do without, elsewhere a test that did not run must not look well.
func lack(t *testing.T, what any) {
	t.Helper()
	if lab.Emulated() {
		t.Skip(what)
	}
	t.Fatal(what)
}

// loadOnly is this kernel, made to believe that it has kprobes: the programs can
// be loaded wherever BPF can, if not attached.
func loadOnly() *kernel {
	k := newKernel()
	k.kprobes = func() error { return nil }
	k.cookies = running().cookies
	k.multi = func() bool { return false }
	return k
}

func scripts(t *testing.T) map[string]string {
	t.Helper()
	files, err := corpus.ReadDir("testdata/corpus")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		data, err := corpus.ReadFile(path.Join("testdata/corpus", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[f.Name()] = string(data)
	}
	return all
}

// options reads the comments at the beginning of a script of the corpus.
func options(text string) Options {
	o := Options{Err: &strings.Builder{}}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "// args: "); ok {
			for _, w := range strings.Fields(rest) {
				if w == "SELF" {
					w, _ = os.Executable()
				}
				o.Args = append(o.Args, w)
			}
		}
		o.Unsafe = o.Unsafe || strings.HasPrefix(line, "// unsafe")
	}
	return o
}

// needKernel skips a script that begins with "// since 5.17: why" on an older kernel.
func needKernel(t *testing.T, text string) {
	t.Helper()
	var major, minor, since, andMinor int
	if n, _ := fmt.Sscanf(text, "// since %d.%d", &since, &andMinor); n < 2 {
		return
	}
	must(fmt.Sscanf(host.KernelVersion(), "%d.%d", &major, &minor))
	if major < since || major == since && minor < andMinor {
		reason, _, _ := strings.Cut(text, "\n")
		t.Skip(reason)
	}
}

// TestCorpus compiles every script and loads all of its programs.
func TestCorpus(t *testing.T) {
	needRoot(t)
	k := loadOnly()
	passed := 0
	for name, text := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			if what, of := strings.CutPrefix(text, "// amd64 only: "); of && runtime.GOARCH != "amd64" {
				reason, _, _ := strings.Cut(what, "\n")
				t.Skip(reason)
			}
			needKernel(t, text)
			s, err := Parse(&Source{Name: name, Text: text})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			p, err := compile(s, k, options(text))
			var missing *missingError
			if errors.As(err, &missing) {
				t.Skip(missing) // a driver or a tracepoint that this kernel does not have
			}
			if noForEach(err) || err != nil && strings.Contains(err.Error(), "this kernel has no symbol") {
				t.Skip(err) // symbols of data need CONFIG_KALLSYMS_ALL
			}
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			l, err := p.makeMaps()
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			n := 0
			for _, j := range p.jobs {
				target := j.targets[0]
				if (target.Way == Fentry || target.Way == Fexit || target.Way == Iter) && k.fentry() != nil {
					continue
				}
				progs, err := p.programs(l, j, target, false)
				if err != nil {
					t.Errorf("%v", err)
					continue
				}
				n += len(j.code.ins)
				closeAll(progs)
			}
			passed++
			t.Logf("%d probes, %d programs, %d instructions, compiled in %v", p.Probes(), len(p.jobs), n, took.Round(time.Microsecond))
		})
	}
	t.Logf("%d of %d scripts", passed, len(scripts(t)))
	if n := len(scripts(t)); n < 200 || passed < n*8/10 {
		t.Errorf("%d of %d scripts passed, want at least 200 scripts, and eight of ten to pass", passed, n)
	}
}

// A userRecord is what pointers of user space lead to in tests: struct rec of their
// scripts.
type userRecord struct {
	a    int32
	name [4]byte
	b    int64
	next *userRecord
	arr  [2][2]int32
}

// tracedAt is a function for uprobes whose argument is a pointer, in the register
// that userPointer names.
//
//go:noinline
func tracedAt(r *userRecord) int64 { return r.b + int64(r.next.a) }
