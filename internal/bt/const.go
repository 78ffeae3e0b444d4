// SPDX-License-Identifier: Apache-2.0

package bt

// constant gives the value of an expression of numbers, enumerators and header
// constants.
func constant(x Expr, s *Script) (int64, bool) {
	switch x := x.(type) {
	case *Int:
		return x.V, true
	case *Ident:
		if v, ok := s.enums[x.Name]; ok {
			return v, true
		}
		v, ok := headers()[x.Name]
		return v, ok
	case *Unary:
		v, ok := constant(x.X, s)
		switch x.Op {
		case "-":
			return -v, ok
		case "~":
			return ^v, ok
		case "!":
			return b2i(v == 0), ok
		}
	case *Call:
		return deref(x.val)
	case *Field:
		return deref(x.val)
	case *Param:
		return deref(x.val)
	case *Sizeof:
		return deref(x.val)
	case *Offsetof:
		return deref(x.val)
	case *Cast:
		v, ok := constant(x.X, s)
		n, known := intNames[x.To.Name]
		if !ok || !known || x.To.Stars > 0 {
			return 0, false
		}
		return truncate(v, n.size, n.signed), true
	case *Binary:
		if a, ok := knownText(x.X); ok && (x.Op == "==" || x.Op == "!=") {
			b, ok := knownText(x.Y)
			return b2i((a == b) == (x.Op == "==")), ok
		}
		a, ok1 := constant(x.X, s)
		b, ok2 := constant(x.Y, s)
		if !ok1 || !ok2 {
			return 0, false
		}
		return fold(x.Op, a, b, true)
	}
	return 0, false
}

func deref(v *int64) (int64, bool) {
	if v == nil {
		return 0, false
	}
	return *v, true
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// truncate keeps size bytes of v and widens them again by the sign.
func truncate(v int64, size int, signed bool) int64 {
	if size >= 8 {
		return v
	}
	shift := 64 - 8*size
	if signed {
		return v << shift >> shift
	}
	return int64(uint64(v) << shift >> shift)
}

// fold computes what the emitted instructions compute: 64 bits, shifts by the
// low six bits, x/0 is 0 and x%0 is x, as BPF has it.
func fold(op string, a, b int64, signed bool) (int64, bool) {
	ua, ub := uint64(a), uint64(b)
	switch op {
	case "+":
		return a + b, true
	case "-":
		return a - b, true
	case "*":
		return a * b, true
	case "/":
		switch {
		case b == 0:
			return 0, true
		case signed && b == -1:
			return -a, true
		case signed:
			return a / b, true
		}
		return int64(ua / ub), true
	case "%":
		switch {
		case b == 0:
			return a, true
		case signed && b == -1:
			return 0, true
		case signed:
			return a % b, true
		}
		return int64(ua % ub), true
	case "&":
		return a & b, true
	case "|":
		return a | b, true
	case "^":
		return a ^ b, true
	case "<<":
		return a << (ub & 63), true
	case ">>":
		if signed {
			return a >> (ub & 63), true
		}
		return int64(ua >> (ub & 63)), true
	case "==":
		return b2i(a == b), true
	case "!=":
		return b2i(a != b), true
	case "&&":
		return b2i(a != 0 && b != 0), true
	case "||":
		return b2i(a != 0 || b != 0), true
	}
	if signed {
		switch op {
		case "<":
			return b2i(a < b), true
		case "<=":
			return b2i(a <= b), true
		case ">":
			return b2i(a > b), true
		case ">=":
			return b2i(a >= b), true
		}
	}
	switch op {
	case "<":
		return b2i(ua < ub), true
	case "<=":
		return b2i(ua <= ub), true
	case ">":
		return b2i(ua > ub), true
	case ">=":
		return b2i(ua >= ub), true
	}
	return 0, false
}
