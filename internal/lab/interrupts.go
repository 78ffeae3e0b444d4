// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Interrupts is a table of /proc/softirqs or /proc/interrupts: for each line
// its counts by processor, and for /proc/interrupts the text after them.
type Interrupts struct {
	Count map[string]map[int]uint64
	Text  map[string]string
}

// AllInterrupts is the file that has a line for each interrupt of a device.
const AllInterrupts = "/proc/interrupts"

// ReadInterrupts reads such a table. Interrupts that AllInterrupts does not list by their number, as those between the
// processors of arm64, come from elsewhere.
func ReadInterrupts(file string) (Interrupts, error) {
	t, err := readTable(file)
	if err == nil && file == AllInterrupts {
		err = t.addHidden("/sys/kernel/irq")
	}
	return t, err
}

// addHidden adds the interrupts that have a handler and no line.
func (t *Interrupts) addHidden(dir string) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	for _, irq := range all {
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(dir, irq.Name(), name)) // it may be gone by now
			return strings.TrimSpace(string(b))
		}
		handlers := read("actions")
		if t.Count[irq.Name()] != nil || handlers == "" {
			continue
		}
		counts := map[int]uint64{}
		for cpu, word := range strings.Split(read("per_cpu_count"), ",") {
			if counts[cpu], err = strconv.ParseUint(word, 10, 64); err != nil {
				return fmt.Errorf("lab: interrupt %s: %w", irq.Name(), err)
			}
		}
		t.Count[irq.Name()], t.Text[irq.Name()] = counts, strings.ReplaceAll(handlers, ",", ", ")
	}
	return nil
}

func readTable(file string) (Interrupts, error) {
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
