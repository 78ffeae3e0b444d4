// SPDX-License-Identifier: Apache-2.0

package bt

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dump is a tree as text: (op operands).
func dump(e Expr) string {
	list := func(xs []Expr) string {
		var s []string
		for _, x := range xs {
			s = append(s, dump(x))
		}
		return strings.Join(s, " ")
	}
	switch e := e.(type) {
	case *Int:
		return fmt.Sprint(e.V)
	case *Str:
		return fmt.Sprintf("%q", e.V)
	case *Ident:
		return e.Name
	case *Var:
		return e.Name
	case *MapRef:
		if e.Keys == nil {
			return e.Name
		}
		return e.Name + "[" + list(e.Keys) + "]"
	case *Param:
		return fmt.Sprintf("$%d", e.N)
	case *Call:
		return strings.TrimSpace("("+e.Name+" "+list(e.Args)) + ")"
	case *Unary:
		return "(" + e.Op + " " + dump(e.X) + ")"
	case *IncDec:
		if e.Prefix {
			return "(" + e.Op + " " + dump(e.X) + ")"
		}
		return "(" + dump(e.X) + " " + e.Op + ")"
	case *Binary:
		return "(" + e.Op + " " + dump(e.X) + " " + dump(e.Y) + ")"
	case *Ternary:
		return "(? " + dump(e.C) + " " + dump(e.X) + " " + dump(e.Y) + ")"
	case *Cast:
		return "(cast " + strings.TrimSpace(e.To.Tag+" "+e.To.Name) + strings.Repeat("*", e.To.Stars) + " " + dump(e.X) + ")"
	case *Field:
		return "(. " + dump(e.X) + " " + e.Name + ")"
	case *Index:
		return "([] " + dump(e.X) + " " + dump(e.I) + ")"
	case *Tuple:
		return "(tuple " + list(e.Elems) + ")"
	case *Sizeof:
		return "sizeof"
	}
	return "?"
}

