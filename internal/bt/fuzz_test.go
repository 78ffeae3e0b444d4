// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// FuzzParse looks for programs that make the parser panic or run away. What it
// refuses it refuses with a place that is in the text.
func FuzzParse(f *testing.F) {
	files, err := corpus.ReadDir("testdata/corpus")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range files {
		data, _ := corpus.ReadFile("testdata/corpus/" + e.Name())
		f.Add(string(data))
	}
	for _, s := range []string{"", "/", "{", "k:f", "k:f {", "k:f /", "BEGIN { @[", "#if\n#if", "#define A B\n#define B A\nBEGIN { @ = A }", `BEGIN { printf("`, "struct a { struct a b; };",
		"macro d(x) { x + x } begin { @ = d(d(d(d(1)))) }", "macro f($a, @b, c) { $a = c; @b[c]++; { c } } begin { $x = 1; f($x, @y, { let $z = 2; $z }); }", "begin { $r = (a=1, b=(c=2,)); print({ { $r.b } }); if comptime (1) { } while (1) { for ($i : 0..$x) { return 1 } } }",
		"import \"stdlib/x\"; begin { print(getopt(\"a\", -1, \"b\")); &$x; offsetof($x, a.b); (uint8[])1; () }", "begin { a b", "usdt:/a:b:c,watchpoint:0x1:8:w,iter:task,self:signal:X { ctx.task }",
		"BEGIN { @ = " + strings.Repeat("(", 500), "BEGIN { @ = " + strings.Repeat("-", 5000) + "1 }", strings.Repeat("BEGIN{if(1){", 300), "BEGIN { @=1" + strings.Repeat(".a", 9999) + " }"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		began := time.Now()
		_, err := Parse(&Source{Name: "fuzz", Text: text})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		var at *Error
		if err != nil {
			if !errors.As(err, &at) {
				t.Fatalf("not an Error: %v", err)
			}
			if at.Pos < 0 || int(at.Pos) > len(text) {
				t.Errorf("position %d is outside the text", at.Pos)
			}
			_ = at.Show()
		}
	})
}

// FuzzSpec does the same for BCC's specs, and types what can be parsed.
func FuzzSpec(f *testing.F) {
	for _, s := range []string{
		"p::tcp_sendmsg(void *sk, void *msg, int size):int:size", "r::tcp_recvmsg():int:$retval:$retval>0",
		"t:syscalls:sys_exit_connect():int:args->ret:args->ret<0", `do_sys_open "%s", arg2`, "r::f(int a):int:$entry(a):$latency > 5#x",
		"p:c:malloc(size_t n):size_t:n", `p::f (arg1 == 2) "%d %s", arg1, arg2`, "((((", "p::f(", ":", "::", "#", `"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		src, list := specs("fuzz", []string{text})
		_, _ = list[0].argdist(ArgSpec{Text: text}, newScript(src))
		src, list = specs("fuzz", []string{text})
		_ = list[0].trace(newScript(src))
		_, _ = (&bccSpec{src: src, to: len(text)}).pattern(false)
	})
}

// FuzzFormat feeds tracepoint formats and printf formats.
func FuzzFormat(f *testing.F) {
	f.Add("\tfield:const char * name;\toffset:16;\tsize:8;\tsigned:0;\n")
	f.Add("%-10s %5d %llx %%")
	f.Fuzz(func(t *testing.T, text string) {
		parseFormat(text)
		verbs, err := parseFormatString(text)
		if err == nil {
			for _, v := range verbs {
				_ = v.number(-1, typeS32)
				_ = v.str("x")
			}
			_ = tail(text)
		}
		_ = strftime(text, time.Unix(0, 0))
		_ = match(text, "tcp_sendmsg")
	})
}

// FuzzCompile types and emits what can be parsed, for probes that need nothing
// of the kernel.
func FuzzCompile(f *testing.F) {
	files, err := corpus.ReadDir("testdata/corpus")
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range files {
		data, _ := corpus.ReadFile("testdata/corpus/" + e.Name())
		if strings.HasPrefix(e.Name(), "el_") {
			f.Add(string(data))
		}
	}
	for _, s := range []string{
		"BEGIN { @a[@b] = 1; @b = @a[1]; }", "BEGIN { @ = @; }", "BEGIN { @a = (1, (2, \"x\")); $x = @a.1.0; print(@a.1); }",
		"struct a { struct a *n; int x:3; } BEGIN { $p = (struct a *)5; @ = $p->n->n->x; @c = *$p; @d = @c.x; $q = &$p->n; }",
		"BEGIN { $a = kstack; @[$a, ustack(3)] = hist(1); @s = str(5, 3); if (@s == \"x\") { delete(@s); } @t = @s == @s; }",
		"BEGIN { @x = ntop(1); @y[@x] = buf(5, 3); @z = @x == @x; print(@y); $m = macaddr(1); @m = $m; }",
		"BEGIN { $a = \"a\"; $a = 1 ? \"abc\" : $a; @[$a] = stats(-1); printf(\"%s %d %r\", $a, @q, buf(1, 2)); @q++; @q = @q > 1 ? @q : 5; }",
	} {
		f.Add(s)
	}
	for _, s := range growing {
		f.Add(s)
	}
	k := newKernel()
	k.symbols = func() map[string]uint64 { return map[string]uint64{"tcp_v4_connect": 1 << 63} }
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(&Source{Name: "fuzz", Text: text})
		if err != nil {
			return
		}
		for _, c := range s.Clauses {
			for _, p := range c.Points {
				switch kind, _, _ := strings.Cut(p.Raw, ":"); kindNames[kind] {
				case Begin, End, Interval:
				default:
					return
				}
			}
		}
		_, err = within(t, s, k, Options{Unsafe: true, Args: []string{"5", "x"}})
		var at *Error
		if err != nil && errors.As(err, &at) {
			_ = at.Show()
		}
	})
}
