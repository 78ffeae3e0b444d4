// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
)

// TestElements runs every element of the language that needs no workload, and
// compares all that is printed. A pattern stands in ⟨⟩.
func TestElements(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"operators", string(must(corpus.ReadFile("testdata/corpus/el_operators.bt"))),
			"10 4 21 2 1 56 3\n3 7 4 -8 0 -7\n01010111\n69\n71 1 10\n"},
		{"casts", string(must(corpus.ReadFile("testdata/corpus/el_casts.bt"))),
			"-56 255 -1 1 -1 18446744073709551615 ffffffff ffffffffffffffff\n-3 -1 -4\n@big: 18446744073709551615\n@small: -1\n"},
		{"maps", string(must(corpus.ReadFile("testdata/corpus/el_maps.bt"))),
			"31 one 1 3\n@k[a, 1]: one\n\n@c: 2\none\n(1, 2)\ntext\n@h: \n[64, 128)              1 |" + strings.Repeat("@", 52) + "|\n\n" +
				"@k[a, 1]: one\n\n@n: 15\n1 0\n" +
				"@av: 15\n@c: 0\n@h: \n[64, 128)              1 |" + strings.Repeat("@", 52) + "|\n\n" +
				"@k[a, 1]: one\n\n@ma: 9\n@mi: -5\n@n: 31\n@s: 7\n@st: count 2, average 1, total 3\n@t: (1, x, (2, 3))\n"},
		{"control", string(must(corpus.ReadFile("testdata/corpus/el_control.bt"))), "nine btf 4464\nend\n@j: 1\n@u[1]: 1\n@u[3]: 1\n\n"},
		{"for over maps", string(must(corpus.ReadFile("testdata/corpus/el_for.bt"))),
			"175 in 3\n(x, 2)\n3 three\n6\nlast\n@av[1]: 6\n\n@c[x]: 2\n\n@copy[a, 7]: 2\n@copy[bc, 8]: 4\n\n@few: 1\n@len[1, 7]: 1\n@len[2, 8]: 2\n\n" +
				"@pairs[1, a]: 11\n@pairs[1, bc]: 12\n@pairs[2, a]: 21\n@pairs[2, bc]: 22\n@pairs[5, a]: 51\n@pairs[5, bc]: 52\n\n" +
				"@rounds: 18\n@s[3]: three\n\n@some[1]: 10\n@some[5]: 50\n\n"},
		{"len", `BEGIN { @m["a", 1] = count(); @m["b", 1] = count(); @m["b", 1] = count(); @n[5] = 1; printf("%d %d %d\n", len(@m), len(@n), len("abc")); clear(@m); clear(@n); exit(); }`, "2 1 3\n"},
		{"strcontains", `BEGIN { $s = "to find something in"; printf("%d %d %d %d %d %d\n", strcontains($s, "find"), strcontains($s, "to find something in"), strcontains($s, "something in it"), strcontains($s, "n"), strcontains($s, "find it"), strcontains($s, "")); exit(); }`,
			"1 1 0 1 0 1\n"},
		{"constants of headers", `BEGIN { printf("%d %d %d %d\n", TASK_UNINTERRUPTIBLE, MAP_ANONYMOUS, NSEC_PER_SEC, TCP_NODELAY); exit(); }`, "2 32 1000000000 1\n"},
		{"more constants", `BEGIN { printf("%d %d %d %d %d %d %d\n", O_DIRECTORY, DT_DIR, EOPNOTSUPP, FUTEX_WAIT_PRIVATE, CAP_NET_ADMIN, CLOCK_BOOTTIME, PATH_MAX); printf("%d %d %d %d\n", REQ_SYNC == 1 << __REQ_SYNC, REQ_OP_WRITE, PF_INET6, __NR_getppid); exit(); }`,
			fmt.Sprintf("%d 4 95 128 12 7 4096\n1 1 10 %d\n", unix.O_DIRECTORY, unix.SYS_GETPPID)},
		{"printf", `BEGIN { printf("%d|%5d|%-5d|%05d|%+d|%x|%X|%#x|%o|%c|%%|%u|%lld|%hhx\n", -1, 42, 42, 42, 42, 255, 255, 255, 8, 65, 7, -9, 0x1ff); printf("%s|%8s|%-8s|%.2s|%p\n", "ab", "ab", "ab", "abc", 4096); exit(); }`,
			"-1|   42|42   |00042|+42|ff|FF|0xff|10|A|%|7|-9|ff\nab|      ab|ab      |ab|0x1000\n"},
		{"percent signs", `BEGIN { printf("50%\n"); printf("%d%%, %d %", 5, 6); printf("%\n"); printf("%5d%|%s% \n", 7, "x"); exit(); }`, "50%\n5%, 6 %%\n    7%|x% \n"},
		{"builtins", fmt.Sprintf(`BEGIN { printf("%%d %%d %%d\n", pid == %d, uid, gid); printf("%%d %%d %%d\n", cpu < ncpus, ncpus, tid > 0); printf("%%s\n", probe); @c = comm; exit(); }`, os.Getpid()),
			fmt.Sprintf("1 %d %d\n1 %d 1\nBEGIN\n@c: ⟨.+⟩\n", os.Getuid(), os.Getgid(), len(must(host.OnlineCPUs())))},
		{"nsecs", `BEGIN { $a = nsecs; $b = nsecs; printf("%d %d %d\n", $b >= $a, elapsed < 10000000000, nsecs(boot) + 1000000000 >= nsecs(monotonic)); exit(); }`, "1 1 1\n"},
		{"times", `BEGIN { time("%Y\n"); printf("%s\n", strftime("%Y-%m", nsecs)); exit(); }`, "⟨20\\d\\d⟩\n⟨20\\d\\d-\\d\\d⟩\n"},
		{"strings", `BEGIN { $s = "hello"; printf("%d %d %d %d %d\n", $s == "hello", $s == "hell", $s != "hellp", strncmp($s, "help", 3), strncmp($s, "help", 4)); printf("%d\n", strlen($s)); @[$s, "x"] = 1; exit(); }`,
			"1 0 1 0 1\n5\n@[hello, x]: 1\n\n"},
		{"ntop", `BEGIN { printf("%s %s %s\n", ntop(0x0100007f), ntop(AF_INET, 16777343), ntop(pton("fe80::1"))); @[ntop(0x0100007f)] = 1; exit(); }`,
			"127.0.0.1 127.0.0.1 fe80::1\n@[127.0.0.1]: 1\n\n"},
		{"errors", `BEGIN { printf("%s %s\n", strerror(ENOENT), strerror(111)); print((strerror(0), strerror(-2), strerror(9999))); exit(); }`, "No such file or directory Connection refused\n(Success, No such file or directory, Unknown error 9999)\n"},
		{"constants", `BEGIN { printf("%d %d %d %d %d\n", AF_INET6, EINPROGRESS, IPPROTO_TCP, TCP_SYN_SENT, SOCK_STREAM); exit(); }`, "10 115 6 2 1\n"},
		{"literals", `BEGIN { printf("%d %d %d %d %d %d\n", 0x10, 010, 1e3, 1_000, 5ms, 'a' == 97); exit(); }`, ""},
		{"numbers", `BEGIN { printf("%d %d %d %d %d\n", 0x10, 010, 1e3, 1_000, 5ms); exit(); }`, "16 8 1000 1000 5000000\n"},
		{"tuples", `BEGIN { $t = (1, "two", (3, 4)); printf("%d %s %d\n", $t.0, $t.1, $t.2.0); print($t); @[(1, 2)] = 3; exit(); }`, "1 two 3\n(1, two, (3, 4))\n@[1, 2]: 3\n\n"},
		{"tuples as keys", `BEGIN { @a[(1, "x")] = 1; @a[2, "y"] = 2; $k = (3, "long enough to grow"); @a[$k] = 3; @k = (1, "x"); @a[@k]++; @b[@a[1, "x"], 5] = 7; @c[((1, 2), 3)] = 4;
			printf("%d %d %d\n", @a[1, "x"], has_key(@a, $k), has_key(@a, (2, "y"))); delete(@a, $k); delete(@k); exit(); }`,
			"2 1 1\n@a[1, x]: 2\n@a[2, y]: 2\n\n@b[2, 5]: 7\n\n@c[(1, 2), 3]: 4\n\n"},
		{"probe and func", `BEGIN { @a[1] = probe; @b[probe] = 1; $p = probe; printf("%s %s\n", $p, ksym(kaddr("tcp_v4_connect"))); exit(); }`, "BEGIN tcp_v4_connect\n@a[1]: BEGIN\n\n@b[BEGIN]: 1\n\n"},
		{"map declarations", `let @few = hash(2); let @last = lruhash(2); let @c = percpuhash(10); let @d = percpulruhash(10); let @h = hash(5);
			BEGIN { @few[1] = 1; @few[2] = 2; @c["a"] = count(); @c["a"] = count(); @d[1] = sum(5); @d[1] = sum(6); @h[1] = count(); @h[1] = count(); @last[1] = 1; printf("%d\n", @h[1]); delete(@last, 1); exit(); }`,
			"2\n@c[a]: 2\n\n@d[1]: 11\n\n@few[1]: 1\n@few[2]: 2\n\n@h[1]: 2\n\n"},
		{"booleans", `BEGIN { $b = 1 == 1; print($b); print((true, false, 2)); @a[true] = false; @n = 5 > 4; @n++; printf("%d %s\n", true, false); print(((bool)256, (bool)"", (bool)"x", (int64)true)); print(!7); @m = true; @m = 3; exit(); }`,
			"true\n(true, false, 2)\n1 false\n(true, false, true, 1)\nfalse\n@a[true]: false\n\n@m: 3\n@n: 2\n"},
		{"delete has a value", `BEGIN { @a[1] = 5; $x = delete(@a, 1); if (delete(@a, 1)) { print("again"); } print($x); print(delete(@a[1])); exit(); }`, "true\nfalse\n"},
		{"one value of a map", `BEGIN { @a[1] = 10; @c["x"] = count(); @s[1] = stats(4); @t[1, 2] = (1, "y"); @h[1] = hist(5); print(@a[1]); print(@c["x"]); print(@s[1]); print(@t[1, 2]); print(@h[1]); clear(@a); clear(@c); clear(@s); clear(@t); clear(@h); exit(); }`,
			"10\n1\ncount 1, average 4, total 4\n(1, y)\n[4, 8)                 1 |" + strings.Repeat("@", 52) + "|\n\n"},
		{"no parentheses", `BEGIN { $i = 0; while $i < 3 { $i++; if $i == 2 { print("two"); } else if ($i) == 3 && (1) { print("three"); } } for $j : 0..2 { print($j); } unroll 2 { print("u"); } print(0 ?: 7); print($i ?: 8); exit(); }`, "two\nthree\n0\n1\nu\nu\n7\n3\n"},
		{"typeof", `struct s { int a; long b; } BEGIN { $p = (struct s *)kaddr("tcp_v4_connect"); let $q : typeof($p); $q = (typeof($p))kaddr("tcp_v4_connect"); let $c : typeof(comm) = "x"; $u = (typeof((uint8)1))300;
			printf("%d %d %s %d %d %d\n", $q->b == $p->b, sizeof(typeof(*$p)), $c, $u, sizeof(typeof($p->a)), (typeof(int16))65535); exit(); }`, "1 16 x 44 4 -1\n"},
		{"builtins as functions", `BEGIN { printf("%d %d %d\n", pid() == pid, comm() == comm, nsecs() <= nsecs()); print(probe()); exit(); }`, "1 1 1\nBEGIN\n"},
		{"discarded", `BEGIN { @a[1] = 1; _ = has_key(@a, 1); _ = delete(@a, 1); _ = (1, "x"); exit(); }`, ""},
		{"elements", `BEGIN { $t = (1, "two", (3, 4)); print($t[1]); print(($t[2][1], (5, 6)[1 - 1])); $s = "abc"; printf("%d %c %d\n", $s[0], $s[2], $s[3]); print(comm[0] > 0); exit(); }`,
			"two\n(4, 5)\n97 c 0\ntrue\n"},
		{"strstr", `BEGIN { $s = "to find something in"; printf("%d %d %d %d\n", strstr($s, "to"), strstr($s, "find"), strstr($s, "in it"), strstr($s, "something in")); exit(); }`, "0 3 -1 8\n"},
		{"syscall_name", `BEGIN { printf("%s %s\n", syscall_name(__NR_read), syscall_name(99999)); @[syscall_name(__NR_connect)] = 1; exit(); }`, "read 99999\n@[connect]: 1\n\n"},
		{"tseries", `begin { @a = tseries(5, 1000d, 3, "sum"); @a = tseries(-3, 1000d, 3, "sum"); @b["x"] = tseries(4, 1000d, 2, "avg"); @b["x"] = tseries(7, 1000d, 2, "avg"); @c = tseries(4, 1000d, 2, "max"); @c = tseries(2, 1000d, 2, "max"); @d = tseries(4, 1000d, 2, "min"); @d = tseries(-2, 1000d, 2, "min"); @e = tseries(4, 1000d, 2); @e = tseries(3, 1000d, 2); }`,
			series("@a", 2) + series("@b[x]", 5) + series("@c", 4) + series("@d", -2) + series("@e", 3)},
		{"tseries over time", `interval:ms:30 { @n++; @ = tseries(@n, 10ms, 50); if (@n == 3) { exit(); } } end { clear(@n); }`,
			"@: \n⟨ +⟩1⟨ +⟩3\nhh:mm:ss.ms  |⟨_{51}⟩|\n⟨(?s)([\\d:.]+ \\* {51}. 1\n.* \\|.{25}\\*.{25}\\| 2\n.*\\* 3\n +v.*)⟩\n"},
		{"names of signals and processes", fmt.Sprintf(`begin { printf("%%s %%s %%s\n", signal_name(SIGTERM), signal_name(99), comm(%d)); @[comm(%d)] = 1; assert_str("x"); print(comm(2147483647)); }`, os.Getpid(), os.Getpid()),
			"SIGTERM 99 " + comm() + "\nN/A\n@[" + comm() + "]: 1\n\n"},
		{"buf of a string", `BEGIN { $s = "a\x01b"; printf("%r %r\n", buf($s, 3), buf("text", 4)); @[buf("key", 3)] = 1; exit(); }`, "a\\x01b text\n@[key]: 1\n\n"},
		{"macros", `macro one() { 1 } macro add_one(x) { x + 1 } macro each($a, @b) { $a += 1; @b += 1; } macro thrice(x) { x; x; x; } macro add_two(x) { add_one(x) + 1 } macro once(x) { let $x = x; $x + $x }
			macro pick(x) { if (x > 1) { $r = "more"; } else { $r = "one"; } $r } macro pick($a, x) { $a = x; }
			begin { print((one(), one, add_one(1 + 1), add_two(1))); $a = 10; @b[3] = 5; @c = 5; each($a, @c); print($a + @c); thrice({ printf("hi ") }); $n = 0; print(once($n++ + 1)); $x = 7; print((once($x), $x, $n));
			print(pick(2)); pick($x, 9); print($x); clear(@b); clear(@c); }`,
			"(1, 1, 3, 3)\n17\nhi hi hi 2\n(14, 7, 1)\nmore\n9\n"},
		{"block expressions", `begin { let $a = { let $b = 1; $b + 1 }; print($a); print({ $s = "abc"; $s }); @m[{ 3 }] = { if ($a > 1) { $q = 5; } else { $q = 6; } $q }; if ({ $z = $a; $z == 2 }) { print("two"); } $n = 0; print({ $n++; 0 } ?: { $n++; 7 }); print($n); }`,
			"2\nabc\ntwo\n7\n2\n@m[3]: 5\n\n"},
		{"blocks have their variables", `begin { if (1) { let $x = 5; print($x); } else { let $x = "s"; print($x); } { $y = 1; print($y); } { $y = "t"; print($y); } for ($i : 0..2) { let $z; print($z); $z = 9; } if (1) { $late = 3; } print($late); }`,
			"5\n1\nt\n0\n0\n3\n"},
		{"records of scripts", `begin { $a = (color="green", size=1); print($a); $a = (size=2, color="blue and long"); printf("%s %d\n", $a.color, $a.size); @r[1] = $a; print(@r[1].size); @k[$a] = 3; print(@k[(size=2, color="blue and long")]); for ($kv : @k) { print($kv.0.color); }
			print($a == (color="blue and long", size=2)); clear(@k); clear(@r); }`,
			"{ .color = green, .size = 1 }\nblue and long 2\n2\n3\nblue and long\ntrue\n"},
		{"small tuples", `begin { print((1,)); print(()); print((1, "a") == (1, "a")); print((1, ("longer than eight", 2)) != (1, ("x", 2))); $t = (5,); print($t.0); }`, "(1)\n()\ntrue\ntrue\n5\n"},
		{"addresses", `struct pair { int a; int b; } begin { $a = (int16)-5; $p = &$a; print(*$p); @m[1] = 7; $q = &@m[1]; print(*$q); $s = "abc"; print(*(&$s)); print(&@m[2] == 0); clear(@m); }`, "-5\n7\nabc\ntrue\n"},
		{"functions on strings", `begin { $h = "to find something"; $n = "some"; print((strstr($h, $n), strcontains($h, $n), strcontains($n, $h), strstr($h, $h), strstr($n, ""), strcap("abcdef"))); print((memcmp("abc", "abd", 3), memcmp("abc", "abd", 2), memcmp("b", "a", 1), memcmp("123456789", "123456780", 9))); }`,
			"(8, true, false, 0, 0, 8)\n(-1, 0, 1, 1)\n"},
		{"find", `begin { @m[1] = 7; @t["a"] = (1, "x"); let $v; if (find(@m, 1, $v)) { print($v); } if (!find(@m, 2, $v)) { print($v); } let $w; if (find(@t, "a", $w)) { print($w.1); } clear(@m); clear(@t); }`, "7\n7\nx\n"},
		{"types", `begin { $a = (uint8)1; print((typeinfo($a).base_ty, typeinfo($a).full_ty, typeinfo("x").base_ty, typeinfo((1, 2)).base_ty, typeinfo(curtask).full_ty, typeinfo((x=1)).base_ty));
			if comptime typeinfo(curtask).base_ty == "pointer" { print("address"); } else { fail("no"); } if comptime typeinfo($a).base_ty != "int" { fail("no"); } }`,
			"(int, uint8, string, tuple, struct task_struct *, record)\naddress\n"},
		{"types of types", `struct own { int a; } begin { print((typeinfo(int8).full_ty, typeinfo(int8).1, typeinfo(struct task_struct *).full_ty, typeinfo(struct own).base_ty)); print(typeinfo(uint16)); $t = typeinfo("abc"); print($t.base_ty);
			print((typeinfo(curtask) == typeinfo(struct task_struct *), typeinfo((uint8)1) == typeinfo(int8), typeinfo(struct own).btf_id, typeinfo(curtask).0 > 0, typeinfo(curtask).btf_id == typeinfo(struct task_struct).btf_id, typeinfo(curtask).btf_id == $1));
			if comptime (typeinfo(int8) == typeinfo(int8)) { print("alike"); } else { fail("no"); } static_assert(typeinfo(uint8) != typeinfo(int8), "signs"); }`,
			"(int8, int, struct task_struct *, c_struct)\n{ .btf_id = ⟨\\d+⟩, .base_ty = int, .full_ty = uint16 }\nstring\n(true, false, 0, true, true, false)\nalike\n"},
		{"patterns", `begin { $s = "to find 7 things"; print((globmatch($s, "to*"), globmatch($s, "to"), globmatch($s, "*things"), globmatch($s, "*thing"), globmatch($s, "t? find [0-9] *"), globmatch($s, "*[!0-9]"), globmatch($s, "*f*i*n*g*"), globmatch($s, "*z*")));
			print((globmatch("", ""), globmatch("", "*"), globmatch("", "?"), globmatch("abc", "abc"), globmatch("abc", "ab"), globmatch("abc", "[a-c][!a][c]"), globmatch("abc", "[a-c][!b][c]"), globmatch("a-]", "a[a-][]]"), globmatch("aaab", "*a?b"), globmatch(comm, "*")));
			print((globmatch("a/b/c", "a*c"), globmatch("\xff", "?"), globmatch("\xff", "[\x80-\xff]"))); }`,
			"(true, false, true, false, true, true, true, false)\n(true, true, false, true, false, true, false, true, true, true)\n(true, true, true)\n"},
		{"flags of allocations", `begin { printf("%gr|%gr|%-12gr|%gr|%gr\n", 0xcc0, 0xdc0, 0xc40, 0x40, 0); }`, "GFP_KERNEL|GFP_KERNEL|__GFP_ZERO|GFP_NOFS    |__GFP_IO|none\n"},
		{"texts of the script", "#define RED \"\\033[31m\"\n" + `begin { print("\033[32mgreen\033[0m"); printf("%sred%s %-4s|\n", RED, "\033[0m", "ab"); @["\033[1m"] = 1; }`, "\x1b[32mgreen\x1b[0m\n\x1b[31mred\x1b[0m ab  |\n@[\\x1b[1m]: 1\n\n"},
		{"names of probes", `first=begin { print("one"); } second=begin { print("two"); }`, "one\ntwo\n"},
		{"lengths of strings", `config = { max_strlen = 96 } begin { print((default_str_length(), default_str_length)); let $s : string[24] = "abc"; print(($s, sizeof($s))); $s = "more"; print($s); }`, "(96, 96)\n(abc, 24)\nmore\n"},
		{"parts of arguments", `begin { printf("%s|%s|%s\n", str($2 + 1), str($2 + 4), str($3 + 5)); }`, "ord||\n"},
		{"functions of the kernel that programs call", `begin { print((kfunc_allowed("no_such_function"), kfunc_allowed("do_exit"))); }`, "(false, false)\n"},
		{"types at compile time", `begin { $s = "x"; print((is_str($s), is_str(1), is_ptr(curtask), is_integer(1), is_unsigned_integer(nsecs), is_array(pton("::1")), is_literal("x"), is_literal($s), kfunc_exist("no_such_function")));
			if comptime (is_str($s)) { print("string"); } else { print($s + 1); } static_assert(sizeof(uint64) == 8 && sizeof($s) == 8, "eight"); if ($# > 3) { fail("too many: %d", $#); } if (0) { fail("never"); } }`,
			"(true, false, true, true, true, true, true, false, false)\nstring\n"},
		{"processes", fmt.Sprintf(`begin { printf("%%d %%d %%d %%d\n", pcomm == comm, pcomm() == pcomm(curtask), ppid(curtask) == ppid, ppid() == %d); printf("%%d %%d %%d %%s %%d\n", pid(init) > 0, tid(curr_ns) == tid, pid(curr_ns) == %d, probetype, has_cpid); }`, os.Getppid(), os.Getpid()),
			"⟨[01]⟩ 1 1 1\n1 1 1 special 0\n"},
		{"usermode", `begin { print(usermode); }`, "0\n"},
		{"clocks", `begin { $a = nsecs(tai); $b = nsecs(sw_tai); $c = nsecs(tai); print(((int64)($b - $a) > -1000000000, (int64)($c - $b) > -1000000000, nsecs(boot) + 1000000000 >= nsecs(monotonic))); }`, "(true, true, true)\n"},
		{"lengths of stacks", `begin { print((len(kstack) > 1, len(kstack(2)), len(ustack(1)) <= 1)); }`, "(true, 2, true)\n"},
		{"enums", `enum custom { FIRST, CUSTOM_ENUM = 3 } begin { $r = TCP_MAX_STATES; $d = BPF_PROG_TYPE_KPROBE; printf("%d %s %s %s\n", $r > 1, $d, CUSTOM_ENUM, (enum custom)0); @[CUSTOM_ENUM] = FIRST; print((enum custom)7); print((CUSTOM_ENUM, 5)); @x = FIRST; @x = 9; printf("%d\n", CUSTOM_ENUM); }`,
			"1 BPF_PROG_TYPE_KPROBE CUSTOM_ENUM FIRST\n7\n(CUSTOM_ENUM, 5)\n3\n@[CUSTOM_ENUM]: FIRST\n\n@x: 9\n"},
		{"finer histograms", `begin { @h = hist(-1, 1); @h = hist(0, 1); @h = hist(1, 1); @h = hist(2, 1); @h = hist(3, 1); @h = hist(4, 1); @h = hist(7, 1); @h = hist(7, 1); }`,
			"@h: \n" + bar("(..., 0)", 1, 26) + bar("[0]", 1, 26) + bar("[1]", 1, 26) + bar("[2]", 1, 26) + bar("[3]", 1, 26) + bar("[4, 6)", 1, 26) + bar("[6, 8)", 2, 52) + "\n"},
		{"the ends of finer histograms", `begin { @a = hist(9223372036854775807, 5); @a = hist(4611686018427387904, 5); @b = hist(18446744073709551615, 3); printf("%d\n", 1); }`,
			"1\n@a: \n[4E, 4224P)            1 |" + strings.Repeat("@", 52) + "|\n⟨(?s).*⟩[8064P, 8E)            1 |" + strings.Repeat("@", 52) + "|\n\n@b: \n⟨.*⟩1 |" + strings.Repeat("@", 52) + "|\n\n"},
		{"formats of bytes", `begin { $s = "a\x01b"; printf("%r|%rx|%rh|%-8rh|\n", buf($s, 3), buf($s, 3), buf($s, 3), buf("xy", 2)); }`, "a\\x01b|\\x61\\x01\\x62|61 01 62|78 79   |\n"},
		{"assert", `begin { $a = 1; assert($a == 1, "fine"); print("on"); assert($a == 2, "not two"); print("never"); }`, "on\n"},
		{"arguments that are words", `begin { print($2); printf("%s %d\n", $2, $1 + 1); @[$2] = 1; print($2 == "word"); }`, "word\nword 43\ntrue\n@[word]: 1\n\n"},
		{"arrays of numbers", `begin { $a = (int8[8])12345; printf("%x %x %d\n", $a[0], $a[1], (uint64)$a); $b = (uint8[])(uint32)16909060; printf("%d %d %d\n", sizeof($b), $b[0], $b[3]); }`, "39 30 12345\n4 4 1\n"},
		{"offsets of expressions", `struct s { int a; struct { int b; int c; } in; } begin { $p = (struct s *)0; printf("%d %d\n", offsetof($p, in.c), offsetof(*$p, in)); }`, "8 4\n"},
		{"timers in nanoseconds", `interval:2000000 { @n++; if (@n == 3) { printf("%s\n", probe); exit(); } } end { clear(@n); }`, "interval:2000000\n"},
		{"the standard library", `import "stdlib/base"; begin { print("there"); }`, "there\n"},
		{"ends by itself", `BEGIN { @x = 1; print("begun"); } END { print("ended"); }`, "begun\nended\n@x: 1\n"},
		{"numbers of fewer bits", `BEGIN { @a = (uint8)255; @a++; @b = (uint8)255; @b += 3; printf("%d %d\n", @a, @b); $u = (uint32)5; @c += $u; @c -= 2 * $u;
			$x = (uint8)255; $y = $x++; printf("%d %d %d %d\n", $x == 0, $x, $y, --$x); exit(); }`,
			"256 258\n1 0 255 255\n@a: 256\n@b: 258\n@c: -5\n"},
		{"steps of pointers", `BEGIN { $p = (uint32 *)kaddr("tcp_v4_connect"); $q = $p + 3; $r = $p; $r += 3; $s = $q; $s -= 2; $s--; @t = $p; @t += 3; @u = $q; @u--; @u -= 2;
			printf("%d %d %d %d\n", $r == $q, $s == $p, @t == $q, @u == $p); clear(@t); clear(@u); exit(); }`, "1 1 1 1\n"},
		{"variables that grow", `BEGIN { $t = ("a", 1); printf("%s %d\n", $t.0, $t.1); @t[1] = $t; @u[1] = @t[1]; @u[2] = ("longer than sixteen bytes", 3);
			$t = ("longer than eight", 2); @t[2] = $t; $s = "a"; $i = 0; while ($i < 2) { printf("%s\n", $s); $s = "longer than eight"; $i++; } exit(); }`,
			"a 1\na\nlonger than eight\n@t[1]: (a, 1)\n@t[2]: (longer than eight, 2)\n\n@u[1]: (a, 1)\n@u[2]: (longer than sixteen bytes, 3)\n\n"},
		{"ternary", `BEGIN { printf("%s %d\n", 1 ? "yes" : "no", 0 ? 1 : 2); exit(); }`, "yes 2\n"},
		{"has_key", `BEGIN { @a[1] = 0; printf("%d %d\n", has_key(@a, 1), has_key(@a, 2)); clear(@a); exit(); }`, "1 0\n"},
		{"delete", `BEGIN { @a[1] = 5; @b[2] = 6; delete(@a[1]); delete(@b, 2); @c = 1; delete(@c); exit(); }`, ""},
		{"hist", `BEGIN { @ = hist(-3); @ = hist(0); @ = hist(1); @ = hist(2); @ = hist(3); @ = hist(1024); exit(); }`,
			"@: \n(..., 0)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n" +
				"[0]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n" +
				"[1]                    1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n" +
				"[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n" +
				strings.Join(emptyRows("[4, 8)", "[8, 16)", "[16, 32)", "[32, 64)", "[64, 128)", "[128, 256)", "[256, 512)", "[512, 1K)"), "") +
				"[1K, 2K)               1 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n\n"},
		{"lhist", `BEGIN { @ = lhist(-1, 0, 30, 10); @ = lhist(5, 0, 30, 10); @ = lhist(29, 0, 30, 10); @ = lhist(30, 0, 30, 10); exit(); }`,
			"@: \n(..., 0)               1 |" + strings.Repeat("@", 52) + "|\n[0, 10)                1 |" + strings.Repeat("@", 52) + "|\n" +
				"[10, 20)               0 |" + strings.Repeat(" ", 52) + "|\n[20, 30)               1 |" + strings.Repeat("@", 52) + "|\n[30, ...)              1 |" + strings.Repeat("@", 52) + "|\n\n"},
		{"reading aggregations", `BEGIN { @c = count(); @c = count(); @s = sum(5); @a = avg(4); @a = avg(8); @m = max(7); printf("%d %d %d %d\n", @c, @s, @a, @m); exit(); }`,
			"2 5 6 7\n@a: 6\n@c: 2\n@m: 7\n@s: 5\n"},
		{"stacks", `BEGIN { @[kstack(2)] = count(); exit(); }`, "@[\n    ⟨\\w+\\+\\d+⟩\n    ⟨\\w+\\+\\d+⟩\n]: 1\n\n"},
		{"users", `BEGIN { printf("%s %s\n", username, uid == 0 ? "root" : "other"); exit(); }`, "⟨\\w+⟩ ⟨\\w+⟩\n"},
		{"cgroup", `BEGIN { printf("%d %s\n", cgroup > 0, cgroup_path(cgroup)); exit(); }`, "1 ⟨.+⟩\n"},
		{"curtask", `BEGIN { printf("%d %d %s\n", curtask->tgid == pid, ppid == curtask->real_parent->tgid, curtask->comm == comm ? "same" : "other"); exit(); }`, "1 1 same\n"},
		// Interrupts change the flags that a task begins with.
		{"structs of scripts", `struct task_struct { long flags[3]; int x; int y; } BEGIN { $t = (struct task_struct *)curtask; printf("%d %d %d\n", curtask->x == $t->x, curtask->y == $t->y, sizeof(struct task_struct)); exit(); }`, "1 1 32\n"},
		{"sizes of tuples", `BEGIN { $t = (1, "abc", (2, 3)); printf("%d %d\n", sizeof($t), sizeof((1, 2))); exit(); }`, "32 16\n"},
		{"records", `struct in { int p; char q[4]; } struct s { char c; struct in in; unsigned f:3; int g:5; struct in v[2]; } BEGIN { $s = *(struct s *)kaddr("tcp_v4_connect"); @ = sizeof($s); print($s); exit(); }`,
			"{ .c = ⟨-?\\d+⟩, .in = { .p = ⟨-?\\d+⟩, .q = ⟨.*⟩ }, .f = ⟨[0-7]⟩, .g = ⟨-?\\d+⟩, .v = [{ .p = ⟨-?\\d+⟩, .q = ⟨.*⟩ },{ .p = ⟨-?\\d+⟩, .q = ⟨.*⟩ }] }\n@: 32\n"},
		{"sizes", `struct s { char c; int i; short h:4; union { long l; char b[12]; }; } BEGIN { printf("%d %d %d\n", sizeof(struct s), offsetof(struct s, b), sizeof(uint16)); exit(); }`, "32 16 2\n"},
		{"pointers in structs", `struct s { void *p; int *q; } BEGIN { $p = (struct s *)kaddr("tcp_v4_connect"); @ = *$p; exit(); }`, "@: { .p = 0x⟨[0-9a-f]+⟩, .q = 0x⟨[0-9a-f]+⟩ }\n"},
		{"enum", `enum e { A, B = 7, C } BEGIN { printf("%d %d %d\n", A, B, C); exit(); }`, "0 7 8\n"},
		{"bswap", `BEGIN { printf("%x %x %d\n", bswap((uint16)0x1234), bswap((uint32)0x12345678), bswap((uint8)7)); exit(); }`, "3412 78563412 7\n"},
		{"ksym", `BEGIN { printf("%s\n", ksym(kaddr("tcp_v4_connect"))); exit(); }`, "tcp_v4_connect\n"},
		{"interval", `interval:ms:2 { @n++; if (@n == 5) { printf("%d\n", @n); exit(); } } END { printf("end\n"); clear(@n); }`, "5\nend\n"},
		{"print", `BEGIN { @a[1] = 10; @a[2] = 30; @a[3] = 20; print(@a, 2); print(@a[1]); print(5 + 5); clear(@a); exit(); }`, "@a[3]: 20\n@a[2]: 30\n\n10\n10\n"},
		{"zero", `BEGIN { @a[1] = 10; zero(@a); @c[1] = sum(4); zero(@c); exit(); }`, "@a[1]: 0\n\n@c[1]: 0\n\n"},
		{"arrays", `BEGIN { @a = count(); @a = count(); @b[probe] = count(); @c = count(); clear(@c); @d = count(); delete(@d); @h = hist(0); @m = max(0); @s = sum(0);
			@z = count(); zero(@z); print(@b[probe]); exit(); } interval:s:1000 { @b[probe] = count(); @never = count(); print(@b[probe]); }`,
			"1\n@a: 2\n@b[BEGIN]: 1\n\n@h: \n[0]                    1 |" + strings.Repeat("@", 52) + "|\n\n@m: 0\n@s: 0\n@z: 0\n"},
		{"params", `BEGIN { printf("%d %s %d %d\n", $1, str($2), $#, $9); exit(); }`, "42 word 2 0\n"},
		{"while", `BEGIN { $i = 0; while ($i < 5) { $i++; if ($i == 2) { continue; } if ($i == 4) { break; } @[$i] = 1; } exit(); }`, "@[1]: 1\n@[3]: 1\n\n"},
		{"for", `BEGIN { $n = 3; for ($i : $n..$n + 3) { for ($j : 0..9) { if ($j == 1) { continue; } if ($j > 2) { break; } printf("%d %d\n", $i, $j); } } exit(); }`,
			"3 0\n3 2\n4 0\n4 2\n5 0\n5 2\n"},
		{"arithmetic", `BEGIN { $a = 7; $b = 3; printf("%d %d %d %d %d\n", $a * $b, $a & $b, $a / $b, $a % $b, -$a * $b); exit(); }`, "21 3 2 1 -21\n"},
		{"includes", "#include <linux/skbuff.h>\n#include \"x.h\"\nBEGIN { printf(\"%s\\n\", \"included\"); exit(); }", "included\n"},
		{"machine", `BEGIN { $j = jiffies; printf("%d %d %d\n", $j > 0 && $j <= jiffies, numaid < 1024, rand != rand || rand != rand); exit(); }`, "1 1 1\n"},
		{"username", `BEGIN { printf("%s %s\n", username(0), username(4294967290)); exit(); }`, "root 4294967290\n"},
		{"sort", `BEGIN { @["b"] = 2; @["a"] = 2; @["c"] = 1; exit(); }`, "@[c]: 1\n@[a]: 2\n@[b]: 2\n\n"},
		{"buf", `BEGIN { printf("%r\n", buf(kaddr("tcp_v4_connect"), 0)); exit(); }`, "⟨.*⟩\n"},
		{"join none", `BEGIN { join(0); exit(); }`, "\n"},
		{"cat", `BEGIN { cat("/proc/sys/kernel/ostype"); exit(); }`, "Linux\n"},
		{"unsafe", `BEGIN { system("echo %d", 7); exit(); }`, "7\n"},
		{"exit in the middle", `BEGIN { printf("a\n"); exit(); printf("b\n"); }`, "a\n"},
		{"macaddr", `BEGIN { $p = kaddr("tcp_v4_connect"); @m = macaddr($p); exit(); }`, "@m: ⟨([0-9a-f]{2}:){5}[0-9a-f]{2}⟩\n"},
		{"cgroupid", `BEGIN { printf("%d\n", cgroupid("/") > 0); exit(); }`, "1\n"},
		{"uptr", `BEGIN { $p = uptr(kaddr("tcp_v4_connect")); $q = kptr($p); printf("%d %d\n", *$p, *$q != 0); exit(); }`, "0 1\n"},
		{"comments", "/* a */ BEGIN // b\n{ /* { */ printf(\"/* c */ // d\\n\"); exit(); }", "/* c */ // d\n"},
		{"book and today", `BEGIN { exit(); } begin { exit(); }`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "literals" { // characters are no literals in this language
				if _, err := Parse(&Source{Name: "-e", Text: c.text}); err == nil {
					t.Error("'a' was taken")
				}
				return
			}
			if _, err := os.Stat("/bin/sh"); err != nil && c.name == "unsafe" {
				lack(t, err)
			}
			if runtime.GOARCH != "amd64" && c.name == "usermode" {
				_, err := Compile(&Source{Name: "-e", Text: c.text}, Options{})
				if err == nil || !strings.Contains(err.Error(), "usermode is known on amd64 only") {
					t.Errorf("usermode on %s: %v", runtime.GOARCH, err)
				}
				return
			}
			out, errs := live(t, func(o Options) (*Program, error) {
				o.Args, o.Unsafe = []string{"42", "word"}, true
				return Compile(&Source{Name: "-e", Text: c.text}, o)
			}, Options{}, nil)
			if !literally(c.want).MatchString(out) {
				t.Errorf("got\n%s\nwant\n%s\n%s", out, c.want, errs)
			}
		})
	}
}

