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

// TracepointID gives the number by which perf_event_open knows a tracepoint. The
// error is an fs.ErrNotExist where this kernel does not have the tracepoint.
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

// isName says whether s can be one file name, so that it cannot lead elsewhere.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}
