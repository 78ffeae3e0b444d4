// SPDX-License-Identifier: Apache-2.0

package bt

// An Expr is a node of an expression. Its type is set by check, anew for each
// target that the clause around it is compiled for.
type Expr interface {
	span() (pos, end Pos)
	typ() *Type
	setType(*Type)
}

type node struct {
	pos, end Pos
	t        *Type
}

func (n *node) span() (Pos, Pos) { return n.pos, n.end }
func (n *node) typ() *Type       { return n.t }
func (n *node) setType(t *Type)  { n.t = t }

type (
	// Int is a number, or a name that stands for one.
	Int struct {
		node
		V    int64
		Name string // as written, when it was a name
		U64  bool   // does not fit a signed number
		Bool bool   // true or false
	}
	// Str is a string literal.
	Str struct {
		node
		V string
	}
	// Ident is a builtin, a header constant or an enumerator.
	Ident struct {
		node
		Name string
	}
	// Var is $name.
	Var struct {
		node
		Name string
	}
	// MapRef is @name or @name[keys].
	MapRef struct {
		node
		Name string // with the @
		Keys []Expr // nil: none
	}
	// Param is $1, the first argument of the script, or $# for N < 0.
	Param struct {
		node
		N   int
		Str bool   // inside str(): a string, not a number
		val *int64 // its number, set by check
	}
	// Call is name(args).
	Call struct {
		node
		Name string
		Args []Expr
		val  *int64 // its value if it is a constant, set by check
		as   *Tuple // what stands in its place, set by check
	}
	// Unary is -x, !x, ~x, *x, &x.
	Unary struct {
		node
		Op string
		X  Expr
	}
	// IncDec is x++, ++x, x--, --x.
	IncDec struct {
		node
		Op     string
		Prefix bool
		X      Expr
	}
	// Binary is x op y.
	Binary struct {
		node
		Op   string
		X, Y Expr
	}
	// Ternary is c ? x : y.
	Ternary struct {
		node
		C, X, Y Expr
	}
	// Cast is (type)x.
	Cast struct {
		node
		To TypeName
		X  Expr
	}
	// Field is x.name, x->name, and x.0 of a tuple.
	Field struct {
		node
		X     Expr
		Name  string
		Arrow bool
		text  *string // if it is a constant
		val   *int64  // as well, set by check
	}
	// Index is x[i].
	Index struct {
		node
		X, I Expr
	}
	// Tuple is (a, b, …), or (name=a, …) with names.
	Tuple struct {
		node
		Elems []Expr
		Names []string // nil: none
	}
	// BlockExpr is { statements; x }, whose value is that of x.
	BlockExpr struct {
		node
		Body []Stmt
		X    Expr // nil: it has no value
	}
	// Sizeof is sizeof(type) or sizeof(x).
	Sizeof struct {
		node
		Of  *TypeName
		X   Expr
		val *int64 // set by check
	}
	// TypeExpr is a type where a value may stand, as in typeinfo(int8).
	TypeExpr struct {
		node
		Of TypeName
	}
	// Offsetof is offsetof(type, field).
	Offsetof struct {
		node
		Of    TypeName
		Field string
		val   *int64 // set by check
	}
)

// A TypeName is a C type as written: words, then stars, then array lengths.
type TypeName struct {
	pos, end Pos
	Tag      string // struct, union, enum or ""
	Name     string // "unsigned int", "sock", "uint64"
	Of       Expr   // typeof(x)
	Stars    int
	Len      []int
}

// A Stmt is a statement.
type Stmt interface{ stmt() }

type (
	// ExprStmt is an expression for what it does: a call, x++.
	ExprStmt struct{ X Expr }
	// Assign is target op value, where op is = or += and its like.
	Assign struct {
		pos, end Pos
		Target   Expr
		Op       string
		Value    Expr
	}
	// Let is let $x [: type] [= value].
	Let struct {
		Var   *Var
		As    *TypeName
		Value Expr
	}
	// If has an Else that may be empty.
	If struct {
		comptime   bool // the condition is a constant
		Cond       Expr
		Then, Else []Stmt
	}
	// Unroll is unroll (n) { … }.
	Unroll struct {
		pos, end Pos
		N        Expr
		Body     []Stmt
	}
	// While is while (cond) { … }. It is a function of its own, or jumps of which
	// the verifier must see the end.
	While struct {
		Cond Expr
		Body []Stmt
		few  bool // its turns are few, and known
		fn   int  // its number, set by check; 0: jumps
	}
	// For is for ($kv : @map) { … }. The body is a function of its own.
	For struct {
		pos, end Pos
		Var      *Var
		Map      *MapRef
		Body     []Stmt
		fn       int // its number, set by check
	}
	// Block is { … }.
	Block struct{ Body []Stmt }
	// Jump is return, break or continue.
	Jump struct {
		pos, end Pos
		Word     string
		X        Expr // of return; nil: none
	}
)

func (*ExprStmt) stmt() {}
func (*Assign) stmt()   {}
func (*Let) stmt()      {}
func (*If) stmt()       {}
func (*Unroll) stmt()   {}
func (*While) stmt()    {}
func (*For) stmt()      {}
func (*Block) stmt()    {}
func (*Jump) stmt()     {}

// An AttachPoint is one probe of a clause, as written.
type AttachPoint struct {
	pos, end Pos
	Raw      string
	many     bool // one of many from the list of functions: a miss does not end the run
}

// A Clause is attach points, a predicate and what to do.
type Clause struct {
	Points []AttachPoint
	Pred   Expr // nil: none
	Body   []Stmt
}

// A mapDecl is let @name = kind(keys).
type mapDecl struct {
	pos, end Pos
	kind     string
	keys     int
}

// A Script is a parsed program.
type Script struct {
	Src      *Source
	Clauses  []*Clause
	macros   map[string][]*macro
	Includes []string
	Config   []setting
	decls    map[string]mapDecl
	uses     []unstableUse // imports and calls of macros
	structs  map[string]*cstruct
	enums    map[string]int64
	enumIn   map[string]*enum // by enumerator
	enumTags map[string]*enum
	ctypes   map[string]TypeName // typedefs of the script
}
