// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// Errors are several mistakes of a program, the first of the text first.
type Errors []error

// maxErrors is how many are told at once.
const maxErrors = 20

// Error has one of them a line.
func (e Errors) Error() string {
	var lines []string
	for _, err := range e {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

func (e Errors) Unwrap() []error { return e }

// All splits an error into its parts.
func All(err error) []error {
	var list Errors
	if errors.As(err, &list) {
		return list
	}
	return []error{err}
}

// together adds an error to others; ok is whether there can be more: it is about a
// place of the program.
func together(list []error, err error) (_ []error, ok bool) {
	for _, e := range All(err) {
		var at *Error
		if !errors.As(e, &at) {
			return []error{e}, false
		}
		if !slices.ContainsFunc(list, func(o error) bool { return o.Error() == e.Error() }) {
			list = append(list, e)
		}
	}
	return list, true
}

// joined is nil, one error, or several in the order of the text.
func joined(list []error) error {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	place := func(err error) Pos {
		var at *Error
		errors.As(err, &at)
		return at.Pos
	}
	slices.SortStableFunc(list, func(a, b error) int { return cmp.Compare(place(a), place(b)) })
	return Errors(list[:min(len(list), maxErrors)])
}

// follows is an error that follows from an earlier one.
type follows struct{}

// guard checks a statement, and keeps its error.
func (c *checker) guard(s Stmt, check func()) {
	loops, fn, nested := c.loops, c.fn, c.nested
	defer func() {
		r := recover()
		switch e := r.(type) {
		case nil:
			return
		case *Error:
			c.errs = append(c.errs, e)
		case *unsupportedError:
			c.errs = append(c.errs, e)
		case follows:
		default:
			panic(r)
		}
		c.loops, c.fn, c.nested = loops, fn, nested
		switch s := s.(type) { // what it would have set is not known
		case *Assign:
			if v, ok := s.Target.(*Var); ok && c.vars[v.Name] == nil {
				c.spoiled[v.Name] = true
			}
		case *Let:
			c.spoiled[s.Var.Name] = true
		}
	}()
	check()
}
