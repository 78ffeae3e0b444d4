// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ErrHidden is returned if the kernel hides its addresses.
var ErrHidden = errors.New("the kernel hides its addresses: CAP_SYSLOG, or kernel.kptr_restrict = 0, shows them")

// Code finds the address ranges of kernel functions: the first byte and the
// byte after the last. Functions that the kernel does not have, or has inlined
// everywhere, are not in the result. If several functions have one name, the
// first counts.
func Code(names ...string) (map[string][2]uint64, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return code(f, names)
}

func code(r io.Reader, names []string) (map[string][2]uint64, error) {
	starts := map[string]uint64{}
	var all []uint64 // of code
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		addr, rest, _ := strings.Cut(sc.Text(), " ")
		kind, name, _ := strings.Cut(rest, " ")
		if !strings.EqualFold(kind, "t") || strings.Contains(name, "\t") { // a module's
			continue
		}
		a, err := strconv.ParseUint(addr, 16, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
		if _, seen := starts[name]; !seen && slices.Contains(names, name) {
			starts[name] = a
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	slices.Sort(all)
	found := map[string][2]uint64{}
	for name, start := range starts {
		if start == 0 {
			return nil, ErrHidden
		}
		i, _ := slices.BinarySearch(all, start+1)
		if i < len(all) {
			found[name] = [2]uint64{start, all[i]}
		}
	}
	return found, nil
}
