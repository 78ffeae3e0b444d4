// SPDX-License-Identifier: Apache-2.0

package lab

// Moved is what the load sent and received: calls of sendmmsg and recvmmsg
// counted by their messages, failed sends included, receives that found nothing
// not. Loads that splice both ways cannot be told apart.
func (l Load) Moved(r LoadResult) (sent, got Calls) {
	names := []string{l.Write.Name()}
	if l.Write != Write {
		names = append(names, Write.Name()) // those after the shutdown
	}
	sent, got = r.Tally.Sum(names...), r.Tally[l.Read.Name()]
	sent.Count, got.Count = sent.Messages+sent.Errors, got.Messages
	got.Errors = 0
	return sent, got
}
