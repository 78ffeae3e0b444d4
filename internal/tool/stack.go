// SPDX-License-Identifier: Apache-2.0

package tool

// stackMaps are the maps of stack.h, by the upper part of a stack's id.
var stackMaps = []string{"stacks", "stacks1", "stacks2", "stacks3"}

// Stack returns the addresses of the stack with this id, innermost first; nil if
// it was not kept.
func (s *Session) Stack(id int32) []uint64 {
	if id < 0 || int(id>>24) >= len(stackMaps) {
		return nil
	}
	var addrs [127]uint64
	m := s.Maps[stackMaps[id>>24]]
	if m == nil || m.Lookup(uint32(id)&(1<<24-1), &addrs) != nil {
		return nil
	}
	depth := 0
	for depth < len(addrs) && addrs[depth] != 0 {
		depth++
	}
	return addrs[:depth]
}