// TestUnused runs scripts with values that nobody asks for, and wants to be told of each once.
func TestUnused(t *testing.T) {
	out, errs := live(t, script(`begin { @a[1] = 2; $x = 5; 1; { $x++ } has_key(@a, 1); $x + 1; "text"; (1, $x++); strlen("abc"); print($x); clear(@a); } begin { _ = 1; delete(@a, 1); }`), Options{}, nil)
	want(t, out, "7\n")
	for _, at := range []string{"28", "40", "56", "64", "72", "83"} {
		want(t, errs, "warning: -e:1:"+at+": this value is not used")
	}
	if n := strings.Count(errs, "not used"); n != 6 {
		t.Errorf("there are %d warnings, want 6:\n%s", n, errs)
	}
}

// literally is a whole text, with patterns in ⟨⟩.
func literally(want string) *regexp.Regexp {
	var re strings.Builder
	for i, part := range regexp.MustCompile(`[⟨⟩]`).Split(want, -1) {
		if i%2 == 1 {
			re.WriteString(part)
		} else {
			re.WriteString(regexp.QuoteMeta(part))
		}
	}
	return regexp.MustCompile("^(?s:" + re.String() + ")$")
}

func emptyRows(labels ...string) (rows []string) {
	for _, l := range labels {
		rows = append(rows, fmt.Sprintf("%-16s%8d |%52s|\n", l, 0, ""))
	}
	return rows
}

