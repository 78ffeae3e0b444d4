// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// A numeral is an expression and the value that it must have.
type numeral struct {
	text string
	v    int64
	t    *Type // as check would have it
}

// interesting are the values at which signs and widths go wrong.
var interesting = []int64{
	0, 1, -1, 2, 3, 7, -7, 63, 64, 127, 128, 255, 256, -128, -129, 32767, 32768, 65535, 65536, -32769,
	1<<31 - 1, 1 << 31, -1 << 31, -1<<31 - 1, 1<<32 - 1, 1 << 32, 1<<63 - 1, -1 << 63, -1<<63 + 1, 0x0123456789abcdef,
}

// variables of the program: name, type and value.
type variable struct {
	name string
	t    *Type
	v    int64
}

// leaf is a literal or a variable.
func leaf(r *rand.Rand, vars []variable) numeral {
	if r.IntN(3) == 0 {
		v := interesting[r.IntN(len(interesting))]
		if v == -1<<63 {
			v++ // has no literal
		}
		s := strconv.FormatInt(v, 10)
		if v < 0 {
			s = "(" + s + ")"
		}
		return numeral{s, v, &Type{Kind: Number, Size: 8, Signed: true, Lit: true}}
	}
	x := vars[r.IntN(len(vars))]
	return numeral{x.name, x.v, x.t}
}

// grow makes an expression and computes it with Go's arithmetic.
func grow(r *rand.Rand, vars []variable, depth int) numeral {
	if depth == 0 {
		return leaf(r, vars)
	}
	switch n := r.IntN(14); {
	case n == 0:
		x := grow(r, vars, depth-1)
		return numeral{"(- " + x.text + ")", -x.v, &Type{Kind: Number, Size: 8, Signed: true, Lit: x.t.Lit}}
	case n == 1:
		x := grow(r, vars, depth-1)
		return numeral{"(~" + x.text + ")", ^x.v, &Type{Kind: Number, Size: 8, Signed: !unsigned64(x.t), Lit: x.t.Lit}}
	case n == 2:
		x := grow(r, vars, depth-1)
		return numeral{"(!" + x.text + ")", b2i(x.v == 0), typeBool}
	case n == 3:
		x := grow(r, vars, depth-1)
		names := []string{"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
		name := names[r.IntN(len(names))]
		i := intNames[name]
		return numeral{"((" + name + ")" + x.text + ")", truncate(x.v, i.size, i.signed), &Type{Kind: Number, Size: i.size, Signed: i.signed}}
	case n == 4:
		c, x, y := grow(r, vars, depth-1), grow(r, vars, depth-1), grow(r, vars, depth-1)
		v := y.v
		if c.v != 0 {
			v = x.v
		}
		t, _ := unify(x.t, y.t)
		return numeral{"(" + c.text + " ? " + x.text + " : " + y.text + ")", v, t}
	}
	ops := []string{"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=", "&&", "||"}
	op := ops[r.IntN(len(ops))]
	x, y := grow(r, vars, depth-1), grow(r, vars, depth-1)
	signed := signedOp(x.t, y.t)
	if op == ">>" && unsigned64(x.t) {
		signed = false
	}
	v, _ := fold(op, x.v, y.v, signed)
	t := typeBool
	switch op {
	case "==", "!=", "<", "<=", ">", ">=", "&&", "||":
	default:
		t = &Type{Kind: Number, Size: 8, Signed: signedOp(x.t, y.t), Lit: x.t.Lit && y.t.Lit}
	}
	return numeral{"(" + x.text + " " + op + " " + y.text + ")", v, t}
}

// TestArithmetic runs random expressions in the kernel and compares them with an
// interpreter of the same tree: values of all widths and signs, every operator.
func TestArithmetic(t *testing.T) {
	needRoot(t)
	rounds, each := 60, 25
	if testing.Short() {
		rounds = 5
	}
	checked := 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 7))
		var src strings.Builder
		src.WriteString("BEGIN {\n")
		var vars []variable
		for i, name := range []string{"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"} {
			in := intNames[name]
			v := truncate(interesting[r.IntN(len(interesting))], in.size, in.signed)
			lit := v
			if lit == -1<<63 {
				v, lit = v+1, v+1
			}
			x := variable{fmt.Sprintf("$v%d", i), &Type{Kind: Number, Size: in.size, Signed: in.signed}, v}
			// rand hides the value from the verifier, so that it cannot fold it.
			fmt.Fprintf(&src, "\t%s = (%s)(%d + (rand & 0));\n", x.name, name, lit)
			vars = append(vars, x)
		}
		var want []numeral
		for i := range each {
			e := grow(r, vars, 1+r.IntN(4))
			want = append(want, e)
			fmt.Fprintf(&src, "\t@r[%d] = (uint64)(%s);\n", i, e.text)
		}
		src.WriteString("\texit();\n}\n")
		var out bytes.Buffer
		p, err := Compile(&Source{Name: "random", Text: src.String()}, Options{Out: &out})
		if err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, src.String())
		}
		if _, err := p.Run(context.Background()); err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, src.String())
		}
		got := map[int]uint64{}
		for line := range strings.Lines(out.String()) {
			var i int
			var v uint64
			if n, _ := fmt.Sscanf(line, "@r[%d]: %d", &i, &v); n == 2 {
				got[i] = v
			}
		}
		for i, w := range want {
			if g, ok := got[i]; !ok || g != uint64(w.v) {
				t.Errorf("round %d: %s is %d, want %d", round, w.text, int64(g), w.v)
			}
			checked++
		}
	}
	t.Logf("%d expressions", checked)
}
