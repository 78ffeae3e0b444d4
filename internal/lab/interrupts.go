// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Interrupts is a table of /proc/softirqs or /proc/interrupts: for each line
// its counts by processor, and for /proc/interrupts the text after them.
type Interrupts struct {
	Count map[string]map[int]uint64
	Text  map[string]string
}

// ReadInterrupts reads such a table.
func ReadInterrupts(file string) (Interrupts, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return Interrupts{}, fmt.Errorf("lab: %w", err)
	}
	t := Interrupts{Count: map[string]map[int]uint64{}, Text: map[string]string{}}
	var cpus []int
	for i, line := range strings.Split(string(b), "\n") {
		words := strings.Fields(line)
		if i == 0 { // CPU0 CPU1 …, those that are online
			for _, w := range words {
				n, err := strconv.Atoi(strings.TrimPrefix(w, "CPU"))
				if err != nil {
					return t, fmt.Errorf("lab: %s: %q is not a processor", file, w)
				}
				cpus = append(cpus, n)
			}
			continue
		}
		if len(words) < 1+len(cpus) { // ERR and MIS have but one number
			continue
		}
		name := strings.TrimSuffix(words[0], ":")
		t.Count[name] = map[int]uint64{}
		for j, cpu := range cpus {
			if t.Count[name][cpu], err = strconv.ParseUint(words[1+j], 10, 64); err != nil {
				return t, fmt.Errorf("lab: %s: %s: %w", file, name, err)
			}
		}
		t.Text[name] = strings.Join(words[1+len(cpus):], " ")
	}
	return t, nil
}
