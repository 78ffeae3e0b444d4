// SPDX-License-Identifier: Apache-2.0

package lab

// Moved is the counts of the load's sends and receives. Each message of
// sendmmsg and recvmmsg counts. Failed sends are included; receives that found
// nothing are not. Loads that splice both ways cannot be distinguished.
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
