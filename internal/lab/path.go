// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Path is a slow or narrow link between two hosts, beside their veth pair: two tun devices joined
// by this process, which delays packets. It needs no queueing discipline, so every kernel has
// it.
type Path struct {
	Delay time.Duration // one way
	Rate  int           // bytes a second; 0: any number
	// Stall is how long it stops carrying packets from the first host to the second, once, after
	// so many packets.
	Stall time.Duration
	After int
	// Fate decides about a packet of the first or the second host (0, 1): whether it
	// is lost, or how long it and all packets behind it are delayed.
	Fate func(host int, packet []byte) (lost bool, hold time.Duration)
}

// packets is the number of packets that can wait on a path. It is more than
// there ever are, so none is lost.
const packets = 10_000

// A Walked path exists until it is closed.
type Walked struct {
	From, To netip.Addr // of the first and the second host
	ends     [2]*os.File
	wg       sync.WaitGroup
}

// paths counts the paths, for their addresses.
var paths struct {
	sync.Mutex
	n int
}

// OpenPath makes a path from one host to another, and back.
func (w *World) OpenPath(from, to string, p Path) (*Walked, error) {
	paths.Lock()
	paths.n++
	n := paths.n
	paths.Unlock()
	net := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(n), last}) }
	x := &Walked{From: net(1), To: net(2)}
	for i, host := range []string{from, to} {
		f, err := w.openTun(host, fmt.Sprintf("path%d%c", n, 'a'+i), []netip.Addr{x.From, x.To}[i])
		if err != nil {
			x.Close()
			return nil, fmt.Errorf("lab: path: %w", err)
		}
		x.ends[i] = f
	}
	back := p
	back.Stall = 0
	p.carry(&x.wg, 0, x.ends[0], x.ends[1])
	back.carry(&x.wg, 1, x.ends[1], x.ends[0])
	return x, nil
}

// Close ends it. Packets that are under way are lost.
func (x *Walked) Close() error {
	var errs []error
	for _, f := range x.ends {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	x.wg.Wait()
	return errors.Join(errs...)
}

// openTun makes a tun device with an address of a /24 in a host.
func (w *World) openTun(host, name string, addr netip.Addr) (f *os.File, err error) {
	err = w.Do(host, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: no /dev/net/tun", ErrNotSupported)
		} else if err != nil {
			return err
		}
		req, err := unix.NewIfreq(name)
		if err == nil {
			req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
		}
		if err != nil {
			unix.Close(fd)
			return unsupported("tun", err)
		}
		f = os.NewFile(uintptr(fd), name) // after the ioctl: now it can be polled
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(addr.String() + "/24")
		if err != nil {
			return err
		}
		return errors.Join(noIPv6(name), netlink.AddrAdd(l, a), netlink.LinkSetTxQLen(l, packets), netlink.LinkSetUp(l))
	})
	if err != nil && f != nil {
		f.Close()
	}
	return f, err
}

// carry takes packets from one end to the other until an end is closed.
func (p Path) carry(wg *sync.WaitGroup, host int, from, to *os.File) {
	type packet struct {
		due  time.Time
		data []byte
	}
	queue := make(chan packet, packets)
	wg.Go(func() {
		defer close(queue)
		var free time.Time // when the line has sent what it has
		for i := 1; ; i++ {
			buf := make([]byte, 2048)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if now := time.Now(); free.Before(now) {
				free = now
			}
			if p.Fate != nil {
				lost, hold := p.Fate(host, buf[:n])
				if lost {
					continue
				}
				free = free.Add(hold)
			}
			if i == p.After {
				free = free.Add(p.Stall)
			}
			if p.Rate > 0 {
				free = free.Add(time.Duration(n) * time.Second / time.Duration(p.Rate))
			}
			select {
			case queue <- packet{free.Add(p.Delay), buf[:n]}:
			default: // the queue is full: lost
			}
		}
	})
	wg.Go(func() {
		for k := range queue {
			time.Sleep(time.Until(k.due))
			if _, err := to.Write(k.data); errors.Is(err, os.ErrClosed) {
				for range queue { // until the other has seen it too
				}
				return
			}
		}
	})
}
