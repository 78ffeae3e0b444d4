// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"strconv"
	"strings"
)

// bccNames gives the names of BCC's specs their meaning: parameters of a
// signature, arg1 and on (from 1, where bpftrace's are from 0), $retval.
type bccNames struct {
	params map[string]int      // of the signature, from 1
	types  map[string]TypeName // of the parameters
	ret    bool                // fires at the return
	trace  bool                // the names of trace, not of argdist

	// Of $entry(x) and $latency: values that a second probe keeps at the entry.
	entry   map[string]string // parameter → map
	latency string
	id      int
}

var bccWords = map[string]string{
	"$pid": "pid", "$PID": "pid", "$tgid": "pid", "$tid": "tid", "$uid": "uid", "$gid": "gid", "$cpu": "cpu", "$comm": "comm", "$COMM": "comm", "$task": "curtask", "$ktime": "nsecs",
}

func (b *bccNames) ident(p *parser, t token, name string) Expr {
	n := p.node(t.pos, t.end)
	switch name {
	case "$retval", "retval":
		return &Ident{n, "retval"}
	case "$latency":
		if !b.ret {
			p.fail(t.pos, t.end, "$latency is known when a function returns: use r:")
		}
		b.latency = fmt.Sprintf("@entry_time%d", b.id)
		start := &MapRef{node: n, Name: b.latency, Keys: []Expr{&Ident{n, "tid"}}}
		return &Binary{n, "-", &Ident{n, "nsecs"}, start}
	}
	if w := bccWords[name]; w != "" {
		return &Ident{n, w}
	}
	if i := b.params[name]; i > 0 {
		arg := Expr(&Ident{n, "arg" + strconv.Itoa(i-1)})
		if of, ok := b.types[name]; ok {
			return &Cast{n, of, arg}
		}
		return arg
	}
	if strings.HasPrefix(name, "$") {
		p.fail(t.pos, t.end, "unknown name %s", name)
	}
	if i, ok := argIndex(name); ok && b.trace {
		if i == 0 {
			p.fail(t.pos, t.end, "the first argument is arg1")
		}
		return &Ident{n, "arg" + strconv.Itoa(i-1)}
	}
	return &Ident{n, name}
}

func (b *bccNames) call(p *parser, c *Call) Expr {
	switch c.Name {
	case "STRCMP":
		if len(c.Args) != 2 {
			p.fail(c.pos, c.end, "STRCMP takes 2 arguments")
		}
		s, other := c.Args[0], c.Args[1]
		if _, ok := s.(*Str); !ok {
			s, other = other, s
		}
		return &Binary{c.node, "==", &Call{node: c.node, Name: "str", Args: []Expr{other}}, s}
	case "bpf_get_smp_processor_id":
		return &Ident{c.node, "cpu"}
	case "bpf_ktime_get_ns":
		return &Ident{c.node, "nsecs"}
	case "ntohs", "htons", "bpf_ntohs":
		return &Call{node: c.node, Name: "bswap", Args: []Expr{&Cast{c.node, TypeName{Name: "uint16"}, c.Args[0]}}}
	case "ntohl", "htonl", "bpf_ntohl":
		return &Call{node: c.node, Name: "bswap", Args: []Expr{&Cast{c.node, TypeName{Name: "uint32"}, c.Args[0]}}}
	}
	return c
}

// entryOf is $entry(name), found before the expression is parsed.
func (b *bccNames) entryOf(param string, n node) Expr {
	m := fmt.Sprintf("@entry_%s%d", param, b.id)
	b.entry[param] = m
	return &MapRef{node: n, Name: m, Keys: []Expr{&Ident{n, "tid"}}}
}
