// SPDX-License-Identifier: Apache-2.0

package lab

import "sync"

// Calls counts the uses of one system call, failed ones included.
type Calls struct {
	Count    int   `json:"count"`
	Errors   int   `json:"errors,omitempty"`
	Messages int   `json:"messages,omitempty"` // differs from Count-Errors for sendmmsg and recvmmsg
	Bytes    int64 `json:"bytes,omitempty"`
}

// Tally counts the socket calls that a child has made, by the name of the
// system call, or "uring:" and the name of the operation.
type Tally map[string]Calls

// Sum adds up the calls of the given names.
func (t Tally) Sum(names ...string) Calls {
	var sum Calls
	for _, name := range names {
		c := t[name]
		sum.Count += c.Count
		sum.Errors += c.Errors
		sum.Messages += c.Messages
		sum.Bytes += c.Bytes
	}
	return sum
}

// made is this process's tally. A child is one process, so there is one.
var made struct {
	sync.Mutex
	Tally
}

// note counts a call with its result in bytes and in messages.
func note(name string, bytes, messages int, err error) {
	made.Lock()
	defer made.Unlock()
	if made.Tally == nil {
		made.Tally = Tally{}
	}
	c := made.Tally[name]
	c.Count++
	if err != nil {
		c.Errors++
	} else {
		c.Messages += messages
		c.Bytes += int64(max(bytes, 0))
	}
	made.Tally[name] = c
}

// TakeTally returns the calls counted since the last time, and resets the
// counts.
func TakeTally() Tally {
	made.Lock()
	defer made.Unlock()
	t := made.Tally
	made.Tally = nil
	if t == nil {
		t = Tally{}
	}
	return t
}
