// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program whose functions are called with arguments that the test knows.
const dwarfProgram = `
enum colour { red, green = 7 };
struct inner { short low, high; };
struct rec { int a; char name[8]; struct inner in; struct rec *next; unsigned left : 3, right : 5; union { int n; float f; } u; };
typedef struct rec rec_t;
__attribute__((noipa)) int take(const rec_t *r, int negative, unsigned char small, enum colour c, const char *text) { return r->a + negative + small + c + text[0]; }
__attribute__((noipa)) double mixed(int before, double f, int after) { return before + f + after; }
__attribute__((noipa)) int by_value(struct inner in, int after) { return in.low + after; }
int main(void) {
	struct rec last = { .a = -3, .name = "last" };
	struct rec first = { .a = 41, .name = "first", .in = { -2, 300 }, .next = &last, .left = 5, .right = 17, .u = { .n = 99 } };
	char text[] = "hello";
	for (int i = 0; i < 5; i++) take(&first, -i, 250 + i, green, text);
	mixed(1, 2, 3);
	by_value(first.in, 4);
	return 0;
}
`

// TestDWARF reads arguments of user functions by their names.
func TestDWARF(t *testing.T) {
	needRoot(t)
	cc, err := exec.LookPath("cc")
	if err != nil {
		lack(t, err)
	}
	dir := t.TempDir()
	source, file := filepath.Join(dir, "prog.c"), ""
	check(os.WriteFile(source, []byte(dwarfProgram), 0o600))
	for _, flags := range [][]string{{"-g"}, {"-O2", "-gdwarf-4"}, {"-g", "-gz"}} {
		t.Run(strings.Join(flags, ""), func(t *testing.T) {
			file = filepath.Join(dir, "prog"+strings.Join(flags, ""))
			if out, err := exec.Command(cc, append(flags, "-o", file, source)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			work := func() {
				if err := exec.Command(file).Run(); err != nil {
					t.Error(err)
				}
			}
			out, _ := live(t, script("u:"+file+`:take { printf("%d %s %d %d %d %s %d %d %d|%d %d %s %s\n", args.r->a, args.r->name, args.r->in.low, args.r->in.high, args.r->next->a, args.r->next->name,
				args.r->left, args.r->right, args.r->u.n, args.negative, args.small, args.c, str(args.text)); @[args.c] = sum(args.negative); }`), Options{}, work)
			want(t, out, "41 first -2 300 -3 last 5 17 99|-4 254 green hello\n", "41 first -2 300 -3 last 5 17 99|0 250 green hello\n", "@[green]: -10\n")
			out, _ = live(t, script("u:"+file+`:mixed { printf("%d\n", args.before); } u:`+file+`:take { print(args); }`), Options{}, work)
			want(t, out, "1\n")
			wantMatch(t, out, `\.negative = -4, \.small = 254, \.c = green`)
			var list bytes.Buffer
			check(List(&list, "u:"+file+":take", true))
			want(t, list.String(), "int negative\n", "enum colour c\n")
			for text, wrong := range map[string]string{
				"mixed { print(args.after); }":    "argument after of mixed is not where a probe finds it",
				"by_value { print(args.after); }": "argument after of by_value is not where a probe finds it",
				"take+4 { print(args.small); }":   "argument small of take is not where a probe finds it",
				"take { print(args.smal); }":      "has no argument smal: did you mean small?",
				"_start { print(args.x); }":       "the DWARF of the file has no function _start",
			} {
				if _, err := script("u:" + file + ":" + text)(Options{}); err == nil || !strings.Contains(err.Error(), wrong) {
					t.Errorf("%s: got %v, want %s", text, err, wrong)
				}
			}
		})
	}
	t.Run("apart", func(t *testing.T) {
		apart := filepath.Join(dir, "apart")
		for _, c := range [][]string{{cc, "-g", "-Wl,--build-id=0x01020304050607", "-o", apart, source}, {"objcopy", "--only-keep-debug", apart, apart + ".debug"}, {"strip", "--strip-debug", apart}} {
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", c[0], err, out)
			}
		}
		text := func(file string) func(Options) (*Program, error) {
			return script("u:" + file + `:take { @[str(args.text), args.c] = sum(args.negative); }`)
		}
		check(os.Link(apart, apart+"2")) // what a file lacks is not asked for twice
		if _, err := text(apart + "2")(Options{}); err == nil || !strings.Contains(err.Error(), "the file has no DWARF") {
			t.Errorf("before there is a file of its DWARF: %v", err)
		}
		defer func(old string) { debugFiles = old }(debugFiles)
		debugFiles = filepath.Join(dir, "ids")
		check(os.MkdirAll(filepath.Join(debugFiles, "01"), 0o700))
		check(os.Rename(apart+".debug", filepath.Join(debugFiles, "01", "020304050607.debug")))
		out, _ := live(t, text(apart), Options{}, func() { check(exec.Command(apart).Run()) })
		want(t, out, "@[hello, green]: -10\n")
	})
	bare := file + ".stripped"
	check(exec.Command("strip", "-o", bare, file).Run())
	if _, err := script("u:" + bare + ":0x1040 { print(args.x); }")(Options{}); err == nil || !strings.Contains(err.Error(), "the file has no DWARF") {
		t.Errorf("of a file without DWARF: %v", err)
	}
	if _, err := script("u:/proc/self/exe:seine/internal/bt.traced { print(args.n); }")(Options{}); err == nil || !strings.Contains(err.Error(), "a function of Go") {
		t.Errorf("of a function of Go: %v", err)
	}
}