// sink keeps the compiler from leaving calls out.
var sink int

// TestEventElements has the elements that need an event.
func TestEventElements(t *testing.T) {
	o := Options{PIDs: self()}
	for _, c := range []struct {
		name, text string
		work       func()
		want       []string
	}{
		{"structs", string(must(corpus.ReadFile("testdata/corpus/el_structs.bt"))), func() {
			fd := must(unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0))
			defer unix.Close(fd)
			b := make([]byte, 40)
			copy(b, []byte{0xfe, 0xff, 0xff, 0xff, 'n', 'a', 'm', 'e', 0, 0, 0, 0, 0x34, 0x12})
			copy(b[16:], []byte{0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xa5})
			must(unix.Write(fd, b))
		}, []string{"-2 name 4660 18 -16 5 10 6\n", "32 16\n", "@copy: { .a = -2, .name = name", "@x[-2]: 1\n"}},
		{"user pointers", "t:syscalls:sys_enter_connect { @[args->uservaddr->sa_family] = count(); @s[tid] = args->uservaddr; } t:syscalls:sys_exit_connect /@s[tid]/ { @exit[@s[tid]->sa_family] = count(); delete(@s[tid]); }",
			func() { refused(3) }, []string{"@[2]: 3\n", "@exit[2]: 3\n"}},
		{"strings from users", `t:syscalls:sys_enter_openat /str(args->filename) == "/nonexistent/file"/ { $n = 9; @[str(args->filename), str(args.filename, 8)] = count(); @n[str(args.filename, $n)] = count(); }`,
			func() {
				for range 4 {
					_, _ = unix.Open("/nonexistent/file", unix.O_RDONLY, 0)
				}
			}, []string{"@[/nonexistent/file, /nonexis]: 4\n", "@n[/nonexist]: 4\n"}},
		// A C library leaves the upper half of a register zero, Go fills it with the sign.
		{"arguments of system calls", `t:syscalls:sys_enter_openat /str(args.filename) == "/nonexistent/file"/ { @at[args.dfd, args.dfd == AT_FDCWD, args.dfd < 0, args.mode] = count(); }
			t:syscalls:sys_enter_kill { @kill[args.pid, args.sig] = count(); } t:syscalls:sys_enter_lseek { @seek[args.fd, args.offset] = count(); }
			t:syscalls:sys_enter_write /args.count == 1/ { @bytes[args.fd, args.count] = count(); }`,
			func() {
				name := must(unix.BytePtrFromString("/nonexistent/file"))
				for _, at := range []int{unix.AT_FDCWD, 1<<32 + unix.AT_FDCWD} {
					_, _, _ = unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(name)), unix.O_RDONLY, 0o640, 0, 0)
				}
				for _, pid := range []int{-0x7fffff00, 1<<32 - 0x7fffff00} {
					_, _, _ = unix.Syscall(unix.SYS_KILL, uintptr(pid), 0, 0)
				}
				_, _ = unix.Seek(-1, -5, 0)
				_, _ = unix.Write(-1, []byte{0})
			}, []string{"@at[-100, true, true, 416]: 2\n", "@kill[-2147483392, 0]: 2\n", "@seek[4294967295, -5]: 1\n", "@bytes[4294967295, 1]: 1\n"}},
		{"strings from arrays", `t:sock:inet_sock_set_state /args.newstate == TCP_SYN_SENT/ { $n = 3; $t = curtask; @[str($t->comm, 2), str($t->comm, $n), str($t->comm) == comm] = count(); }`,
			func() { refused(2) }, []string{"@[" + comm()[:2] + ", " + comm()[:3] + ", true]: 2\n"}},
		{"bytes", `t:syscalls:sys_enter_write /args.count == 5/ { printf("%r\n", buf(args.buf, args.count)); }`, func() {
			fd := must(unix.Open("/dev/null", unix.O_WRONLY|unix.O_CLOEXEC, 0))
			defer unix.Close(fd)
			must(unix.Write(fd, []byte("a\x01bcd")))
		}, []string{"a\\x01bcd\n"}},
		{"arrays", `t:sock:inet_sock_set_state /args.newstate == TCP_SYN_SENT/ { printf("%d.%d %s\n", args.daddr[0], args.daddr[3], ntop(args.daddr)); if (args.daddr == pton("127.0.0.1")) { @lo = count(); } @[args.daddr] = count(); }`,
			func() { refused(2) }, []string{"127.1 127.0.0.1\n", "@lo: 2\n", "@[[127,0,0,1]]: 2\n"}},
		{"indexes past the end", `t:sock:inet_sock_set_state /args.newstate == TCP_SYN_SENT/ { $i = 3; printf("%d", args.daddr[$i]); $i++; printf(" %d", args.daddr[$i]); $i = -1; printf(" %d\n", args.daddr[$i]); }`,
			func() { refused(1) }, []string{"1 0 0\n"}},
		{"join", `t:syscalls:sys_enter_execve { join(args->argv, "+"); }`, func() {
			pid, _ := os.StartProcess("/proc/self/exe", []string{"bt.test", "-test.run=^$", "x"}, &os.ProcAttr{})
			if pid != nil {
				_, _ = pid.Wait()
			}
		}, nil},
		{"predicates", `t:syscalls:sys_enter_connect /pid == $1 && args->fd / 2 >= 1/ { @ = count(); }`, func() { refused(5) }, []string{"@: 5\n"}},
		{"uprobe", `u:/proc/self/exe:seine/internal/bt.traced { @[func, probe, reg("ax")] = count(); @st[ustack(2)] = count(); }`, func() {
			for i := range 7 {
				sink += traced(i % 2)
			}
		}, []string{"@[seine/internal/bt.traced, uprobe:/proc/self/exe:seine/internal/bt.traced, 0]: 4\n", ", 1]: 3\n", "bt.traced+0\n"}},
		{"arguments of raw tracepoints", `rt:sys_enter /pid == $1 && args.id == $2/ { @ = count(); }`, func() { unix.Getppid(); unix.Getppid() }, []string{"@: 2\n"}},
		{"raw tracepoints", `rt:sys_enter /pid == $1 && arg1 == $2/ { @ = count(); }`, func() {
			for range 13 { // Go itself calls getpid(2) now and then
				unix.Getppid()
			}
		}, []string{"@: 13\n"}},
		{"profile", `profile:hz:997 /pid == $1/ { @[comm] = count(); }`, func() {
			for n := 0; n < 300_000_000; n++ {
				if n%3 == 7 {
					return
				}
			}
		}, []string{"]: "}},
		{"software events", `software:page-faults:1 /pid == $1/ { @ = count(); }`, func() {
			b := must(unix.Mmap(-1, 0, 64<<12, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			_ = unix.Munmap(b)
		}, []string{"@: "}},
		{"ctx", `t:syscalls:sys_enter_getppid { @[ctx > 4096] = count(); }`, func() { unix.Getppid() }, []string{"@[true]: 1\n"}},
		{"for in a tracepoint", `t:syscalls:sys_enter_getppid,t:syscalls:sys_enter_getpgid { @m[comm, pid] = sum(5); $n = 0; for ($kv : @m) { $n += $kv.1; if ($kv.0.1 == pid) { @in[probe, args.__syscall_nr > 0] = count(); @st[kstack(1)] = count(); } } @sum = max($n); }`,
			func() { unix.Getppid(); unix.Getppid(); unix.Getppid() }, []string{"@in[tracepoint:syscalls:sys_enter_getppid, true]: 3\n", "]: 3\n\n@sum: 15\n"}},
		{"for in a raw tracepoint", `rt:sys_enter /pid == $1 && arg1 == $2/ { @m[1] = 1; @m[2] = 2; for ($kv : @m) { @[$kv.1] = count(); } }`,
			func() { unix.Getppid(); unix.Getppid() }, []string{"@[1]: 2\n@[2]: 2\n"}},
		{"structs of users", `struct rec { int a; char name[4]; long b; struct rec *next; int arr[2][2]; };
			u:/proc/self/exe:seine/internal/bt.tracedAt { let $c : struct rec * = (struct rec *)reg("ax"); printf("%d %d %d\n", $c->a, $c->b, $c->next->a);
			let $d : struct rec *; $d = (struct rec *)reg("ax"); printf("%d %s\n", $d->next->a, $d->name); @m[1] = $d; printf("%d\n", @m[1]->next->b);
			@n[1] = (struct rec *)0; @n[1] = $d; printf("n %d\n", @n[1]->a); $t = (1, $d); printf("t %d\n", $t.1->b); $p = (int32 *)(uint64)reg("ax"); printf("p %d\n", *$p);
			print($c->arr); @arr = $c->arr; print($c->arr[1]); printf("%d %d\n", $c->arr[1][0], sizeof($c->arr)); print(*$c); clear(@m); clear(@n); }`,
			func() {
				sink += int(tracedAt(&userRecord{a: 5, name: [4]byte{'o', 'n', 'e'}, b: 6, next: &userRecord{a: 7, b: 8}, arr: [2][2]int32{{9, 8}, {-7, 6}}}))
			},
			[]string{"5 6 7\n7 one\n8\nn 5\nt 6\np 5\n[[9,8],[-7,6]]\n[-7,6]\n-7 16\n{ .a = 5, .name = one, .b = 6, .next = 0x", ", .arr = [[9,8],[-7,6]] }\n", "@arr: [[9,8],[-7,6]]\n"}},
		{"socket_cookie", `rt:inet_sock_set_state /pid == $1 && arg2 == TCP_SYN_SENT/ { @[socket_cookie(arg0) == ((struct sock *)arg0)->__sk_common.skc_cookie.counter] = count(); }`, func() { refused(2) }, []string{"@[true]: 2\n"}},
		{"all arguments", `t:syscalls:sys_enter_getpgid { print(args); @[args.pid] = args; }`, func() { _, _ = unix.Getpgid(0) }, []string{".pid = 0 }\n", "@[0]: { .__syscall_nr = "}},
		{"paths", `t:syscalls:sys_enter_fdatasync { $f = (struct file *)*(curtask->files->fdt->fd + args.fd); printf("%s %s\n", path($f->f_path), path(&$f->f_path)); }`, func() {
			for _, name := range []string{"/proc/self/status", "/dev/null", "/sys/kernel"} {
				fd := must(unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0))
				_ = unix.Fdatasync(fd)
				unix.Close(fd)
			}
		}, []string{fmt.Sprintf("/proc/%d/status /proc/%d/status\n", os.Getpid(), os.Getpid()), "/dev/null /dev/null\n", "/sys/kernel /sys/kernel\n"}},
		{"usym", `u:/proc/self/exe:seine/internal/bt.traced { @[usym(reg("ip"))] = count(); }`, func() { sink += traced(1) }, []string{"@[seine/internal/bt.traced]: 1\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := o
			if _, err := running().proto("__bpf_trace_sys_enter", ""); err != nil && strings.Contains(c.text, "args.id") {
				t.Skip("this kernel's BTF has no functions that cannot be traced, so no names of raw tracepoints' arguments")
			}
			if c.name == "join" {
				opts.PIDs = nil
			}
			if strings.Contains(c.text, `, reg("ax")`) && runtime.GOARCH != "amd64" {
				t.Skip("ax is a register of amd64")
			}
			if runtime.GOARCH == "arm64" {
				c.text = strings.ReplaceAll(c.text, `reg("ax")`, `reg("r0")`)
				c.text = strings.ReplaceAll(c.text, `reg("ip")`, `reg("pc")`)
			}
			out, errs := live(t, script(c.text, fmt.Sprint(os.Getpid()), fmt.Sprint(unix.SYS_GETPPID)), opts, c.work)
			want(t, out, c.want...)
			if c.name == "join" {
				want(t, out, "bt.test+-test.run=^$+x\n")
			}
			if strings.Contains(errs, "lost") {
				t.Error(errs)
			}
		})
	}
}

