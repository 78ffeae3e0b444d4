// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Radio is a simulated Wi-Fi device (mac80211_hwsim) in a host. Radios hear
// each other within a host, when they are on the same channel.
type Radio struct {
	Host string
	Phy  string
	Dev  string
	MAC  [6]byte
	link int
}

// Commands and attributes of mac80211_hwsim's netlink family, which are ABI.
const (
	hwsimNewRadio  = 4
	hwsimChannels  = 9
	hwsimRadioName = 17
)

// NewRadio makes a radio of the given name. A radio that can use several
// channels at the same time scans by itself, as firmware does, and not by
// mac80211.
func (w *World) NewRadio(host, phy string, channels uint32) (r *Radio, err error) {
	r = &Radio{Host: host, Phy: phy}
	err = w.Do(host, func() error {
		before, err := netlink.LinkList()
		if err != nil {
			return err
		}
		err = genl("MAC80211_HWSIM", hwsimNewRadio,
			nl.NewRtAttr(hwsimChannels, nl.Uint32Attr(channels)), nl.NewRtAttr(hwsimRadioName, append([]byte(phy), 0)))
		if err != nil {
			return err
		}
		after, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range after {
			a := l.Attrs()
			old := slices.ContainsFunc(before, func(b netlink.Link) bool { return b.Attrs().Index == a.Index })
			if !old && len(a.HardwareAddr) == 6 {
				r.Dev, r.link, r.MAC = a.Name, a.Index, [6]byte(a.HardwareAddr)
				return netlink.LinkSetUp(l)
			}
		}
		return fmt.Errorf("it has no interface")
	})
	if err != nil {
		return nil, fmt.Errorf("lab: radio %s: %w", phy, err)
	}
	return r, nil
}