func TestTrees(t *testing.T) {
	for _, c := range []struct{ text, pred, expr string }{
		{"1 + 2 * 3 - 4", "", "(- (+ 1 (* 2 3)) 4)"},
		{"1 << 2 + 3 & 4 | 5 ^ 6 && 7 || 8", "", "(|| (&& (| (& (<< 1 (+ 2 3)) 4) (^ 5 6)) 7) 8)"},
		{"a - b - c", "", "(- (- a b) c)"},
		{"a == b != c < d", "", "(!= (== a b) (< c d))"},
		{"a ? b : c ? d : e", "", "(? a b (? c d e))"},
		{"- args->ret", "", "(- (. args ret))"},
		{"!a->b.c[1]", "", "(! ([] (. (. a b) c) 1))"},
		{"*kaddr(\"x\")", "", "(* (kaddr \"x\"))"},
		{"(struct sock *)arg0", "", "(cast struct sock* arg0)"},
		{"((struct sock *)arg0)->a", "", "(. (cast struct sock* arg0) a)"},
		{"(uint32)a + 1", "", "(+ (cast uint32 a) 1)"},
		{"(a) + 1", "", "(+ a 1)"},
		{"(pair_t *)a", "", "(cast pair_t* a)"},
		{"(a, \"b\", (1, 2)).2.0", "", "(. (. (tuple a \"b\" (tuple 1 2)) 2) 0)"},
		{"@x[1, @y].f", "", "(. @x[1 @y] f)"},
		{"a++ + ++@b", "", ""},
		{"$x++ + --@b[1]", "", "(+ ($x ++) (-- @b[1]))"},
		{"0xff + 1e3 + 10ms", "", "(+ (+ 255 1000) 10000000)"},
		{"-5", "", "-5"},
		{"a&&!b", "", "(&& a (! b))"},
	} {
		s, err := Parse(&Source{Name: "t", Text: "BEGIN { @r = " + c.text + "; }"})
		if c.expr == "" {
			if err == nil {
				t.Errorf("%s was taken", c.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := dump(s.Clauses[0].Body[0].(*Assign).Value); got != c.expr {
			t.Errorf("%s\ngot  %s\nwant %s", c.text, got, c.expr)
		}
	}
}

func TestPoints(t *testing.T) {
	for _, c := range []struct{ text, points, pred string }{
		{"k:a,k:b /pid == 1/ { }", "k:a|k:b", "(== pid 1)"},
		{"k:a,\nk:b\n/pid / 2 == 1/\n{ }", "k:a|k:b", "(== (/ pid 2) 1)"},
		{"k:a/pid/{ }", "k:a", "pid"},
		{"u:/bin/bash:readline /1/ { }", "u:/bin/bash:readline", "1"},
		{"uprobe:/lib/x.so.6:f { }", "uprobe:/lib/x.so.6:f", ""},
		{"u:\"/a b/c\":f { }", "u:\"/a b/c\":f", ""},
		{"interval:s:1 { }", "interval:s:1", ""},
		{"t:a:b* // comment\n, /* c */ t:c:?\n{ }", "t:a:b*|t:c:?", ""},
	} {
		s, err := Parse(&Source{Name: "t", Text: c.text})
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var points []string
		for _, p := range s.Clauses[0].Points {
			points = append(points, p.Raw)
		}
		pred := ""
		if s.Clauses[0].Pred != nil {
			pred = dump(s.Clauses[0].Pred)
		}
		if got := strings.Join(points, "|"); got != c.points || pred != c.pred {
			t.Errorf("%s\ngot  %s %s\nwant %s %s", c.text, got, pred, c.points, c.pred)
		}
	}
}

//go:embed testdata/listing.txt
var goldenListing string

// TestPlaces has maps be arrays where their keys are numbers from 0 on, and hashes
// where it matters which keys there are.
func TestPlaces(t *testing.T) {
	for text, want := range map[string]int{
		`BEGIN { @ = count(); }`:                                              1,
		`BEGIN { @ = hist(1); } END { @ = hist(2); clear(@); }`:               1,
		`BEGIN { @[probe] = count(); } END { @[probe] = count(); print(@); }`: 2,
		`BEGIN { @[probe] = lhist(1, 0, 9, 3); }`:                             1,
		`BEGIN { @ = 1; }`:                                                    0,
		`BEGIN { @ = sum(0); }`:                                               0,
		`BEGIN { @[pid] = count(); }`:                                         0,
		`BEGIN { @[probe, pid] = count(); }`:                                  0,
		`BEGIN { @ = count(); if (@ > 1) { exit(); } }`:                       0,
		`BEGIN { @[probe] = count(); } END { delete(@[probe]); }`:             0,
		`BEGIN { if (has_key(@, probe)) { exit(); } @[probe] = count(); }`:    0,
		`BEGIN { @ = count(); zero(@); }`:                                     0,
	} {
		p, err := compile(must(Parse(&Source{Name: "-e", Text: text})), newKernel(), Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := p.u.places(p.c.maps["@"]); got != want {
			t.Errorf("%s: %d places, want %d", text, got, want)
		}
	}
}

// TestListing compares the instructions of a small program. They are the same
// on every machine: no argument of the kernel's is in them.
func TestListing(t *testing.T) {
	p, err := Compile(&Source{Name: "-e", Text: `BEGIN /pid > 1/ { @[comm, cpu] = count(); if (nsecs == 5) { printf("%d\n", tid); } }`}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		check(os.WriteFile("testdata/listing.txt", []byte(p.Listing()), 0o644))
	} else if got := p.Listing(); got != goldenListing {
		t.Errorf("got\n%s\nwant\n%s", got, goldenListing)
	}
}

func TestSmall(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"tcp_*", "tcp_sendmsg", true}, {"*", "", true}, {"a*b*c", "aXbYc", true}, {"a*b*c", "aXbY", false}, {"?b", "ab", true}, {"?", "", false},
		{"a**b", "ab", true}, {strings.Repeat("a*", 30) + "b", strings.Repeat("a", 200), false},
	} {
		if got := match(c.pattern, c.name); got != c.want {
			t.Errorf("match(%q, %q) is %v", c.pattern, c.name, got)
		}
	}
	f := parseFormat("name: x\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n" +
		"\tfield:const void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__data_loc char[] dev;\toffset:16;\tsize:4;\tsigned:1;\n" +
		"\tfield:__u8 saddr[4];\toffset:30;\tsize:4;\tsigned:0;\n\tfield:char comm[16];\toffset:34;\tsize:16;\tsigned:0;\n")
	if len(f) != 4 || f[0].name != "skbaddr" || !f[1].dataLoc || f[1].name != "dev" || f[2].array != 4 || f[3].decl != "char" {
		t.Errorf("got %+v", f)
	}
	for v, want := range map[int64]string{0: "0", 1: "1", 1024: "1K", 1536: "1536", 1 << 20: "1M", -2048: "-2K"} {
		if got := label(v); got != want {
			t.Errorf("label(%d) is %s, want %s", v, got, want)
		}
	}
	var b strings.Builder
	nums := make([]uint64, histSlots(0))
	nums[1], nums[2], nums[9] = 1, 2, 4 // 0, 1, [128, 256)
	nums[0] = 1                         // below 0
	bccHist(&b, "ret", nums)
	want(t, b.String(), "distribution\n       ... -> -1         : 1        |**********                              |\n         0 -> 1          : 3        |******************************          |\n")
	b.Reset()
	nums[0] = 0
	bccHist(&b, "size", nums)
	want(t, b.String(), "     size                : count     distribution\n         0 -> 1          : 3        |******************************          |\n",
		"         2 -> 3          : 0        |                                        |\n", "       128 -> 255        : 4        |****************************************|\n")
}

// TestDrift has a function that another took over from.
func TestDrift(t *testing.T) {
	k := loadOnly()
	k.functions = func() (functionList, error) { return "kmem_cache_alloc_noprof\ntcp_sendmsg\n", nil }
	k.lookUp = func(string) (uint64, error) { return 0, unix.ENOENT }
	s, err := Parse(&Source{Name: "-e", Text: "k:kmem_cache_alloc { @ = count(); }"})
	check(err)
	var notes strings.Builder
	p, err := compile(s, k, Options{Err: &notes})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.jobs[0].targets[0].Name; got != "kmem_cache_alloc_noprof" || !strings.Contains(notes.String(), "took over") {
		t.Errorf("got %s, and %q", got, notes.String())
	}
	s, _ = Parse(&Source{Name: "-e", Text: "k:tcp_sendmgs { @ = count(); }"})
	if _, err := compile(s, k, Options{}); err == nil || !strings.Contains(err.Error(), "did you mean tcp_sendmsg?") {
		t.Errorf("got %v", err)
	}
}

func TestList(t *testing.T) {
	needRoot(t)
	var b strings.Builder
	if err := List(&b, "t:syscalls:sys_enter_connect", true); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "tracepoint:syscalls:sys_enter_connect\n    int __syscall_nr\n    int fd\n    struct sockaddr * uservaddr\n    int addrlen\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.Reset()
	if err := List(&b, "t:tcp:*", false); err != nil || !strings.Contains(b.String(), "tracepoint:tcp:tcp_retransmit_skb\n") {
		t.Errorf("got %v %q", err, b.String())
	}
	if err := List(&b, "tracepont:*", false); err == nil || !strings.Contains(err.Error(), "did you mean tracepoint") {
		t.Errorf("got %v", err)
	}
	b.Reset()
	if err := List(&b, "fentry:tcp_sendmsg", true); err == nil {
		want(t, b.String(), "fentry:tcp_sendmsg\n    struct sock * sk\n    struct msghdr * msg\n    size_t size\n")
	} else if !KernelsFault(err) {
		t.Error(err)
	}
	// Functions are listed also where they cannot be traced.
	b.Reset()
	check(List(&b, "kprobe:tcp_v4_connec*, t:syscalls:sys_enter_connect", false))
	want(t, b.String(), "kprobe:tcp_v4_connect\n", "tracepoint:syscalls:sys_enter_connect\n")
	b.Reset()
	check(List(&b, "struct in_addr", true))
	want(t, b.String(), "struct in_addr {\n        __be32 s_addr;\n};\n")
	b.Reset()
	check(List(&b, "enum pid_type", true))
	want(t, b.String(), "enum pid_type {\n        PIDTYPE_PID = 0,\n")
	b.Reset()
	check(List(&b, "struct in_add*", false))
	want(t, b.String(), "struct in_addr\n")
	if err := List(&b, "struct no_such_struct", true); err == nil || !strings.Contains(err.Error(), "the kernel has no such type") {
		t.Errorf("got %v", err)
	}
	b.Reset()
	if err := List(&b, "u:/proc/self/exe:seine/internal/bt.traced", false); err != nil || !strings.Contains(b.String(), "bt.traced\n") {
		t.Errorf("got %v %q", err, b.String())
	}
}

// TestListStripped: a file without symbols is said to be one.
func TestListStripped(t *testing.T) {
	head := [64]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 16: 2, 18: 62, 20: 1, 52: 64} // x86-64, and nothing behind it
	file := filepath.Join(t.TempDir(), "stripped")
	if err := os.WriteFile(file, head[:], 0o755); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	err := List(&b, "u:"+file+":*", false)
	if want := file + " has no symbols: it is stripped; give an address"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
