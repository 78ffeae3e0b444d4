// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"unsafe"

	"seine/internal/kern"
	"seine/internal/names"
)

// Names takes names from the answers of name servers.
var Names = names.Source{
	Object: "dns", Points: Tool.Points[:len(Tool.Points)-1], Forget: []string{"queries"}, Learn: learn,
}

func learn(raw []byte, tell func(names.Name)) {
	var e exchange
	if len(raw) < int(unsafe.Sizeof(e)) {
		return
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), raw)
	name, _, ok := kern.DNSQuestion(e.Question.V[:min(int(e.QuestionLen), len(e.Question.V))])
	if !ok {
		return
	}
	for _, a := range kern.DNSAddrs(e.Answer.V[:min(int(e.AnswerLen), len(e.Answer.V))]) {
		tell(names.Name{Netns: uint32(e.Netns), PID: uint32(e.PID), Addr: a, Name: name})
	}
}