// TestLoops has loops of which nobody knows the turns beforehand.
func TestLoops(t *testing.T) {
	if !running().loop() {
		t.Skip("bpf_loop came with Linux 5.17")
	}
	out, errs := live(t, script(`begin {
		$n = 5000; $sum = 0; for ($i : 0..$n) { $sum += $i; if ($i == 4000) { break; } } print($sum);
		$i = 0; while ($i < 100000) { $i++; if ($i % 2) { continue; } @even++; } print($i);
		for ($a : 0..40) { for ($b : 0..$a) { for ($c : 0..3) { $j = 0; while ($j < 2) { $j++; @inner++; } } } }
		$r = rand % 10; while ($r > 0) { $r--; } print($r);
		$s = ""; $k = 0; while ($k < 50) { $k++; $s = $k % 2 ? "odd" : "even"; @[$s] = count(); } print($s);
		while (1) { @w++; if (@w > 10) { return; } } print("never");
	} end { $k = 0; while (1) { $k++; } print($k); }`), Options{}, nil)
	if want := "8002000\n100000\n0\neven\n8388608\n@[even]: 25\n@[odd]: 25\n\n@even: 50000\n@inner: 4680\n@w: 11\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	want(t, errs, "1 loop was ended: ")
	if strings.Contains(errs, "lost") {
		t.Error(errs)
	}
}

