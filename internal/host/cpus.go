// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// OnlineCPUs lists the processors that are online.
func OnlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("processors: %w", err)
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

// parseCPUs reads lists as the kernel writes them: 0-3,5,8-9.
func parseCPUs(list string) (out []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || a > b || b >= 1<<16 {
			return nil, fmt.Errorf("processors: %q is not a list of processors", list)
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out, nil
}
