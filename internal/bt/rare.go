// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"strings"

	"github.com/cilium/ebpf/asm"
)

// Taking and releasing scratch memory costs two atomic additions. A program that needs it only on
// a rare path, such as a stack whose place is taken, takes it there. Whether the rest of the
// program needs it too is known only at its end; until then two jumps mark the places.
const (
	rareTake    = "take scratch "    // and where to go without it
	rareRelease = "release scratch " // and where to go on
)

// inRareScratch is memory that is there between takeRare and releaseRare.
func (e *emitter) inRareScratch(n int) loc {
	uses := e.usesScratch
	l := e.inScratch(n)
	if e.c.fns == 0 { // functions have their callers' memory
		e.usesScratch = uses
	}
	return l
}

func (e *emitter) takeRare(none string) { e.add(asm.Ja.Label(rareTake + none)) }
func (e *emitter) releaseRare()         { e.add(asm.Ja.Label(rareRelease)) }

// rare puts what is needed in place of those jumps.
func (e *emitter) rare(body asm.Instructions, spans [][2]Pos) (asm.Instructions, [][2]Pos) {
	head, headSpans, pending := e.ins, e.spans, e.pending
	e.ins, e.spans, e.pending = nil, nil, ""
	for i, in := range body {
		none, take := strings.CutPrefix(in.Reference(), rareTake)
		release := in.Reference() == rareRelease
		if !take && !release {
			if label := in.Symbol(); label != "" && e.pending != "" {
				e.alias[e.pending], e.pending = label, ""
			}
			e.span = spans[i]
			e.add(in)
			continue
		}
		if label := in.Symbol(); label != "" {
			e.here(label)
		}
		switch {
		case e.usesScratch: // it is there from the beginning to the end
		case take:
			e.takeScratch(e.label(" rarely"), none, lostStacks)
		default:
			e.releaseScratch()
		}
	}
	body, spans = e.ins, e.spans
	e.ins, e.spans, e.pending = head, headSpans, pending
	return body, spans
}
