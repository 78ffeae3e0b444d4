// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxMangled bounds what is given to the demangler, which recurses.
const maxMangled = 2048

// mangled reports whether a name may be one that C++ or Rust made up.
func mangled(name string) bool {
	if len(name) < 3 || name[0] != '_' {
		return false
	}
	return name[1] == 'Z' || name[1] == 'R' ||
		strings.HasPrefix(name, "___Z") || strings.HasPrefix(name, "_GLOBAL_")
}

// demangled returns the name as the programmer wrote it, without the
// parameters, as perf shows it; a name that cannot be read stays as it is.
func demangled(name string) (out string) {
	if len(name) > maxMangled {
		return name
	}
	defer func() {
		if recover() != nil {
			out = name
		}
	}()
	if out = demangle.Filter(name, demangle.NoParams, demangle.MaxLength(12)); out == "" {
		return name // _RCC0 and the like
	}
	return out
}
