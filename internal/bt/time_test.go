// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// slowest is how long a short program may take to compile, on a busy machine.
const slowest = 5 * time.Second

// within compiles a program and fails if it takes longer than slowest. The
// context ends a compilation that would go on.
func within(t *testing.T, s *Script, k *kernel, o Options) (*Program, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), slowest)
	defer stop()
	o.Context = ctx
	type result struct {
		p   *Program
		err error
	}
	done := make(chan result, 1)
	go func() {
		p, err := compile(s, k, o)
		done <- result{p, err}
	}()
	select {
	case r := <-done:
		if errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("compiling takes longer than %v", slowest)
		}
		return r.p, r.err
	case <-time.After(2 * slowest):
		t.Fatalf("compiling does not end, and does not heed its context")
		return nil, nil
	}
}

// growing are programs whose types grow while they are found.
var growing = map[string]string{
	"ntop":            "BEGIN { let $a; $a = ntop(1); exit(); }",
	"str":             "BEGIN { let $a; $a = str(1); exit(); }",
	"tuple":           `BEGIN { let $a; $a = (1, "x"); exit(); }`,
	"buf":             "BEGIN { let $a; $a = buf(1, 8); exit(); }",
	"usym":            "BEGIN { let $a; $a = usym(1); exit(); }",
	"ustack":          "BEGIN { let $a; $a = ustack; exit(); }",
	"macaddr":         "BEGIN { let $a; $a = macaddr(1); exit(); }",
	"field":           "BEGIN { let $a; $a = curtask->comm; exit(); }",
	"record":          "BEGIN { let $a; $a = *curtask->real_parent; exit(); }",
	"tuple of itself": "BEGIN { @a = (@a, @a); exit(); }",
	"tuples of tuples": "BEGIN { $a0 = (1, 1); " + func() string {
		var b strings.Builder
		for i := range 64 {
			fmt.Fprintf(&b, "$a%d = ($a%d, $a%d); ", i+1, i, i)
		}
		return b.String()
	}() + "exit(); }",
	"structs of structs": "struct s0 { int x[0]; } " + func() string {
		var b strings.Builder
		for i := range 14 {
			fmt.Fprintf(&b, "struct s%d { struct s%d a, b, c, d, e, f, g, h, i, j, k, l; } ", i+1, i)
		}
		return b.String()
	}() + "BEGIN { @ = sizeof(struct s14); exit(); }",
}

// TestSettles wants every program compiled or refused, soon.
func TestSettles(t *testing.T) {
	k := newKernel()
	for name, text := range growing {
		t.Run(name, func(t *testing.T) {
			s, err := Parse(&Source{Name: "-e", Text: text})
			if err != nil {
				t.Fatal(err)
			}
			_, err = within(t, s, k, Options{})
			var at *Error
			if err != nil && !errors.As(err, &at) {
				t.Errorf("got %v, want an error with its place", err)
			}
			if err != nil && name != "record" && !strings.Contains(name, "of") {
				t.Errorf("got %v, want it compiled", err)
			}
		})
	}
}

// TestInterrupted wants a compilation to end with its context.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := Compile(&Source{Name: "-e", Text: "BEGIN { " + strings.Repeat("@ = 1; ", 5000) + "}"}, Options{Context: ctx})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
