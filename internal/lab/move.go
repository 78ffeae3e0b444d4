// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// writers send a line's message, each by one call (sendmmsg: a batch).
var writers = map[Call]func(*line) error{
	Write:      func(x *line) error { return x.sent("write")(unix.Write(x.w, x.out)) },
	Writev:     func(x *line) error { return x.sent("writev")(unix.Writev(x.w, halves(x.out))) },
	Send:       func(x *line) error { return x.sent("sendto")(len(x.out), unix.Send(x.w, x.out, 0)) },
	Sendto:     func(x *line) error { return x.sent("sendto")(len(x.out), unix.Sendto(x.w, x.out, 0, x.to)) },
	Sendmsg:    func(x *line) error { return x.sent("sendmsg")(unix.SendmsgN(x.w, x.out, nil, nil, 0)) },
	Sendmmsg:   (*line).sendmmsg,
	Sendfile:   (*line).sendfile,
	Splice:     (*line).spliceOut,
	UringSend:  func(x *line) error { return x.whole(x.ring.Send(x.w, x.out, 0)) },
	UringWrite: func(x *line) error { return x.whole(x.ring.Write(x.w, x.out)) },
}

// readers receive a message and check it (recvmmsg: a batch).
var readers = map[Call]func(*line) error{
	Read:      func(x *line) error { return x.got("read")(unix.Read(x.r, x.in)) },
	Readv:     func(x *line) error { return x.got("readv")(unix.Readv(x.r, halves(x.in))) },
	Recv:      func(x *line) error { return x.same(recv(x.r, x.in, 0)) },
	Recvfrom:  (*line).recvfrom,
	Recvmsg:   (*line).recvmsg,
	Recvmmsg:  (*line).recvmmsg,
	Splice:    (*line).spliceIn,
	UringRecv: func(x *line) error { return x.same(x.ring.Recv(x.r, x.in, 0)) },
	UringRead: func(x *line) error { return x.same(x.ring.Read(x.r, x.in)) },
}

// sent counts a call that sent a message and checks that it sent all of it.
func (x *line) sent(name string) func(int, error) error {
	return func(n int, err error) error {
		note(name, n, 1, err)
		return x.whole(n, err)
	}
}

// whole checks that a message was taken as a whole.
func (x *line) whole(n int, err error) error {
	if err == nil && n != x.Size {
		err = fmt.Errorf("sent %d of %d bytes", n, x.Size)
	}
	return err
}

// got counts a call that received a message and checks the message.
func (x *line) got(name string) func(int, error) error {
	return func(n int, err error) error {
		note(name, n, 1, err)
		return x.same(n, err)
	}
}

// same checks that the message received is the one that was sent.
func (x *line) same(n int, err error) error {
	if err == nil && (n != x.Size || string(x.in[:n]) != string(x.out)) {
		err = fmt.Errorf("received %d bytes that are not the %d sent", n, x.Size)
	}
	return err
}

// halves splits a buffer for the calls that take a vector.
func halves(b []byte) [][]byte { return [][]byte{b[:len(b)/2], b[len(b)/2:]} }

func (x *line) recvfrom() error {
	n, _, err := unix.Recvfrom(x.r, x.in, 0)
	return x.got("recvfrom")(n, err)
}

func (x *line) recvmsg() error {
	n, _, _, _, err := unix.Recvmsg(x.r, x.in, nil, 0)
	return x.got("recvmsg")(n, err)
}

func (x *line) sendfile() error {
	if _, err := unix.Pwrite(x.file, x.out, 0); err != nil {
		return err
	}
	var off int64
	n, err := unix.Sendfile(x.w, x.file, &off, x.Size)
	return x.sent("sendfile")(n, err)
}

func (x *line) spliceOut() error {
	n, err := unix.Write(x.pipe[1], x.out)
	note("pipe:write", n, 1, err)
	if err != nil {
		return err
	}
	m, err := unix.Splice(x.pipe[0], nil, x.w, nil, x.Size, 0)
	return x.sent("splice")(int(m), err)
}

// spliceIn may need several calls: splice does not heed SO_RCVLOWAT.
func (x *line) spliceIn() error {
	for done := 0; done < x.Size; {
		n, err := unix.Splice(x.r, nil, x.pipe[1], nil, x.Size-done, 0)
		note("splice", int(n), 1, err)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		m, err := unix.Read(x.pipe[0], x.in[done:done+int(n)])
		note("pipe:read", m, 1, err)
		if err != nil {
			return err
		}
		done += m
	}
	return x.same(x.Size, nil)
}

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	unix.Msghdr
	len uint32
	_   [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// mmsg calls sendmmsg or recvmmsg with one buffer per message.
func mmsg(call uintptr, fd int, bufs [][]byte) ([]mmsghdr, error) {
	hdrs := make([]mmsghdr, len(bufs))
	iovs := make([]unix.Iovec, len(bufs))
	for i, b := range bufs {
		if len(b) > 0 {
			iovs[i].Base = &b[0]
		}
		iovs[i].SetLen(len(b))
		hdrs[i].Iov = &iovs[i]
		hdrs[i].SetIovlen(1)
	}
	n, _, e := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), 0, 0, 0)
	if e != 0 {
		return nil, e
	}
	return hdrs[:n], nil
}

// moved counts a call that moved a batch of messages.
func (x *line) moved(name string, hdrs []mmsghdr, err error) error {
	bytes := 0
	for _, h := range hdrs {
		bytes += int(h.len)
	}
	note(name, bytes, len(hdrs), err)
	if err == nil && len(hdrs) != x.Batch {
		err = fmt.Errorf("%d of %d messages", len(hdrs), x.Batch)
	}
	return err
}

func (x *line) sendmmsg() error {
	bufs := make([][]byte, x.Batch)
	for i := range bufs {
		bufs[i] = x.out
	}
	hdrs, err := mmsg(unix.SYS_SENDMMSG, x.w, bufs)
	return x.moved("sendmmsg", hdrs, err)
}

func (x *line) recvmmsg() error {
	bufs := make([][]byte, x.Batch)
	for i := range bufs {
		bufs[i] = make([]byte, len(x.in))
	}
	hdrs, err := mmsg(unix.SYS_RECVMMSG, x.r, bufs)
	if err := x.moved("recvmmsg", hdrs, err); err != nil {
		return err
	}
	for i, h := range hdrs {
		copy(x.in, bufs[i])
		if err := x.same(int(h.len), nil); err != nil {
			return err
		}
	}
	return nil
}