// Down switches the radio's interface off.
func (w *World) Down(r *Radio) error {
	return w.Do(r.Host, func() error {
		l, err := netlink.LinkByIndex(r.link)
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
}

// beaconInterval is short enough for a beacon within the shortest stay on a
// channel.
const beaconInterval = 20 // units of 1.024 ms

// BeaconInterval is the time between two beacons.
const BeaconInterval = beaconInterval * 1024 * time.Microsecond

// Beacon makes an access point of the radio, on a channel of the 2.4 GHz band.
func (w *World) Beacon(r *Radio, mhz uint32, ssid string) error {
	err := w.Do(r.Host, func() error {
		if err := r.become(unix.NL80211_IFTYPE_AP); err != nil {
			return err
		}
		return genl("nl80211", unix.NL80211_CMD_START_AP, r.ifindex(),
			nl.NewRtAttr(unix.NL80211_ATTR_WIPHY_FREQ, nl.Uint32Attr(mhz)),
			nl.NewRtAttr(unix.NL80211_ATTR_SSID, []byte(ssid)),
			nl.NewRtAttr(unix.NL80211_ATTR_BEACON_INTERVAL, nl.Uint32Attr(beaconInterval)),
			nl.NewRtAttr(unix.NL80211_ATTR_DTIM_PERIOD, nl.Uint32Attr(1)),
			nl.NewRtAttr(unix.NL80211_ATTR_BEACON_HEAD, beacon(r.MAC, (mhz-2407)/5, ssid)),
		)
	})
	if err != nil {
		return fmt.Errorf("lab: access point on %s: %w", r.Dev, err)
	}
	return nil
}

// Monitor makes the radio receive everything.
func (w *World) Monitor(r *Radio) error {
	return w.Do(r.Host, func() error { return r.become(unix.NL80211_IFTYPE_MONITOR) })
}

// become changes the type of the interface, in the host's namespace.
func (r *Radio) become(kind uint32) error {
	l, err := netlink.LinkByIndex(r.link)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(l); err != nil {
		return err
	}
	err = genl("nl80211", unix.NL80211_CMD_SET_INTERFACE, r.ifindex(), nl.NewRtAttr(unix.NL80211_ATTR_IFTYPE, nl.Uint32Attr(kind)))
	if err != nil {
		return fmt.Errorf("interface type %d: %w", kind, err)
	}
	return netlink.LinkSetUp(l)
}

// beacon is the frame up to where the kernel puts in the traffic map.
func beacon(mac [6]byte, channel uint32, ssid string) []byte {
	b := []byte{0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	b = append(append(b, mac[:]...), mac[:]...)
	b = append(b, 0, 0)                    // sequence
	b = append(b, make([]byte, 8)...)      // time stamp
	b = append(b, beaconInterval, 0, 1, 0) // interval; an infrastructure network
	b = append(append(b, 0, byte(len(ssid))), ssid...)
	b = append(b, 1, 4, 0x82, 0x84, 0x8b, 0x96) // rates
	return append(b, 3, 1, byte(channel))
}

func (r *Radio) ifindex() *nl.RtAttr {
	return nl.NewRtAttr(unix.NL80211_ATTR_IFINDEX, nl.Uint32Attr(uint32(r.link)))
}

// genl sends a command to a generic netlink family and waits for its answer.
func genl(family string, command uint8, attrs ...*nl.RtAttr) error {
	f, err := genlFamily(family)
	if err != nil {
		return err
	}
	return genlTo(f.ID, command, attrs...)
}

func genlFamily(name string) (*netlink.GenlFamily, error) {
	f, err := netlink.GenlFamilyGet(name)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("netlink family %s: %w (its module is not loaded)", name, ErrNotSupported)
	} else if err != nil {
		return nil, fmt.Errorf("netlink family %s: %w", name, err)
	}
	return f, nil
}

func genlTo(family uint16, command uint8, attrs ...*nl.RtAttr) error {
	req := nl.NewNetlinkRequest(int(family), unix.NLM_F_ACK)
	req.AddData(&nl.Genlmsg{Command: command, Version: 1})
	for _, a := range attrs {
		req.AddData(a)
	}
	_, err := req.Execute(unix.NETLINK_GENERIC, 0)
	var e unix.Errno
	if errors.As(err, &e) && int32(-e) > 0 {
		return nil // hwsim answers with the number of the new radio
	}
	return err
}

// WifiScan is the request of a scan.
type WifiScan struct {
	Link  int
	SSIDs []string // none: listen only
	MHz   []uint32 // none: all
	Flags uint32   // NL80211_SCAN_FLAG_*
	Abort bool     // as soon as it has begun
}

// WifiScanned is the report of the process that requested the scan.
type WifiScanned struct {
	NS      int64 // from before the request to the notification of its end
	Aborted bool
	Refused syscall.Errno // the scan has not begun
}

// A Scanner is a process that is ready to ask for a scan.
type Scanner struct {
	*Proc
	Radio *Radio
	Scan  WifiScan
}

const bodyScan = "wifiscan"

func init() { Register(bodyScan, scanBody) }

// StartScan starts a process that will ask the radio for a scan.
func StartScan(w *World, r *Radio, comm string, s WifiScan) (*Scanner, error) {
	s.Link = r.link
	p, err := w.StartReady(r.Host, comm, bodyScan, s)
	if err != nil {
		return nil, err
	}
	return &Scanner{p, r, s}, nil
}

// Begin makes the process request the scan.
func (s *Scanner) Begin() error { return s.Tell("go") }

// Begun returns when it is under way, or has been refused.
func (s *Scanner) Begun() error {
	var begun bool
	return s.Expect(&begun)
}

// Over returns when it is over.
func (s *Scanner) Over() (r WifiScanned, err error) {
	err = s.Expect(&r)
	return r, err
}

// Run is Begin, Begun and Over.
func (s *Scanner) Run() (WifiScanned, error) {
	if err := errors.Join(s.Begin(), s.Begun()); err != nil {
		return WifiScanned{}, err
	}
	return s.Over()
}

func scanBody(c *Child) error {
	var s WifiScan
	if err := c.Arg(&s); err != nil {
		return err
	}
	family, err := genlFamily("nl80211")
	if err != nil {
		return err
	}
	fd, err := scanNews(family)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attrs := s.attrs()
	if err := c.Report(true); err != nil {
		return err
	}
	if err := c.Await("go"); err != nil {
		return err
	}
	start := time.Now()
	err = genlTo(family.ID, unix.NL80211_CMD_TRIGGER_SCAN, attrs...)
	if err := c.Report(true); err != nil {
		return err
	}
	if err != nil {
		return c.Report(WifiScanned{Refused: errnoOf(err)})
	}
	if s.Abort {
		if err := genlTo(family.ID, unix.NL80211_CMD_ABORT_SCAN, (&Radio{link: s.Link}).ifindex()); err != nil {
			return fmt.Errorf("abort: %w", err)
		}
	}
	aborted, err := scanOver(fd, s.Link)
	if err != nil {
		return err
	}
	return c.Report(WifiScanned{NS: int64(time.Since(start)), Aborted: aborted})
}

func (s *WifiScan) attrs() []*nl.RtAttr {
	attrs := []*nl.RtAttr{(&Radio{link: s.Link}).ifindex()}
	if s.SSIDs != nil {
		list := nl.NewRtAttr(unix.NL80211_ATTR_SCAN_SSIDS|unix.NLA_F_NESTED, nil)
		for i, name := range s.SSIDs {
			list.AddRtAttr(i+1, []byte(name))
		}
		attrs = append(attrs, list)
	}
	if s.MHz != nil {
		list := nl.NewRtAttr(unix.NL80211_ATTR_SCAN_FREQUENCIES|unix.NLA_F_NESTED, nil)
		for i, f := range s.MHz {
			list.AddRtAttr(i+1, nl.Uint32Attr(f))
		}
		attrs = append(attrs, list)
	}
	if s.Flags != 0 {
		attrs = append(attrs, nl.NewRtAttr(unix.NL80211_ATTR_SCAN_FLAGS, nl.Uint32Attr(s.Flags)))
	}
	return attrs
}

// scanNews opens a socket that is notified of scans.
func scanNews(f *netlink.GenlFamily) (int, error) {
	i := slices.IndexFunc(f.Groups, func(g netlink.GenlMulticastGroup) bool { return g.Name == "scan" })
	if i < 0 {
		return -1, fmt.Errorf("nl80211: no group for scans: %w", ErrNotSupported)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return -1, err
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(f.Groups[i].ID))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("news of scans: %w", err)
	}
	return fd, nil
}

// scanOver waits for the end of a scan on an interface.
func scanOver(fd, link int) (aborted bool, err error) {
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("news of scans: %w", err)
		}
		const head = unix.SizeofNlMsghdr + nl.SizeofGenlmsg
		if n < head {
			continue
		}
		cmd := buf[unix.SizeofNlMsghdr]
		if cmd != unix.NL80211_CMD_NEW_SCAN_RESULTS && cmd != unix.NL80211_CMD_SCAN_ABORTED {
			continue
		}
		attrs, err := nl.ParseRouteAttr(buf[head:n])
		if err != nil {
			return false, err
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.NL80211_ATTR_IFINDEX && int(binary.NativeEndian.Uint32(a.Value)) == link {
				return cmd == unix.NL80211_CMD_SCAN_ABORTED, nil
			}
		}
	}
}
