// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"
)

// TestFeed: a session takes what the reader has handed over, in order and once.
func TestFeed(t *testing.T) {
	const n = 10007
	for _, most := range []int{0, 1} { // without a bound, and with one
		f := newFeed(most)
		go func() {
			var raw [12]byte
			for i := range uint64(n) {
				binary.NativeEndian.PutUint64(raw[:], i)
				if f.add(raw[:]); i%7 == 0 || i == n-1 {
					f.hand()
				}
			}
		}()
		var got uint64
		var records []byte
		for got < n {
			<-f.ready
			var err error
			if records, err = f.take(records); err != nil {
				t.Fatal(err)
			}
			each(records, func(raw []byte) error {
				if i := binary.NativeEndian.Uint64(raw); len(raw) != 12 || i != got {
					t.Fatalf("record %d of %d bytes, want record %d of 12", i, len(raw), got)
				}
				got++
				return nil
			})
		}
	}
}

// TestFeedBound: the reader waits while a tool that has the ring for itself takes
// nothing, and no longer when its session has ended.
func TestFeedBound(t *testing.T) {
	f := newFeed(1)
	handed := make(chan int, 3)
	go func() {
		for i := range 3 {
			f.add(make([]byte, 8))
			f.hand()
			handed <- i
		}
	}()
	<-handed
	select {
	case i := <-handed:
		t.Errorf("record %d was handed over while another one waited", i)
	case <-time.After(20 * time.Millisecond):
	}
	if records, _ := f.take(nil); len(records) != 12 {
		t.Errorf("took %d bytes, want a record and its length: 12", len(records))
	}
	<-handed
	f.close(nil)
	<-handed
}

// TestFeedError: a session hears why there are no more events.
func TestFeedError(t *testing.T) {
	f, broken := newFeed(0), errors.New("broken")
	f.close(broken)
	<-f.ready
	if _, err := f.take(nil); err != broken {
		t.Errorf("got error %v, want %v", err, broken)
	}
}
