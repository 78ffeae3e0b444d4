// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"seine/internal/tool"
)

// aheadKey is where a context has what begin has begun.
type aheadKey struct{}

// begin begins the start of the tool that args name, before they are read. If it turns out that no tool is to be started,
// the work was for nothing.
func begin(ctx context.Context, args []string) context.Context {
	name, rest := filepath.Base(args[0]), args[1:]
	t, _ := find(name)
	if t == nil && len(rest) > 0 {
		t, _ = find(rest[0])
	}
	if t == nil || slices.ContainsFunc(rest, decides) {
		return ctx
	}
	a, err := tool.Begin(t)
	if err != nil {
		return ctx // the run says so
	}
	return context.WithValue(ctx, aheadKey{}, a)
}

// aheadIn is what has been begun; nil: nothing.
func aheadIn(ctx context.Context) *tool.Ahead {
	a, _ := ctx.Value(aheadKey{}).(*tool.Ahead)
	return a
}

// decides reports whether an argument may decide what is decoded: other types, lines of source too, or nothing.
func decides(arg string) bool {
	long, ok := strings.CutPrefix(arg, "--")
	if !ok {
		return strings.HasPrefix(arg, "-") && strings.ContainsAny(arg, "hv")
	}
	long, _, _ = strings.Cut(long, "=")
	switch long {
	case "btf", "from", "verbose", "help", "columns":
		return true
	}
	return false
}
