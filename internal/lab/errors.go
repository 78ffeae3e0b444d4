// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotSupported says that the running kernel lacks what was asked for: a
// protocol, a device type, an io_uring operation. It crosses from a child to
// its parent: errors.Is finds it in what [Proc.Expect] and [Proc.Wait] return.
var ErrNotSupported = errors.New("not supported by this kernel")

// ErrLate says that a child, or something that a child waited for, did not come in time. A child
// can pass it to its parent too.
var ErrLate = errors.New("too late")

// unsupported wraps err as ErrNotSupported when it is one of the errors by
// which kernels say that they do not know something.
func unsupported(what string, err error) error {
	for _, e := range []error{unix.ENOSYS, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT} {
		if errors.Is(err, e) {
			return fmt.Errorf("%s: %w (%w)", what, ErrNotSupported, err)
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// errnoOf gives the error number in err, 0 for nil. An error that carries none
// gives EIO, so that no failure looks like a success.
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