// TestGetopt has options that a script names.
func TestGetopt(t *testing.T) {
	const text = `begin { printf("%d %s %s %d %d\n", getopt("count", 5, "how many"), getopt("name", "all"), getopt("quiet"), getopt("down", -3), getopt("on", true)); if (getopt("quiet")) { exit(); } printf("loud\n"); }`
	for _, c := range []struct {
		given []string
		want  string
	}{
		{nil, "5 all false -3 1\nloud\n"},
		{[]string{"--count=0x10", "--name=a b", "--quiet", "--down=-7", "--on=false"}, "16 a b true -7 0\n"},
		{[]string{"--quiet=0"}, "5 all false -3 1\nloud\n"},
	} {
		out, _ := live(t, func(o Options) (*Program, error) {
			o.Named = c.given
			return Compile(&Source{Name: "-e", Text: text}, o)
		}, Options{}, nil)
		if out != c.want {
			t.Errorf("%q: got %q, want %q", c.given, out, c.want)
		}
	}
	for given, want := range map[string]string{
		"--cont=1": "-e has no option --cont: did you mean --count?", "--count=x": "-e:1:36: --count=x: it is a number", "--quiet=x": "--quiet=x: it is true or false",
		"--help": "--count=NUMBER           how many (default 5)\n",
	} {
		_, err := Compile(&Source{Name: "-e", Text: text}, Options{Named: []string{given}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", given, err, want)
		}
	}
}

// TestImport has scripts that import others.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		check(os.MkdirAll(filepath.Dir(path), 0o755))
		check(os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	main := write("main.bt", "#!/usr/bin/env bpftrace\nimport \"lib\";\nimport \"more/inner\";\nimport \"stdlib/base\";\n\nbegin { printf(\"main %d %d %d\\n\", twice(4), INNER, thrice(2)); }\n")
	write("lib/one.bt", "import \"two.bt\"\nmacro twice(x) { x * 2 }\nbegin { print(\"one\"); }\n")
	write("lib/two.bt", "#define INNER 5\nmacro thrice(x) { x * 3 }\nbegin { print(\"two\"); }\n")
	write("more/inner.bt", "struct in { int a; }\n")
	out, _ := live(t, func(o Options) (*Program, error) {
		return Compile(&Source{Name: main, Text: string(must(os.ReadFile(main)))}, o)
	}, Options{}, nil)
	if want := "two\none\nmain 8 5 6\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
	write("more/bad.bt", "\n\nmacro f(x) { x + $y }\n")
	for text, want := range map[string]string{
		"import \"lib/none\"; begin { }":                  filepath.Join(dir, "x.bt") + ":1:8: there is no lib/none and no lib/none.bt to import",
		"import \"more/bad\"; begin { @ = f(1); }":        filepath.Join(dir, "more/bad.bt") + ":3:18: $y has no value here",
		"import lib; begin { }":                           "import takes the name of a file in quotes",
		"import \"more/bad\"; import \"more\"; begin { }": "",
	} {
		_, err := Compile(&Source{Name: filepath.Join(dir, "x.bt"), Text: text}, Options{})
		if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
		var at *Error
		if errors.As(err, &at) && strings.Contains(want, "$y") && !strings.HasPrefix(at.Show(), "    macro f(x) { x + $y }\n") {
			t.Errorf("the place is shown as %q", at.Show())
		}
	}
}

// TestSignal has what --unsafe allows, and messages to stderr.
func TestSignal(t *testing.T) {
	got := make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGUSR1)
	defer signal.Stop(got)
	_, errs := live(t, func(o Options) (*Program, error) {
		o.Unsafe, o.PIDs = true, self()
		return Compile(&Source{Name: "-e", Text: `t:syscalls:sys_enter_getppid { signal("USR1"); errorf("sent %d\n", 10); warnf("careful\n"); } t:syscalls:sys_enter_getpgid { signal_thread("SIGUSR1"); }`}, o)
	}, Options{}, func() {
		unix.Getppid()
		select {
		case <-got:
		case <-time.After(time.Minute):
			t.Error("got no signal")
		}
		_, _ = unix.Getpgid(0)
		select {
		case <-got:
		case <-time.After(time.Minute):
			t.Error("got no signal of the thread's")
		}
	})
	want(t, errs, "seine: sent 10\n", "careful\n")
}

