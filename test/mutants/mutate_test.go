// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestMutants(t *testing.T) {
	const text = `/* a comment == with
 * operators && in it */
static int f(int a)
{
	__u64 key = a + 1;

	if (a == 3 && key) /* a == 4 */
		return 0;
	bpf_map_delete_elem(&owners, &key);
	return a;
}`
	var got []string
	for _, m := range mutants("x.h", text) {
		if lines := strings.Split(m.apply(text), "\n"); lines[m.Line-1] != m.New {
			t.Errorf("apply: line %d is %q, want %q", m.Line, lines[m.Line-1], m.New)
		}
		got = append(got, strings.TrimSpace(m.Op+" "+strings.TrimSpace(m.New)))
	}
	want := []string{
		"swap __u64 key = a - 1;",
		"number __u64 key = a + 2;",
		"negate if (!(a == 3 && key))",
		"swap if (a != 3 && key) /* a == 4 */",
		"swap if (a == 3 || key) /* a == 4 */",
		"number if (a == 4 && key) /* a == 4 */",
		"delete ;", "delete ;", "delete ;",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGoMutants(t *testing.T) {
	var got []string
	for _, m := range mutants("x.go", "func f() {\n\tif n > 0 {\n\t\treturn true\n\t}\n}") {
		got = append(got, strings.TrimSpace(m.New))
	}
	if want := []string{"if !(n > 0) {", "if n >= 0 {", "if n > 1 {", "return false"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
