// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Tap is a network device whose driver is the caller: the device receives
// what the caller writes, and the caller reads what the device sends.
type Tap struct{ *os.File }

// OpenTap makes a tap device of that name in a host, and sets it up. It hands
// frames to the stack page by page, as drivers do that use napi_gro_frags; more
// flags, such as unix.IFF_MULTI_QUEUE, change it.
func (w *World) OpenTap(host, name string, more ...uint16) (*Tap, error) {
	var f *os.File
	err := w.Do(host, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: no /dev/net/tun", ErrNotSupported)
		} else if err != nil {
			return err
		}
		f = os.NewFile(uintptr(fd), "tap")
		req, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_NAPI | unix.IFF_NAPI_FRAGS)
		for _, f := range more {
			flags |= f
		}
		req.SetUint16(flags)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return unsupported("tap", err)
		}
		return raise(name)
	})
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, fmt.Errorf("lab: %w", err)
	}
	return &Tap{f}, nil
}

// raise sets a device up without IPv6, which would send packets by itself. It
// runs on a thread in the host.
func raise(dev string) error {
	if err := noIPv6(dev); err != nil {
		return err
	}
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// frame is a frame of size bytes of an unknown protocol.
func frame(size int) []byte {
	f := make([]byte, size)
	copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return f
}

// Receive makes the device receive frames of size bytes of an unknown protocol.
func (t *Tap) Receive(count, size int) error {
	for range count {
		if _, err := t.Write(frame(size)); err != nil {
			return err
		}
	}
	return nil
}

// Receive makes a host receive frames of an unknown protocol from a device that
// takes its buffers from NAPI, as drivers of hardware do. The device is removed
// when it returns.
func (w *World) Receive(host string, count int) error {
	t, err := w.OpenTap(host, "tap0")
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Receive(count, 100)
}

// Drain reads frames that the device sends.
func (t *Tap) Drain(count int) error {
	buf := make([]byte, 1<<16)
	for range count {
		if _, err := t.Read(buf); err != nil {
			return err
		}
	}
	return nil
}

// SendFrames makes a device of a host send frames of size bytes of an unknown
// protocol, through a packet socket. It returns how many the kernel took: a
// full queue refuses some (ENOBUFS).
func (w *World) SendFrames(host, dev string, count, size int) (taken int, err error) {
	return w.sendFrames(host, dev, count, frame(size))
}

// SendTagged is SendFrames with a VLAN tag in each frame, which counts among its bytes.
func (w *World) SendTagged(host, dev string, count, size int, tci uint16) (taken int, err error) {
	f := frame(size)
	copy(f[16:], f[12:14])
	copy(f[12:], []byte{0x81, 0, byte(tci >> 8), byte(tci)})
	return w.sendFrames(host, dev, count, f)
}

func (w *World) sendFrames(host, dev string, count int, f []byte) (taken int, err error) {
	err = w.Do(host, func() error {
		taken, err = sendFrames(dev, count, f)
		return err
	})
	return taken, err
}

// sendFrames runs on a thread in the host.
func sendFrames(dev string, count int, f []byte) (taken int, err error) {
	l, err := netlink.LinkByName(dev)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, unsupported("packet socket", err)
	}
	defer unix.Close(fd)
	// Room for all of them to wait in a queue.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, count*(len(f)+4096)); err != nil {
		return 0, err
	}
	to := &unix.SockaddrLinklayer{Ifindex: l.Attrs().Index}
	for range count {
		err := unix.Sendto(fd, f, 0, to)
		if err == nil {
			taken++
		} else if !errors.Is(err, unix.ENOBUFS) {
			return taken, err
		}
	}
	return taken, nil
}

// SendStalled is SendFrames to another host that Stall holds up.
func (w *World) SendStalled(from, to string, count, size int) (taken int, err error) {
	err = w.Stall(from, to, func() error {
		taken, err = sendFrames(w.Dev(from, to), count, frame(size))
		return err
	})
	return taken, err
}