// TestDebugf reads what a script writes to the kernel's log of traces.
func TestDebugf(t *testing.T) {
	needRoot(t)
	root, err := host.Tracefs()
	if err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat(filepath.Join(root, "trace")); err != nil {
		t.Skip("this kernel keeps no traces (CONFIG_TRACING)")
	}
	line := fmt.Sprintf("seine %d 42\n", time.Now().UnixNano())
	var data []byte
	live(t, script(`t:syscalls:sys_enter_getppid { debugf("seine %lu %d\n", $1, 42); }`, strings.Fields(line)[1]), Options{PIDs: self()}, func() {
		// The first program that writes there has the kernel turn the log on.
		soon(func() bool {
			unix.Getppid()
			data = must(os.ReadFile(filepath.Join(root, "trace")))
			return strings.Contains(string(data), line)
		})
	})
	if !strings.Contains(string(data), line) {
		t.Errorf("the kernel's traces lack %q: %s", line, data[max(0, len(data)-300):])
	}
}

// TestPerCPU reads a variable of which each CPU has its copy.
func TestPerCPU(t *testing.T) {
	if running().percpu("runqueues") == 0 {
		t.Skip("this kernel does not say where its variables are (CONFIG_KALLSYMS_ALL)")
	}
	out, _ := live(t, script(`begin { $r = (struct rq *)percpu_kaddr("runqueues", 0); if ($r) { print($r->cpu); } $s = (struct rq *)percpu_kaddr("runqueues"); print($s->cpu == cpu); print(percpu_kaddr("runqueues", 100000) == 0); }`), Options{}, nil)
	if out != "0\ntrue\ntrue\n" {
		t.Errorf("got %q, want the first CPU, this one and none", out)
	}
}

