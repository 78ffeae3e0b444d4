// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hand passes a connection to another process.
type hand struct {
	how     string
	pair    [2]int // "rights": a socket pair, the first end is ours
	process *os.Process
	in, out *os.File // of the process
}

// HandComm is the name of the process that gets the connection.
const HandComm = "taker"

const bodyTaker = "talk-taker"

func init() { Register(bodyTaker, taker) }

// taken is the order of the taker: the talk to continue, and what its
// descriptor 3 is.
type taken struct {
	Talk Talk
	How  string
}

// newHand prepares to pass a connection that does not exist yet.
func newHand(how string) (*hand, error) {
	h := &hand{how: how, pair: [2]int{-1, -1}}
	if how != "rights" {
		return h, nil
	}
	var err error
	h.pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return h, err
}

// start starts the taker with a file as its descriptor 3.
func (h *hand) start(t *Talk, file *os.File) error {
	defer file.Close()
	env, err := successor(HandComm, bodyTaker, taken{*t, h.how})
	if err != nil {
		return err
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdout.Close()
	h.in, h.out = in, out
	h.process, err = os.StartProcess(self, []string{HandComm}, &os.ProcAttr{Env: env, Files: []*os.File{stdin, stdout, os.Stderr, file}})
	return err
}

// over passes the connection on and closes it here. The taker's times are added
// to ours.
func (h *hand) over(t *Talk, fd int, s *TalkSide) error {
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	switch h.how {
	case "fork":
		if err := h.start(t, f); err != nil {
			return err
		}
	case "rights":
		if err := h.start(t, os.NewFile(uintptr(h.pair[1]), "pair")); err != nil {
			return err
		}
		h.pair[1] = -1
		if err := unix.Sendmsg(h.pair[0], []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
			return fmt.Errorf("SCM_RIGHTS: %w", err)
		}
		f.Close()
	default:
		return fmt.Errorf("no way to hand over is called %q", h.how)
	}
	s.Taker = h.process.Pid
	side, err := h.side()
	if err != nil {
		return fmt.Errorf("%s: %w", HandComm, err)
	}
	s.Think += side.Think
	s.Busy, s.Window, s.Buffer, s.Retrans = side.Busy, side.Window, side.Buffer, side.Retrans
	_, err = h.process.Wait()
	return err
}

// side is the taker's report.
func (h *hand) side() (side TalkSide, err error) {
	in := bufio.NewReader(h.out)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return side, err
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return side, err
		}
		if m.End != nil && m.End.Error != "" {
			return side, errors.New(m.End.Error)
		} else if m.End != nil {
			return side, nil
		}
		if err := json.Unmarshal(m.Report, &side); err != nil {
			return side, err
		}
	}
}

func (h *hand) close() {
	for _, fd := range h.pair {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	if h.in != nil {
		h.in.Close() // ends a taker that still runs
		h.out.Close()
	}
}

// taker continues a talk after the turns of the process before it.
func taker(c *Child) error {
	var x taken
	if err := c.Arg(&x); err != nil {
		return err
	}
	fd := 3
	if x.How == "rights" {
		oob := make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			return err
		}
		msgs, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil || len(msgs) != 1 {
			return fmt.Errorf("%d control messages: %w", len(msgs), err)
		}
		fds, err := unix.ParseUnixRights(&msgs[0])
		if err != nil || len(fds) != 1 {
			return fmt.Errorf("%d descriptors: %w", len(fds), err)
		}
		fd = fds[0]
	}
	defer Close(fd)
	k, err := newCaller(false)
	if err != nil {
		return err
	}
	defer k.close()
	way, err := newTalkWay(&x.Talk, k)
	if err != nil {
		return err
	}
	defer way.close()
	var s TalkSide
	if x.Talk.First {
		if err := k.sendAll(fd, hello); err != nil {
			return err
		}
	}
	for range x.Talk.Turns - x.Talk.HandAfter {
		if err := x.Talk.turn(k, way, fd, &s); err != nil {
			return err
		}
	}
	if err := errors.Join(k.recvEnd(fd), x.Talk.figures(fd, &s)); err != nil {
		return err
	}
	return c.Report(s)
}
