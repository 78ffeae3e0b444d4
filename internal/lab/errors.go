// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotSupported means that the running kernel lacks a feature: a protocol, a
// device type, an io_uring operation. A child passes it to its parent:
// errors.Is finds it in the errors of [Proc.Expect] and [Proc.Wait].
var ErrNotSupported = errors.New("not supported by this kernel")

// ErrLate means that a child, or something that a child waited for, did not come in time.
// A child can pass it to its parent too.
var ErrLate = errors.New("too late")

// unsupported wraps err as ErrNotSupported if it is one of the errors that
// kernels return for unknown features.
func unsupported(what string, err error) error {
	for _, e := range []error{unix.ENOSYS, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT} {
		if errors.Is(err, e) {
			return fmt.Errorf("%s: %w (%w)", what, ErrNotSupported, err)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// errnoOf is the error number in err, 0 for nil. It is EIO for an error without
// a number, so that no failure looks like a success.
func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e
	}
	return unix.EIO
}
