// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestErrors wants one message for each kind of mistake, with its place.
func TestErrors(t *testing.T) {
	k := newKernel()
	k.forEach = func() error { return nil } // whatever this one has
	for _, c := range []struct{ text, want, caret string }{
		{"t:syscalls:sys_enter_connect { @[pid, comn] = count(); }", "-e:1:39: unknown name comn: did you mean comm?", "                                      ^~~~"},
		{"t:syscalls:sys_enter_connect { @[args->fdd] = count(); }", "-e:1:40: tracepoint:syscalls:sys_enter_connect has no argument fdd: did you mean fd?", ""},
		{"t:syscalls:sys_enter_connect { @ = conut(); }", "-e:1:36: unknown function conut(): did you mean count?", ""},
		{"t:syscalls:sys_enter_connect {\n\t@ = count();\n\t@ = 5;\n}", "-e:3:2: type conflict: @ is count since line 2, column 2, and cannot be int64", "\t^"},
		{"BEGIN { @a[1] = 1; @a[1, 2] = 1; }", "-e:1:20: type conflict: @a has 1 key since line 1, column 9, and 2 keys here", ""},
		{"BEGIN { @a[1] = 1; @a[\"x\"] = 1; }", "-e:1:23: type conflict: key 1 of @a is int64 since line 1, column 9, and string here", ""},
		{"BEGIN { $x = 1; $x = \"a\"; }", "-e:1:17: type conflict: $x is int64 since line 1, column 9, and cannot be string", ""},
		{"t:syscalls:sys_enter_conect { @ = count(); }", "-e:1:1: unknown tracepoint syscalls:sys_enter_conect: did you mean syscalls:sys_enter_connect?", "^~~~~~~~~~~~~~~~~~~~~~~~~~~"},
		{"tracepont:a:b { }", "-e:1:1: unknown probe type tracepont: did you mean tracepoint?", ""},
		{"usdt:/bin/x:y { }", "-e:1:1: there is no file /bin/x", ""},
		{"BEGIN { @ = count() ", "-e:1:21: expected ';' or '}', found the end of the program", ""},
		{"BEGIN { @ = ; }", "-e:1:13: expected an expression, found ';'", ""},
		{"BEGIN { printf(\"%d\"); }", "-e:1:9: printf() has 1 place in its format, and no value", ""},
		{"BEGIN { printf(\"%s\", 5); }", "-e:1:22: %s needs a string, not int64: use %d", ""},
		{"BEGIN { printf(\"%q\", 5); }", "-e:1:16: %q is not a conversion: there are %d %i %u %x %X %o %c %s %p %r", ""},
		{"BEGIN { print(@x); }", "-e:1:15: @x is never assigned", ""},
		{"BEGIN { $a = @x + 1; }", "-e:1:14: @x is read but never assigned", ""},
		{"BEGIN { $start = 1; $y = $strat; }", "-e:1:26: $strat has no value here: did you mean $start?", ""},
		{"BEGIN { $t = (struct task_struct *)curtask; @ = $t->pidd; }", "-e:1:53: struct task_struct has no field pidd: did you mean pid?", ""},
		{"BEGIN { $t = (struct no_such_thing)5; }", "-e:1:15: unknown struct no_such_thing: this kernel's BTF has none", ""},
		{"BEGIN { system(\"ls\"); }", "-e:1:9: system() is refused without --unsafe", ""},
		{"BEGIN { @ = retval; }", "-e:1:13: BEGIN has no retval: use a ", ""},
		{"BEGIN { $x = arg0; }", "-e:1:14: BEGIN has no arg0", ""},
		{"BEGIN { for ($kv : @m) { } }", "-e:1:20: @m is read but never assigned", "                   ^~"},
		{"BEGIN { delete(@m[1]); for ($kv : @m) { print($kv.1); } }", "-e:1:35: @m is read but never assigned", ""},
		{"BEGIN { delete(@m[1]); @ = len(@m); }", "-e:1:32: @m is never assigned", ""},
		{"BEGIN { @m = 1; for ($kv : @m) { } }", "-e:1:28: @m has no keys for a loop to go over", ""},
		{"BEGIN { @m[1] = hist(1); for ($kv : @m) { } }", "-e:1:37: @m is a hist, which cannot be read in an expression", ""},
		{"BEGIN { @m[1] = 1; for ($kv : @m[1]) { } }", "-e:1:33: expected ')' after the map, all of which for goes over, found '['", ""},
		{"BEGIN { @m[1] = 1; for ($kv : @m) { $kv = (1, 2); } }", "-e:1:37: $kv is an entry of the map and cannot be assigned", ""},
		{"BEGIN { @m[1] = 1; for ($kv : @m) { print($kv.2); } }", "-e:1:43: the tuple has elements .0 to .1", ""},
		{"BEGIN { @m[1] = 1; for ($a : @m) { for ($b : @m) { for ($c : @m) { for ($d : @m) { } } } } }", "-e:1:68: loops over maps are nested more than 3 deep", ""},
		{"BEGIN { for (i : 0..2) { } }", "-e:1:14: for declares a $variable, not 'i': write for ($i : 0..10) { }", ""},
		{"BEGIN { for ($i : 0) { } }", "-e:1:20: expected '..' between the ends of a range, found ')'", ""},
		{"BEGIN { @x = 1; @ = len(@x); }", "-e:1:25: @x has no keys to count", ""},
		{"BEGIN { @ = str(comm, 2); }", "-e:1:23: str() of a string takes no length: printf(\"%.5s\") cuts it", ""},
		{"BEGIN { @ = len(5); }", "-e:1:13: len() needs a string, not int64", ""},
		{"BEGIN { @ = strcontains(comm, 5); }", "-e:1:31: strcontains() looks for strings, not int64", ""},
		{"BEGIN { @ = hist(1, 6); }", "-e:1:21: the bits of hist() are a number from 0 to 5", ""},
		{"BEGIN { @a = hist(1, 2); @a = hist(1, 3); }", "-e:1:26: type conflict: @a is hist since line 1, column 9, and cannot be hist", ""},
		{"BEGIN { static_assert(sizeof(uint8) == 2, \"two bytes\"); }", "-e:1:9: two bytes", ""},
		{"BEGIN { static_assert(pid == 2, \"x\"); }", "-e:1:23: static_assert() needs a constant", ""},
		{"BEGIN { if (1) { fail(\"%s is %d\", \"this\", 5); } }", "-e:1:18: this is 5", ""},
		{"BEGIN { if comptime (pid > 1) { } }", "-e:1:22: this is not a constant", ""},
		{"BEGIN { @ = &pid; }", "-e:1:13: this has no address: a field, a $variable or the value of a @map has one", ""},
		{"BEGIN { @m[1] = 1; $v = 1; if (find(@m, 1, 5)) { } }", "-e:1:44: find() sets a $variable to the value", ""},
		{"BEGIN { @ = pcomm(1, 2); }", "-e:1:13: pcomm() takes 1 argument, not 2", ""},
		{"t:sched:sched_process_exec { printf(\"%s\", args.filename); }", "-e:1:43: %s needs a string, not int8 *: use str(…)", ""},
		{"rt:inet_sock_set_state { @ = args.nosuch; }", "-e:1:35: ", ""},
		{"BEGIN { @ = cpid; }", "-e:1:13: there is no cpid without -c COMMAND", ""},
		{"BEGIN { $a = (int8[8])5; @ = $a[8]; }", "-e:1:33: index 8 is outside int8[8]", ""},
		{"BEGIN { $a = (int8[8])5; $i = 1; @ = $a[$i]; }", "-e:1:41: the index of a copied array must be a constant", ""},
		{"BEGIN { unroll (0) { @++; } }", "-e:1:17: unroll takes a number from 1 to 100", ""},
		{"rt:nosuchgroup:sys_enter { @ = count(); }", "-e:1:1: unknown raw tracepoint nosuchgroup:sys_enter: did you mean raw_syscalls:sys_enter?", ""},
		{"rt:sched:sys_enter { @ = count(); }", "-e:1:1: unknown raw tracepoint sched:sys_enter", ""},
		{"rt:raw_syscalls:sys_enter { @ = count(); }", "", ""},
		{"rt:vmlinux:sched_switch { @ = count(); }", "", ""},
		{"u:*:f { @ = count(); }", "-e:1:1: u:*:f needs -p: the files that a process has mapped are looked through", ""},
		{"u:/proc/self/ex*:no_such_function { @ = count(); }", "-e:1:1: no file that matches /proc/self/ex* has a function no_such_function", ""},
		{"u:/proc/self/exe:0x1 { @ = count(); }", "-e:1:1: /proc/self/exe has no code at 0x1", ""},
		{"BEGIN { @ = EOPNOTSUP; }", "-e:1:13: unknown constant EOPNOTSUP: did you mean EOPNOTSUPP?", ""},
		{"BEGIN { @ = O_DIRECTROY; }", "-e:1:13: unknown constant O_DIRECTROY: did you mean O_DIRECTORY?", ""},
		{"BEGIN { @ = ENOTSUCHNAME; }", "-e:1:13: unknown constant ENOTSUCHNAME: if a header has it, write #define ENOTSUCHNAME …", ""},
		{"BEGIN { @ = AF_INET7; }", "-e:1:13: unknown constant AF_INET7: if a header has it, write #define AF_INET7 …", ""},
		{"u:/proc/self/exe:seine/internal/bt.traced { @a[1] = func; @a[2] = probe; }", "-e:1:59: type conflict: @a is func since line 1, column 45, and cannot be probe", ""},
		{"u:/proc/self/exe:seine/internal/bt.traced { @a[func] = 1; @a[probe] = 2; }", "-e:1:62: type conflict: key 1 of @a is func since line 1, column 45, and probe here", ""},
		{"u:/proc/self/exe:seine/internal/bt.traced { @a = func; @a = ksym(1); }", "-e:1:56: type conflict: @a is func since line 1, column 45, and cannot be ksym", ""},
		{"BEGIN { @a[(1, 2)] = 1; @a[1] = 1; }", "-e:1:25: type conflict: @a has 2 keys since line 1, column 9, and 1 key here", ""},
		{"BEGIN { @a[1] = 1; @a[(1, 2)] = 1; }", "-e:1:20: type conflict: @a has 1 key since line 1, column 9, and 2 keys here", ""},
		{"t:tcp:* { @a[1] = 1; } BEGIN { @a[1, 2] = 1; }", "-e:1:32: type conflict: @a has 1 key since line 1, column 11, and 2 keys here", ""},
		{"macro f() { @x++ } begin { f(); }", "-e:1:13: macro f uses @x, which is not one of its parameters", ""},
		{"macro f($x) { $x++ } begin { @x = 1; f(@x); }", "-e:1:40: macro f takes a $variable for $x", ""},
		{"macro f($x) { $x++ } begin { f(1 + 1); }", "-e:1:32: macro f takes a $variable for $x", ""},
		{"macro f(@m) { @m++ } begin { f(@x[1]); }", "-e:1:32: macro f takes a whole @map for @m", ""},
		{"macro f(x) { f(x) } begin { f(1); }", "-e:1:14: macro f calls itself without end", ""},
		{"macro f(x) { x } begin { print(f(1, 2)); }", "-e:1:32: macro f takes 1 argument, not 2", ""},
		{"macro f(x) { $y = 1; x + $y } begin { print(f($y)); }", "-e:1:47: $y has no value here", ""},
		{"macro f(x) { x } macro f(y) { y } begin { }", "-e:1:24: macro f is there already, from line 1, column 7", ""},
		{"macro f(x) { x; } begin { print(f(1)); }", "-e:1:12: this block has no value", ""},
		{"begin { print({ $a = 1; }); }", "-e:1:15: this block has no value", ""},
		{"begin { let $a = 1; let $a = 2; }", "-e:1:25: $a is there already, from line 1, column 13", ""},
		{"begin { $a = (x=1, 2); }", "-e:1:20: all elements have names, or none has", ""},
		{"begin { $a = (x=1, x=2); }", "-e:1:20: there is a field x already", ""},
		{"begin { $a = (x=1, y=2); print($a.z); }", "-e:1:32: the record has no field z (there are x, y)", ""},
		{"begin { $a = (x=1); $a = (y=1); }", "-e:1:21: type conflict: $a is (x=int64) since line 1, column 9, and cannot be (y=int64)", ""},
		{"begin { $a = (1, 2); $a = (x=1, y=2); }", "-e:1:22: type conflict", ""},
		{"let @a = lruhsh(5); BEGIN { }", "-e:1:10: a map is one of hash, lruhash, percpuhash, percpulruhash, not 'lruhsh': did you mean lruhash?", ""},
		{"let @a = hash(0); BEGIN { }", "-e:1:15: a map has from 1 to 10000000 keys", ""},
		{"let @a = hash(1);\nlet @a = hash(2); BEGIN { }", "-e:2:5: @a is declared already, at line 1, column 5", ""},
		{"let @a = percpuhash(5); BEGIN { @a[1] = 1; }", "-e:1:5: @a is declared as percpuhash, which is for count() and its like, and is int64 at line 1, column 33", ""},
		{"let $a = 1; BEGIN { }", "-e:1:5: outside probes let declares @maps, not '$a'", ""},
		{"BEGIN { $t = (1, 2); print($t[2]); }", "-e:1:31: the tuple has elements 0 to 1, and the index must be a constant", ""},
		{"BEGIN { $t = (1, 2); $i = 1; print($t[$i]); }", "-e:1:39: the tuple has elements 0 to 1, and the index must be a constant", ""},
		{"BEGIN { break; }", "-e:1:9: break outside a loop", ""},
		{"BEGIN { \"a\" == 1 }", "-e:1:9: type conflict: == compares string with int64", ""},
		{"BEGIN { @ = \"a\" == 1; }", "-e:1:13: type conflict: == compares string with int64", ""},
		{"BEGIN { @ = lhist(1, 0, 10, 3); }", "-e:1:29: the step of lhist() does not divide its range", ""},
		{"#define A B\n#define B A\nBEGIN { @ = A; }", "-e:3:13: unknown constant A", ""},
		{"#if 1\nBEGIN { }", "-e:2:10: #if without #endif", ""},
		{"", "-e:1:1: the program has no probe", ""},
		{"/* ", "-e:1:1: comment without an end", ""},
		{"BEGIN { printf(\"x", "-e:1:16: string without an end", ""},
		{"interval:x:1 { }", "-e:1:1: write a timer as interval:hz:N, :s:N, :ms:N, :us:N or interval:100ms", ""},
		{"BEGIN { $x = $1; }", "", ""},
		{"u:/no/such/file:f { }", "-e:1:1: there is no file /no/such/file", ""},
	} {
		s, err := Parse(&Source{Name: "-e", Text: c.text})
		if err == nil {
			_, err = compile(s, k, Options{})
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		var at *Error
		if !errors.As(err, &at) {
			t.Errorf("%s: got %v, want %s", c.text, err, c.want)
			continue
		}
		if !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s\ngot  %s\nwant %s", c.text, err, c.want)
		}
		if show := strings.Split(at.Show(), "\n"); c.caret != "" && show[1] != "    "+c.caret {
			t.Errorf("%s\ngot  %q\nwant %q", c.text, show[1], "    "+c.caret)
		}
	}
}

