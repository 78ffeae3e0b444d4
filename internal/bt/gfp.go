// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/cilium/ebpf/btf"

	"seine/internal/host"
)

// A gfpName is one or more flags of an allocation.
type gfpName struct {
	bits uint64
	name string
}

var gfpEntry = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{([^{}]*?), *"(_*GFP\w*)"\}`) })

// gfpNames are the names of the running kernel, in its order: those of several flags first. It
// writes them into the format of the event of kmalloc.
var gfpNames = sync.OnceValue(func() []gfpName {
	root, err := host.Tracefs()
	if err != nil {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(root, "events/kmem/kmalloc/format"))
	if err != nil {
		return nil
	}
	return parseGFP(string(data), gfpBits(string(data)))
})

// parseGFP reads {(unsigned long)(…), "GFP_KERNEL"} and its like.
func parseGFP(format string, bits map[string]int64) (names []gfpName) {
	script := newScript(&Source{})
	script.enums = bits
	for _, m := range gfpEntry().FindAllStringSubmatch(format, -1) {
		text := regexp.MustCompile(`\(\s*(gfp_t|unsigned long)\s*\)`).ReplaceAllString(m[1], "")
		if v, ok := constantText(text, script); ok && v != 0 {
			names = append(names, gfpName{uint64(v), m[2]})
		}
	}
	return names
}

// gfpBits are the enumerators that some kernels leave in the format.
func gfpBits(format string) map[string]int64 {
	bits := map[string]int64{}
	if !strings.Contains(format, "___GFP_") {
		return bits
	}
	spec, err := running().types()
	if err != nil {
		return bits
	}
	for t, err := range spec.All() {
		e, ok := t.(*btf.Enum)
		if err != nil || !ok || len(e.Values) == 0 || !strings.HasPrefix(e.Values[0].Name, "___GFP_") {
			continue
		}
		for _, v := range e.Values {
			bits[v.Name] = int64(v.Value)
		}
	}
	return bits
}

// constantText is the value of an expression of C.
func constantText(text string, s *Script) (v int64, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, is := r.(*Error); !is {
				panic(r)
			}
			v, ok = 0, false
		}
	}()
	p := &parser{src: s.Src, text: text, script: s, busy: map[string]bool{}}
	return constant(p.expr(), s)
}

// gfp is what %gr prints: the names of flags, and what has none as a number.
func gfp(flags uint64, names []gfpName) string {
	if flags == 0 {
		return "none"
	}
	var parts []string
	for _, n := range names {
		if flags&n.bits == n.bits {
			parts = append(parts, n.name)
			flags &^= n.bits
		}
	}
	if flags != 0 {
		parts = append(parts, fmt.Sprintf("%#x", flags))
	}
	return strings.Join(parts, "|")
}
