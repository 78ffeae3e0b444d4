// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
)

// complaints are the starts of kernel messages about errors: a panic, an oops,
// a warning, a locking or RCU stall.
var complaints = regexp.MustCompile(`(?m)^.*(Kernel panic - |BUG: |Oops: |WARNING: |general protection fault|detected stalls on|INFO: task .* blocked)`)

func complained(console []byte) bool { return complaints.Match(console) }

// consoleTail is the part of a console to show: from the first complaint on, or
// the last lines.
func consoleTail(console []byte) []byte {
	const most = 50
	console = bytes.TrimSpace(bytes.ReplaceAll(console, []byte("\r"), nil))
	if len(console) == 0 {
		return []byte("(nothing)\n")
	}
	if at := complaints.FindIndex(console); at != nil {
		lines := bytes.SplitN(console[at[0]:], []byte("\n"), most+1)
		return append(bytes.Join(lines[:min(len(lines), most)], []byte("\n")), '\n')
	}
	lines := bytes.Split(console, []byte("\n"))
	return append(bytes.Join(lines[max(0, len(lines)-most):], []byte("\n")), '\n')
}
