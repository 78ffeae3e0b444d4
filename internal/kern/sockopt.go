// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"strings"
	"sync/atomic"

	"seine/internal/row"
)

// SockOptions is OPT_* of bpf/sockopt.h: the options of a socket that are on.
type SockOptions uint32

var sockOptions = [...]string{
	"reuseaddr", "reuseport", "freebind", "transparent", "bind_address_no_port", "v6only",
	"keepalive", "linger", "broadcast", "nodelay", "cork",
}

// Kind is Text.
func (SockOptions) Kind() row.Kind { return row.Text }

// optionNames keeps the texts that were made: most sockets of a machine have the same options.
var optionNames [1 << len(sockOptions)]atomic.Pointer[string]

// Cell has their names, with commas between. No option is no value.
func (o *SockOptions) Cell(c *row.Cell) {
	if *c = (row.Cell{}); *o == 0 {
		return
	}
	kept := &optionNames[*o%SockOptions(len(optionNames))]
	if kept.Load() == nil {
		text := o.text()
		kept.Store(&text)
	}
	c.SetText(*kept.Load())
}

func (o *SockOptions) text() string {
	var on []string
	for i, name := range sockOptions {
		if *o>>i&1 != 0 {
			on = append(on, name)
		}
	}
	return strings.Join(on, ",")
}