// TestChild has the process of -c.
func TestChild(t *testing.T) {
	out, _ := live(t, script(`t:syscalls:sys_enter_getppid /pid == cpid/ { @[cpid] = count(); }`), Options{Child: uint32(os.Getpid())}, func() {
		unix.Getppid()
		unix.Getppid()
	})
	want(t, out, fmt.Sprintf("@[%d]: 2\n", os.Getpid()))
}

// TestStringLength has config = { max_strlen }.
func TestStringLength(t *testing.T) {
	open := func() { _, _ = unix.Open("/nonexistent/file", unix.O_RDONLY, 0) }
	for set, want := range map[string]string{
		"max_strlen = 8": "/nonexi..",
		"max_strlen = 8; str_trunc_trailer = \"\"":  "/nonexi",
		"max_strlen = 8; str_trunc_trailer = \"~\"": "/nonexi~",
		"max_strlen = 6":  "/none..", // no multiple of a word
		"max_strlen = 7":  "/nonex..",
		"max_strlen = 9":  "/nonexis..",
		"max_strlen = 18": "/nonexistent/file", // all of it
		"max_strlen = 17": "/nonexistent/fil..",
		"max_strlen = 16": "/nonexistent/fi..",
		"max_strlen = 64": "/nonexistent/file",
	} {
		out, _ := live(t, script(`config = { `+set+` } t:syscalls:sys_enter_openat /strncmp(str(args.filename), "/none", 5) == 0/ { @[str(args.filename)] = count(); @same[str(args.filename) == str(args.filename)] = count(); }`), Options{PIDs: self()}, open)
		if want := "@[" + want + "]: 1\n"; !strings.Contains(out, want) || !strings.Contains(out, "@same[true]: 1\n") {
			t.Errorf("%s: got %q, want %q", set, out, want)
		}
	}
	// Who asks for some characters gets them.
	out, _ := live(t, script(`t:syscalls:sys_enter_openat /strncmp(str(args.filename), "/none", 5) == 0/ { @[str(args.filename, 5)] = count(); print((1, str(args.filename, 64))); }`), Options{PIDs: self()}, open)
	want(t, out, "@[/none]: 1\n", "(1, /nonexistent/file)\n")
	// One that just fits is not cut.
	out, _ = live(t, script(`config = { max_strlen = 16 } t:syscalls:sys_enter_openat /strncmp(str(args.filename), "/123456", 7) == 0/ { @[str(args.filename)] = count(); }`), Options{PIDs: self()}, func() {
		for _, name := range []string{"/1234567890abcd", "/1234567890abcde", "/1234567890abcdef"} {
			_, _ = unix.Open(name, unix.O_RDONLY, 0)
		}
	})
	want(t, out, "@[/1234567890abcd]: 1\n", "@[/1234567890abcd..]: 2\n")
}

// TestLoss fills a map and the ring, and wants both counted.
func TestLoss(t *testing.T) {
	_, errs := live(t, script("config = { max_map_keys = 3 } BEGIN { unroll (10) { @n++; @a[@n] = count(); @b[@n] = 1; } exit(); }"), Options{}, nil)
	want(t, errs, "14 updates of maps were refused")
	_, errs = live(t, script(`BEGIN { unroll (100) { printf("%s\n", "`+strings.Repeat("x", 120)+`"); } exit(); }`), Options{Buffer: 4096}, nil)
	if m := regexp.MustCompile(`(\d+) events were lost`).FindString(errs); m == "" {
		t.Errorf("got %q, want lost events", errs)
	}
}

// TestCut: a map that changes so fast that it cannot be read to its end.
func TestCut(t *testing.T) {
	needRoot(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 4})
	check(err)
	defer m.Close()
	check(m.Put(uint64(0), uint64(1)))
	number := &Type{Kind: Number, Size: 8}
	r := &Run{l: &loaded{maps: map[string]*ebpf.Map{"@": m}}}
	n := uint64(0)
	check(r.each(&mapDef{name: "@", keys: []*Type{number}, value: number}, func(key []byte, _ [][]byte) {
		check(m.Delete(key)) // reading begins anew, and finds another one
		n++
		check(m.Put(n, uint64(1)))
	}))
	want(t, strings.Join(Lost{Cut: r.cut}.Summary(), "\n"), "1 reading of a map was cut short")
}

// TestJSON looks at the names of fields.
func TestJSON(t *testing.T) {
	out, _ := live(t, asJSON(script(`BEGIN { $port = 80; @[comm, pid, $port] = count(); @h = hist(5); @s["x"] = stats(4); printf("port %d\n", $port); @v = "text"; exit(); }`)), Options{}, nil)
	want(t, out, `"tool":"run","port":80,"text":"port 80"}`, `"map":"@","comm":"`, `,"pid":`, `,"port":80,"count":1}`,
		`"map":"@h","count":1,"buckets":[{"lo":4,"hi":8,"count":1}]}`, `"map":"@s","key0":"x","count":1,"avg":4,"total":4}`, `"map":"@v","value":"text"}`)
	if running().forEach() == nil {
		out, _ := live(t, asJSON(script(`BEGIN { @m["a", 2] = 7; for ($kv : @m) { print($kv); printf("%s %d\n", $kv.0.0, $kv.1); @o[$kv.0] = 1; } exit(); }`)), Options{}, nil)
		want(t, out, `"kv":[["a",2],7],"text":"((a, 2), 7)"}`, `"key0":"a","key1":7,"text":"a 7"}`, `"map":"@o","key0":"a","key1":2,"value":1}`)
	}
	if !strings.HasPrefix(out, `{"time":"20`) {
		t.Errorf("got %s", out)
	}
	out, _ = live(t, asJSON(script(`BEGIN { @t = tseries(-4, 1000d, 2); exit(); }`)), Options{}, nil)
	if !regexp.MustCompile(`"map":"@t","values":\[\{"time":"20\d\d[^"]*","value":-4\}\]\}\n$`).MatchString(out) {
		t.Errorf("a series is %s", out)
	}
	for mode, text := range map[Mode]string{ToTest: `"test":"a","passed":true}`, ToBench: `"benchmark":"b","run_ns":`} {
		out, _ = live(t, asJSON(func(o Options) (*Program, error) {
			o.Mode = mode
			return Compile(&Source{Name: "-e", Text: `test:a { print("not shown"); } bench:b { print(1); }`}, o)
		}), Options{}, nil)
		want(t, out, text)
		if strings.Count(out, "\n") != 1 {
			t.Errorf("got %s, want one row", out)
		}
	}
}

