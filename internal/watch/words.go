// SPDX-License-Identifier: Apache-2.0

package watch

import "strings"

// mostWords bounds what the model knows of texts and of processes that it has met. Then it starts
// anew. Texts in use stay, and may be there twice.
const mostWords = 10_000

// words are texts that rows contain: names of processes, causes, states. Many rows have the same,
// and the model keeps one copy.
type words map[string]*string

func (w *words) get(s string) string {
	if s == "" {
		return ""
	}
	return *w.ref(s)
}

// ref returns the one copy of a text, nil if it is empty.
func (w *words) ref(s string) *string {
	if s == "" {
		return nil
	}
	if known := (*w)[s]; known != nil {
		return known
	}
	if *w == nil || len(*w) >= mostWords {
		*w = words{}
	}
	s = strings.Clone(s)
	(*w)[s] = &s
	return &s
}

// owner returns the one copy of a process.
func (m *Model) owner(w Who) *Who {
	if known := m.owners[w]; known != nil {
		return known
	}
	if m.owners == nil || len(m.owners) >= mostWords {
		m.owners = map[Who]*Who{}
	}
	m.owners[w] = &w
	return &w
}
