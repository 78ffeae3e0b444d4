// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// What goes over the two pipes between parent and child, one JSON value a line.
// Down, on the child's standard input: one order, then words such as "go". Up,
// on its standard output: messages.

// order tells a child what it is.
type order struct {
	Comm   string          `json:"comm"`
	Thread string          `json:"thread,omitempty"` // of the body; "": it is on the first one
	Body   string          `json:"body"`
	Arg    json.RawMessage `json:"arg"`
}

// message is a report, or the last word of a child. The first one, sent when
// the child has its comm, tells the thread that runs the body.
type message struct {
	TID    int             `json:"tid,omitempty"`
	Report json.RawMessage `json:"report,omitempty"`
	End    *ending         `json:"end,omitempty"`
}

// ending is how a body returned.
type ending struct {
	Error       string        `json:"error,omitempty"`
	Errno       syscall.Errno `json:"errno,omitempty"`
	Unsupported bool          `json:"unsupported,omitempty"`
	Late        bool          `json:"late,omitempty"`
}

func endingOf(err error) *ending {
	if err == nil {
		return &ending{}
	}
	e := &ending{Error: err.Error(), Unsupported: errors.Is(err, ErrNotSupported), Late: errors.Is(err, ErrLate) || errors.Is(err, os.ErrDeadlineExceeded)}
	errors.As(err, &e.Errno)
	return e
}

// err restores the error that a body returned: its text, and the sentinels for
// errors.Is.
func (e *ending) err() error {
	if e.Error == "" {
		return nil
	}
	return &childError{*e}
}

type childError struct{ ending }

func (e *childError) Error() string { return e.ending.Error }

func (e *childError) Unwrap() []error {
	var errs []error
	if e.Unsupported {
		errs = append(errs, ErrNotSupported)
	}
	if e.Late {
		errs = append(errs, ErrLate)
	}
	if e.Errno != 0 {
		errs = append(errs, e.Errno)
	}
	return errs
}

func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("lab: encode %T: %w", v, err)
	}
	return append(b, '\n'), nil
}
