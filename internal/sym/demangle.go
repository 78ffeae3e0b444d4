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

// Written returns a name of C++ or Rust as the programmer wrote it, with the parameters; any other
// stays as it is.
func Written(name string) string {
	if !mangled(name) {
		return name
	}
	return filtered(name)
}

// demangled returns the name as the programmer wrote it, without the
// parameters, as perf shows it; a name that cannot be read stays as it is.
func demangled(name string) string { return filtered(name, demangle.NoParams) }

func filtered(name string, how ...demangle.Option) (out string) {
	if len(name) > maxMangled {
		return name
	}
	defer func() {
		if recover() != nil {
			out = name
		}
	}()
	if out = demangle.Filter(name, append(how, demangle.MaxLength(12))...); out == "" {
		return name // _RCC0 and the like
	}
	return out
}