// outputs is how many there are: each has its time above it, and may be empty on a slow machine.
func outputs(out string) int {
	return len(regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d$`).FindAllString(out, -1))
}

// TestLimits has -n, -i and -d.
func TestLimits(t *testing.T) {
	out, _ := live(t, script(`interval:ms:1 { printf("x\n"); }`), Options{Count: 7}, nil)
	if out != strings.Repeat("x\n", 7) {
		t.Errorf("got %q, want 7 lines", out)
	}
	out, _ = live(t, script(`interval:ms:1 { @++; print(@); if (@ == 50) { exit(); } } END { clear(@); }`), Options{Count: 2}, nil)
	if n := strings.Count(out, "@: "); n != 2 {
		t.Errorf("got %d times print(), want 2:\n%s", n, out)
	}
	out, _ = live(t, script(`interval:ms:1 { @ = count(); }`), Options{Count: 3, Interval: 50e6}, nil)
	if n := outputs(out); n != 3 {
		t.Errorf("got %d outputs, want 3:\n%s", n, out)
	}
	// With -d the last output is that of the end: the tick of the same moment makes none.
	// Nor does an interval that the machine stands still for: these are long.
	out, _ = live(t, script(`interval:ms:1 { @ = count(); }`), Options{Duration: 6e9, Interval: 2e9}, nil)
	if n := outputs(out); n != 3 {
		t.Errorf("got %d outputs, want 3:\n%s", n, out)
	}
}

// TestIntervalHeads: every output of an interval has its time above it, and one
// empty line between it and the next, whatever it ends with.
func TestIntervalHeads(t *testing.T) {
	const point = "t:syscalls:sys_enter_getpgid"
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				_, _ = unix.Getpgid(0)
			}
		}
	}()
	for name, compile := range map[string]func(Options) (*Program, error){
		"funccount":  func(o Options) (*Program, error) { return FuncCount(point, false, o) },
		"stackcount": func(o Options) (*Program, error) { return StackCount(point, StackOptions{}, o) },
		"argdist":    func(o Options) (*Program, error) { return ArgDist([]ArgSpec{{Text: point + "()"}}, 0, o) },
		"run":        script(point + " { @ = count(); }"),
		"run, keys":  script(point + " { @[cpu] = count(); }"),
	} {
		out, _ := live(t, compile, Options{Interval: 50e6, Count: 3}, nil)
		heads := 0
		for _, at := range regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\n`).FindAllStringIndex(out, -1) {
			if before := out[:at[0]]; before == "" || strings.HasSuffix(before, "\n\n") && !strings.HasSuffix(before, "\n\n\n") {
				heads++
			}
		}
		if heads != 3 || outputs(out) != 3 {
			t.Errorf("%s: got %d outputs, %d of them begin as they should, want 3:\n%s", name, outputs(out), heads, out)
		}
		out, _ = live(t, compile, Options{Duration: 50e6}, nil)
		if regexp.MustCompile(`(?m)^\[?\d\d:\d\d`).MatchString(out) {
			t.Errorf("%s: got a time without intervals:\n%s", name, out)
		}
	}
}

// lineCount is a writer that counts lines.
type lineCount struct{ n atomic.Int64 }

func (c *lineCount) Write(b []byte) (int, error) {
	c.n.Add(int64(bytes.Count(b, []byte("\n"))))
	return len(b), nil
}

// TestIntervals adds up what all intervals show: it is what there was, however
// much comes while an output is made.
func TestIntervals(t *testing.T) {
	const each = 5 * time.Millisecond
	var calls uint64
	const point = "t:syscalls:sys_enter_getpgid"
	var shown lineCount
	o := Options{PIDs: self(), Interval: each, Out: &shown}
	work := func() { // for fifty intervals, and until one was shown that is not the last
		calls = 0
		shown.n.Store(0)
		for start := time.Now(); time.Since(start) < 50*each || shown.n.Load() == 0 && time.Since(start) < time.Minute; calls++ {
			_, _ = unix.Getpgid(int(calls % 50))
		}
	}
	ofKey := func(value string) func(Options) (*Program, error) {
		return script(point + " { @[args.pid] = " + value + "; }")
	}
	ofAll := func(value string) func(Options) (*Program, error) { return script(point + " { @ = " + value + "; }") }
	for _, c := range []struct {
		name    string
		compile func(Options) (*Program, error)
		field   string
		each    uint64 // what a call adds to the field
	}{
		{"funccount", func(o Options) (*Program, error) { return FuncCount(point, false, o) }, "count", 1},
		{"stackcount", func(o Options) (*Program, error) { return StackCount(point, StackOptions{}, o) }, "count", 1},
		{"argdist", func(o Options) (*Program, error) { return ArgDist([]ArgSpec{{Text: point + "():int:args->pid"}}, 0, o) }, "count", 1},
		{"count", ofAll("count()"), "count", 1},
		{"sum", ofAll("sum(3)"), "sum", 3},
		{"hist", ofAll("hist(args.pid)"), "count", 1},
		{"avg", ofAll("avg(3)"), "count", 1},
		{"keys", ofKey("count()"), "count", 1},
		{"keys of hist", ofKey("lhist(args.pid, 0, 50, 10)"), "count", 1},
		{"keys of stats", ofKey("stats(7)"), "total", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs := live(t, asJSON(c.compile), o, work)
			var sum uint64
			lines := 0
			for line := range strings.Lines(out) {
				var row map[string]any
				check(json.Unmarshal([]byte(line), &row))
				sum += uint64(row[c.field].(float64))
				lines++
			}
			if want := c.each * calls; sum != want || lines < 2 { // the first stack is long in coming: all symbols are read for it
				t.Errorf("%d lines have %d, want %d\n%s", lines, sum, want, errs)
			}
		})
	}
}

// TestIntervalRoom has new keys in every interval, of which a map holds those of
// one only; and what has no difference, or is read by the script, is cleared.
func TestIntervalRoom(t *testing.T) {
	var turns atomic.Int64
	o := Options{PIDs: self(), Interval: 20 * time.Millisecond}
	o.Show = func(r *Run, now time.Time) error {
		defer turns.Add(1)
		for _, d := range r.p.c.order {
			if err := r.show(d, 0, 0, now); err != nil {
				return err
			}
		}
		return nil
	}
	turn := func() { // what was called before is in an output now
		for until := turns.Load() + 2; turns.Load() < until; {
			time.Sleep(time.Millisecond)
		}
	}
	const text = `config = { max_map_keys = 40 } t:syscalls:sys_enter_getpgid {
		@n[args.pid] = count(); @low = min(args.pid); @low2[pid] = min(args.pid); @high = max(args.pid);
		@read = count(); if (@read > 31) { printf("not cleared\n"); } }`
	out, errs := live(t, script(text), o, func() {
		for i := range 3 {
			turn()
			for pid := range 31 {
				_, _ = unix.Getpgid(1000*i + pid)
			}
		}
		turn()
	})
	for i := range 3 {
		want(t, out, fmt.Sprintf("@n[%d]: 1\n", 1000*i), fmt.Sprintf("@n[%d]: 1\n", 1000*i+30),
			fmt.Sprintf("@low: %d\n", 1000*i), fmt.Sprintf("@low2[%d]: %d\n", os.Getpid(), 1000*i), fmt.Sprintf("@high: %d\n", 1000*i+30))
	}
	if n := strings.Count(out, "@n["); n != 93 || strings.Contains(errs, "refused") || strings.Contains(out, "not cleared") {
		t.Errorf("got %d keys, want 93\n%s%s", n, out, errs)
	}
	read := 0
	for _, m := range regexp.MustCompile(`@read: (\d+)`).FindAllStringSubmatch(out, -1) {
		read += must(strconv.Atoi(m[1]))
	}
	if read != 93 {
		t.Errorf("outputs of @read have %d, want 93", read)
	}
}

// series is a time series of one interval.
func series(name string, v int) string {
	ends := fmt.Sprintf("%8s %-21d%32d\n", "", v-1, v+1)
	return name + ": \n" + ends + "hh:mm:ss |" + strings.Repeat("_", 51) + "|\n⟨[0-9:]{8}⟩ |" + strings.Repeat(" ", 25) + "*" + strings.Repeat(" ", 25) + "| " + strconv.Itoa(v) + "\n" +
		"         v" + strings.Repeat("_", 51) + "v\n" + ends + "\n"
}

// bar is a row of a histogram.
func bar(label string, n, width int) string {
	return fmt.Sprintf("%-16s%8d |%-52s|\n", label, n, strings.Repeat("@", width))
}

// TestPIDNamespace has the numbers of a process in the PID namespace that seine is in,
// and those of the machine.
func TestPIDNamespace(t *testing.T) {
	needRoot(t)
	if os.Getenv("SEINE_BT_PIDNS") == "" {
		exe := must(os.Executable())
		cmd := exec.Command(exe, "-test.run=^TestPIDNamespace$", "-test.v")
		cmd.Env = append(os.Environ(), "SEINE_BT_PIDNS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "inside: 1 of 1\n") {
			t.Errorf("got %v\n%s", err, out)
		}
		return
	}
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(unix.Mount("proc", "/proc", "proc", 0, ""))
	k := newKernel()
	out, _ := live(t, func(o Options) (*Program, error) {
		return compile(must(Parse(&Source{Name: "-e", Text: `t:syscalls:sys_enter_getppid /pid == $1/ { @[pid, pid(curr_ns), pid(init) > $1, tid > 0] = count(); }`})), k, o)
	}, Options{Args: []string{fmt.Sprint(os.Getpid())}}, func() { unix.Getppid() })
	want(t, out, "@[1, 1, true, true]: 1\n")
	if os.Getpid() == 1 && !t.Failed() {
		fmt.Println("inside: 1 of 1")
	}
}
