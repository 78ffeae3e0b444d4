// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"sync"
)

// shared is a writer that several guests use.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// lines gives one guest its way into s. With whole, only complete lines pass,
// so that those of another guest do not land in the middle of them.
func (s *shared) lines(whole bool) *lines { return &lines{to: s, whole: whole} }

// A lines holds back what came after the last newline until Close.
type lines struct {
	to    *shared
	whole bool
	rest  []byte
}

func (l *lines) Write(b []byte) (int, error) {
	if !l.whole {
		return l.to.Write(b)
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == 0 {
		l.rest = append(l.rest, b...)
		return len(b), nil
	}
	_, err := l.to.Write(append(l.rest, b[:end]...))
	l.rest = append(l.rest[:0], b[end:]...)
	return len(b), err
}

func (l *lines) Close() error {
	_, err := l.to.Write(l.rest)
	l.rest = nil
	return err
}
