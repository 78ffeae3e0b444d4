// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// TracepointID returns the id of a tracepoint for perf_event_open. The error is
// an fs.ErrNotExist if this kernel does not have the tracepoint.
func TracepointID(group, name string) (uint64, error) {
	root, err := Tracefs()
	if err != nil {
		return 0, fmt.Errorf("tracepoint %s:%s: %w", group, name, err)
	}
	if !isName(group) || !isName(name) {
		return 0, fmt.Errorf("tracepoint %q:%q: not a name: %w", group, name, fs.ErrNotExist)
	}
	data, err := os.ReadFile(filepath.Join(root, "events", group, name, "id"))
	if err != nil {
		return 0, fmt.Errorf("tracepoint %s:%s: %w", group, name, err)
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("tracepoint %s:%s: %w", group, name, err)
	}
	return id, nil
}

// isName reports whether s is a single file name, so that it cannot lead to
// another directory.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}
