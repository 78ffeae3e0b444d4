// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// overlapping reports whether data go both ways at the same time in a talk.
func (t *Talk) overlapping() bool { return t.Streams > 0 || t.Duplex }

// Messages is how many each side sends.
func (t *Talk) Messages() int { return t.Turns * max(t.Streams, 1) }

// mingle runs one side of such a talk.
func (t *Talk) mingle(fd int, s *TalkSide, client bool) error {
	switch {
	case t.Duplex:
		return t.stream(fd, s)
	case client:
		return t.share(fd, s)
	default:
		return t.answerAll(fd, s)
	}
}

// crossed asks the kernel whether it has data in a queue: SIOCOUTQ or SIOCINQ.
func (s *TalkSide) crossed(fd int, queue uint) error {
	n, err := unix.IoctlGetInt(fd, queue)
	if err == nil && n > 0 {
		s.Crossed++
	}
	return err
}

// stream sends and receives messages of the same size, independently.
func (t *Talk) stream(fd int, s *TalkSide) error {
	var sent error
	var wg sync.WaitGroup
	wg.Go(func() {
		for range t.Turns {
			time.Sleep(t.Gap)
			if sent = SendAll(fd, make([]byte, t.Ask)); sent != nil {
				return
			}
		}
	})
	var got error
	for range t.Turns {
		if got = errors.Join(recvFull(fd, make([]byte, t.Ask)), s.crossed(fd, unix.SIOCOUTQ)); got != nil {
			break
		}
	}
	wg.Wait()
	return errors.Join(sent, got)
}

// share runs all clients. The first byte of a message is the number of its
// client.
func (t *Talk) share(fd int, s *TalkSide) error {
	var mu sync.Mutex // of the sends
	answers := make([]chan struct{}, t.Streams)
	took := make([][]int64, t.Streams)
	errs := make([]error, t.Streams+1)
	var wg sync.WaitGroup
	for i := range answers {
		answers[i] = make(chan struct{}, 1)
		wg.Go(func() {
			ask := make([]byte, t.Ask)
			ask[0] = byte(i)
			for range t.Turns {
				from := time.Now()
				mu.Lock()
				err := SendAll(fd, ask)
				mu.Unlock()
				if errs[i] = err; err != nil {
					return
				}
				if _, ok := <-answers[i]; !ok {
					return
				}
				took[i] = append(took[i], int64(time.Since(from)))
			}
		})
	}
	buf := make([]byte, t.Answer)
	for range t.Streams * t.Turns {
		if err := errors.Join(recvFull(fd, buf), s.crossed(fd, unix.SIOCOUTQ)); err != nil {
			errs[t.Streams] = err
			break
		}
		answers[buf[0]] <- struct{}{}
	}
	for _, c := range answers {
		close(c)
	}
	wg.Wait()
	for _, n := range took {
		s.Turns = append(s.Turns, n...)
	}
	return errors.Join(errs...)
}

// answerAll answers all clients.
func (t *Talk) answerAll(fd int, s *TalkSide) error {
	var mu sync.Mutex // of the sends
	errs := make([]error, t.Streams)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range t.Streams * t.Turns {
		buf := make([]byte, t.Ask)
		if err := errors.Join(recvFull(fd, buf), s.crossed(fd, unix.SIOCOUTQ)); err != nil {
			return err
		}
		answer := func() {
			think := t.Think
			if !t.InOrder { // otherwise they would run in lockstep
				think += t.Think * time.Duration(buf[0]) / 2
			}
			time.Sleep(think)
			out := make([]byte, t.Answer)
			out[0] = buf[0]
			mu.Lock()
			defer mu.Unlock()
			if err := SendAll(fd, out); err != nil {
				errs[buf[0]] = err
			}
		}
		if t.InOrder {
			if err := s.crossed(fd, unix.SIOCINQ); err != nil {
				return err
			}
			answer()
		} else {
			wg.Go(answer)
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}