// TestSpecErrors wants BCC's specs refused in their own words.
func TestSpecErrors(t *testing.T) {
	for spec, want := range map[string]string{
		`t:tcp:tcp_probe "%d"`:             "trace:1:17: the format has 1 place, and no argument after it",
		`t:tcp:tcp_probe "x", args->sport`: "trace:1:17: the format has no place, and 1 argument after it",
		`t:tcp:tcp_probe "%q", 1`:          "trace:1:17: %q is not a conversion",
	} {
		if _, err := Trace([]string{spec}, false, Options{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", spec, err, want)
		}
	}
}

// TestLongKeys has the refusal of a kernel before 5.11.
func TestLongKeys(t *testing.T) {
	err := noMap("@", 528, fmt.Errorf("map create: %w", unix.E2BIG))
	if want := "keys of @ have 528 bytes, more than the 512 before Linux 5.11"; !KernelsFault(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := noMap("@", 16, unix.ENOMEM); KernelsFault(err) || !errors.Is(err, unix.ENOMEM) {
		t.Errorf("got %v", err)
	}
}

// TestNoForEach has a kernel before 5.13.
func TestNoForEach(t *testing.T) {
	k := newKernel()
	k.forEach = func() error { return errors.New("none") }
	s, err := Parse(&Source{Name: "-e", Text: "BEGIN { @m[1] = 1; }\nEND { for ($kv : @m) { } }"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = compile(s, k, Options{})
	if want := "-e:2:18: for over maps needs Linux 5.13"; !KernelsFault(err) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestMacroGrowth has a short text that macros would make endless.
func TestMacroGrowth(t *testing.T) {
	text := "macro d(x) { x + x } begin { @ = " + strings.Repeat("d(", 40) + "1" + strings.Repeat(")", 40) + "; }"
	began := time.Now()
	_, err := Parse(&Source{Name: "-e", Text: text})
	if err == nil || !strings.Contains(err.Error(), "the program is too large") || time.Since(began) > 10*time.Second {
		t.Errorf("got %v after %v, want a refusal at once", err, time.Since(began))
	}
}

// TestSeveralErrors wants all mistakes of a script, the first ones first, and none
// that only follows from another.
func TestSeveralErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"BEGIN { $a = nosuch; $b = $a + 1; @c = conut(); print($b); }\nEND { $x->y = 1; }\nEND { @d = 5 +; }", "-e:2:7: only a $variable or a @map can be assigned to\n-e:3:15: expected an expression, found ';'"},
		{"BEGIN { $a = nosuch; $b = $a + 1; @c = conut(); print($b); }\nEND { @d = strlen(5); if (nosuch2) { @e = nosuch3; } }",
			"-e:1:14: unknown name nosuch\n-e:1:40: unknown function conut(): did you mean count?\n-e:2:12: strlen() needs a string, not int64\n-e:2:27: unknown name nosuch2"},
		{"t:syscalls:sys_enter_nosuch { }\nBEGIN { }\nt:nosuch:x { }", "-e:1:1: unknown tracepoint syscalls:sys_enter_nosuch⟨.*⟩\n-e:3:1: unknown tracepoint nosuch:x⟨.*⟩"},
		{"BEGIN { while (nosuch) { $i++; } for ($i : 0..10) { break; } continue; }", "-e:1:16: unknown name nosuch\n-e:1:62: continue outside a loop"},
		{"BEGIN { @ = 5 +; }\nEND { if (x { } }\nEND { @ = (); @ = 1 1; }", "-e:1:16: expected an expression, found ';'\n-e:2:13: expected ')' after the tuple, found '{'\n-e:3:21: expected ';' or '}', found '1'"},
	} {
		s, err := Parse(&Source{Name: "-e", Text: c.text})
		if err == nil {
			_, err = compile(s, running(), Options{})
		}
		if err == nil || !literally(c.want).MatchString(err.Error()) {
			t.Errorf("%s\ngot\n%v\nwant\n%s", c.text, err, c.want)
		}
	}
}

// TestRefused wants the verifier's refusal at the line of the script.
func TestRefused(t *testing.T) {
	needRoot(t)
	k := newKernel()
	k.loop = func() bool { return false }
	p, err := compile(must(Parse(&Source{Name: "-e", Text: "BEGIN {\n\t$i = rand;\n\twhile (1) {\n\t\t@x++;\n\t}\n}"})), k, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Run(t.Context())
	var at *Error
	if !errors.As(err, &at) {
		t.Fatalf("got %v, want a refusal with its place", err)
	}
	if line, _ := at.Src.Position(at.Pos); line < 3 || line > 4 || !strings.Contains(err.Error(), "the verifier refuses it") {
		t.Errorf("got %v, want line 3 or 4", err)
	}
}

// TestNoFunctions has a kernel without kprobes and fentry.
func TestNoFunctions(t *testing.T) {
	k := newKernel()
	none := errors.New("none")
	k.kprobes = func() error { return none }
	k.fentry = func() error { return none }
	k.events = func() ([]string, error) {
		return []string{"napi:dql_stall_detected", "napi:napi_poll", "sock:inet_sock_set_state", "syscalls:sys_enter_connect", "tcp:tcp_bad_csum", "tcp:tcp_retransmit_skb"}, nil
	}
	for name, want := range map[string]string{
		"tcp_v4_connect":       "t:sock:inet_sock_set_state, t:syscalls:sys_enter_connect",
		"napi_poll":            "t:napi:napi_poll",
		"__napi_poll*":         "t:napi:napi_poll",
		"napi_gro_receive":     "",
		"tcp_retransmit_timer": "t:tcp:tcp_retransmit_skb",
		"cgroup_mkdir":         "",
	} {
		s, err := Parse(&Source{Name: "-e", Text: "k:" + name + " { @ = count(); }"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = compile(s, k, Options{})
		if !KernelsFault(err) || !strings.Contains(err.Error(), "cannot trace functions") {
			t.Fatalf("got %v", err)
		}
		if _, got, _ := strings.Cut(err.Error(), ": tracepoints that could serve: "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
