// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/trial"
)

const optionsBody = "sockets-options"

// An option is a socket option and the networks that have it.
type option struct {
	name        string
	level, what int
	of          string // networks; empty: all
}

const (
	tcps  = "tcp4 tcp6"
	sixes = "tcp6 udp6"
	ofIP  = "tcp4 tcp6 udp4 udp6"
)

// options are in the order of a row's list.
var options = []option{
	{"reuseaddr", unix.SOL_SOCKET, unix.SO_REUSEADDR, ""},
	{"reuseport", unix.SOL_SOCKET, unix.SO_REUSEPORT, ofIP},
	{"freebind", unix.IPPROTO_IP, unix.IP_FREEBIND, ofIP},
	{"transparent", unix.IPPROTO_IP, unix.IP_TRANSPARENT, ofIP},
	{"bind_address_no_port", unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, ofIP},
	{"v6only", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, sixes},
	{"keepalive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, ""},
	{"linger", unix.SOL_SOCKET, unix.SO_LINGER, ""},
	{"broadcast", unix.SOL_SOCKET, unix.SO_BROADCAST, ""},
	{"nodelay", unix.IPPROTO_TCP, unix.TCP_NODELAY, tcps},
	{"cork", unix.IPPROTO_TCP, unix.TCP_CORK, tcps},
}

func (o *option) has(n lab.Network) bool { return o.of == "" || strings.Contains(o.of, string(n)) }

func (o *option) set(fd int) error {
	if o.what == unix.SO_LINGER && o.level == unix.SOL_SOCKET {
		return unix.SetsockoptLinger(fd, o.level, o.what, &unix.Linger{Onoff: 1, Linger: 5})
	}
	return unix.SetsockoptInt(fd, o.level, o.what, 1)
}

// An opted is the values of getsockopt for a socket.
type opted struct {
	Inode, Cookie uint64
	Options       string
	Mark, Ifindex int
}

func (o *opted) look(n lab.Network, fd int) (err error) {
	var on []string
	for i := range options {
		if !options[i].has(n) {
			continue
		}
		v, err := unix.GetsockoptInt(fd, options[i].level, options[i].what) // for linger it reads l_onoff
		if err != nil {
			return fmt.Errorf("%s: %w", options[i].name, err)
		}
		if v != 0 {
			on = append(on, options[i].name)
		}
	}
	o.Options = strings.Join(on, ",")
	var errs [4]error
	o.Inode, errs[0] = inode(fd)
	o.Cookie, errs[1] = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	o.Mark, errs[2] = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK)
	if o.Ifindex, errs[3] = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX); errors.Is(errs[3], unix.ENOPROTOOPT) {
		errs[3] = nil // UNIX sockets do not have this option before 5.16
	}
	return errors.Join(errs[:]...)
}

// opting opens sockets of each network: one without options, one with each option, and one with all.
func opting(c *lab.Child) error {
	var all []opted
	for _, n := range []lab.Network{lab.TCP4, lab.TCP6, lab.UDP4, lab.UDP6, lab.Unix} {
		for with := range len(options) + 2 {
			fd, err := lab.Socket(n)
			if err != nil {
				return err
			}
			for i := range options {
				if !options[i].has(n) || with != len(options) && with != i {
					continue
				}
				if err := options[i].set(fd); err != nil {
					return fmt.Errorf("%s of %s: %w", options[i].name, n, err)
				}
			}
			if with == len(options) && n != lab.Unix {
				err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 4711), unix.BindToDevice(fd, "lo"))
			}
			var o opted
			if err := errors.Join(err, o.look(n, fd)); err != nil {
				return fmt.Errorf("%s: %w", n, err)
			}
			all = append(all, o)
		}
	}
	if err := c.Report(all); err != nil {
		return err
	}
	return c.Await("end")
}

// opts: options, mark, device and cookie are those of getsockopt.
func opts(x *trial.Trial) error {
	p, err := x.World.Start("", comm, optionsBody, nil)
	if err != nil {
		return err
	}
	var all []opted
	if err := errors.Join(p.Expect(&all), x.Attach()); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	want := map[uint64]opted{}
	for _, o := range all {
		want[o.Inode] = o
	}
	for _, r := range rows {
		o, ok := want[r.Get("inode").N]
		if !ok || r.Get("pid").N != uint64(p.PID) {
			continue
		}
		delete(want, o.Inode)
		x.Want(r, "sock", o.Cookie)
		for id, v := range map[string]string{"options": o.Options, "mark": fmt.Sprint(o.Mark), "ifindex": fmt.Sprint(o.Ifindex)} {
			if v == "" || v == "0" {
				v = "-"
			}
			x.Want(r, id, v)
		}
	}
	for _, o := range want {
		x.Errorf("no row of socket %d with %s", o.Inode, o.Options)
	}
	x.NoneLost()
	return nil
}
