// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"reflect"
	"strings"
	"testing"
	"unicode"

	"seine/internal/row"
	"seine/internal/tool"
)

// TestWidths: a column of a table is wide enough for its words. Combined words,
// and names of rare protocols, may be longer.
func TestWidths(t *testing.T) {
	eachView(t, func(t *testing.T, tl *tool.Tool, v tool.View, s *row.Schema, _ int) {
		own := wordsOf(v.Output)
		for _, c := range s.Columns {
			words := own[c.ID]
			switch {
			case c.Kind != row.Text:
			case c.As == "connect":
				words = []string{"Connect refused", "Network unreachable"}
			case c.ID == "errno":
				words = []string{"ECONNREFUSED", "EADDRNOTAVAIL"}
			case c.ID == "proto" && tl.Sockets.Protos == nil && tl.Name != "gethostlatency": // DNS has tcp and udp
				words = append(words, "tcp", "icmpv6", "udplite")
			}
			for _, w := range words {
				if n := max(c.Width, len(c.Head)); len(w) > n {
					t.Errorf("view %q: column %s has room for %d characters, not for %q", s.View, c.ID, n, w)
				}
			}
		}
	})
}

// wordsOf is the words of columns whose types tools declare themselves, by id.
func wordsOf(o tool.Output) map[string][]string {
	out := map[string][]string{}
	each, ok := reflect.TypeOf(o).FieldByName("Each") // a func of the structs that rows are made of
	if !ok {
		return out
	}
	for i := range each.Type.NumIn() - 1 {
		for _, f := range reflect.VisibleFields(each.Type.In(i).Elem()) {
			if id, _, _ := strings.Cut(f.Tag.Get("col"), ","); id != "" && strings.Contains(f.Type.PkgPath(), "/tools/") {
				out[id] = words(f.Type)
			}
		}
	}
	return out
}

// words is the names that a type has for numbers; none if they are put together.
func words(t reflect.Type) (out []string) {
	v := reflect.New(t)
	cell, ok := v.Interface().(row.Valuer)
	if !ok || !v.Elem().CanUint() {
		return nil
	}
	for n := range uint64(256) {
		v.Elem().SetUint(n)
		var c row.Cell
		cell.Cell(&c)
		if strings.ContainsAny(c.S, "|+,") {
			return nil
		}
		if c.Kind == row.Text && strings.ContainsFunc(c.S, unicode.IsLetter) {
			out = append(out, strings.Clone(c.S))
		}
	}
	return out
}
