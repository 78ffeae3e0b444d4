// SPDX-License-Identifier: Apache-2.0

package netqtop

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Demo is the traffic of seine demo: a device of three queues. It receives on two of
// them only.
var Demo = trial.Workload{
	Hosts: []string{""},
	Run: func(w *lab.World) error {
		t, err := openTaps(w, 3)
		if err != nil {
			return err
		}
		defer t.close()
		if err := errors.Join(t.fds[0].Receive(300, 1000), t.fds[1].Receive(20, 200)); err != nil {
			return err
		}
		_, err = t.send(w, 200, 400)
		return err
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "queues", Run: trial.Undisturbed(queues)},
}

// ethernet is the length of the Ethernet header. It counts for sent packets only.
const ethernet = 14

// dev is a tap device. Each of its descriptors is one queue.
const dev = "tap0"

type taps struct{ fds []*lab.Tap }

func openTaps(w *lab.World, queues int) (*taps, error) {
	t := &taps{}
	for range queues {
		f, err := w.OpenTap("", dev, unix.IFF_MULTI_QUEUE)
		if err != nil {
			t.close()
			return nil, err
		}
		t.fds = append(t.fds, f)
	}
	return t, nil
}

func (t *taps) close() {
	for _, f := range t.fds {
		f.Close()
	}
}

// send sends UDP frames from count ports through the device, which spreads them over its
// queues. It returns the number of frames that came out of each descriptor.
func (t *taps) send(w *lab.World, count, size int) (came []int, err error) {
	err = w.Do("", func() error { return sendFlows(count, size) })
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 1<<16)
	for _, f := range t.fds {
		n := 0
		for {
			ready := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
			if k, err := unix.Poll(ready, 0); err != nil && err != unix.EINTR {
				return nil, err
			} else if err == nil && k == 0 {
				break
			} else if err != nil {
				continue
			}
			got, err := f.Read(buf)
			if err != nil {
				return nil, err
			}
			if got == size {
				n++
			}
		}
		came = append(came, n)
	}
	return came, nil
}

// sendFlows runs on a thread in the host's namespace.
func sendFlows(count, size int) error {
	req, err := unix.NewIfreq(dev)
	if err != nil {
		return err
	}
	const ip = 0x0800
	proto := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, ip))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != nil {
		return err
	}
	to := &unix.SockaddrLinklayer{Ifindex: int(req.Uint32()), Protocol: proto}
	for i := range count {
		f := make([]byte, size)
		copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, ip >> 8, ip & 255})
		h := f[ethernet:]
		h[0], h[8], h[9] = 0x45, 64, unix.IPPROTO_UDP
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		copy(h[12:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
		binary.BigEndian.PutUint16(h[20:], uint16(1024+i))
		binary.BigEndian.PutUint16(h[22:], 9)
		binary.BigEndian.PutUint16(h[24:], uint16(len(h)-20))
		if err := unix.Sendto(fd, f, 0, to); err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
	}
	return nil
}

// place is a direction and a queue; the queue is "-" if it is unknown.
type place struct{ dir, queue string }

// sum is packets and bytes.
type sum struct{ packets, bytes uint64 }

// add adds n packets of one size to a sum.
func (s sum) add(n, size int) sum { return sum{s.packets + uint64(n), s.bytes + uint64(n*size)} }

// counted adds up the rows of a device over all outputs.
func counted(x *trial.Trial, rows []*row.Row, device, netns string) map[place]sum {
	got := map[place]sum{}
	for _, r := range rows {
		if trial.Value(r.Get("dev")) != device || netns != "" && trial.Value(r.Get("netns")) != netns {
			continue
		}
		at := place{r.Get("dir").S, trial.Value(r.Get("queue"))}
		n, b := r.Get("packets").N, r.Get("bytes").N
		got[at] = sum{got[at].packets + n, got[at].bytes + b}
		x.Want(r, "average_bytes", b/n)
	}
	return got
}

func same(x *trial.Trial, got, want map[place]sum) {
	for at, w := range want {
		if w.packets > 0 && got[at] != w {
			x.Fail(trial.Fewer(int(got[at].packets), int(w.packets), "%v: %+v, want %+v", at, got[at], w))
		}
	}
	for at, g := range got {
		if want[at].packets == 0 {
			x.Errorf("%v: %+v, want none", at, g)
		}
	}
	x.NoneLost()
}

// tapped opens a device of three queues, or skips the case.
func tapped(x *trial.Trial) (*taps, error) {
	t, err := openTaps(x.World, 3)
	if errors.Is(err, lab.ErrNotSupported) {
		return nil, trial.Skip("%v", err)
	}
	return t, err
}

// queues: the queue of a descriptor receives the frames that are written to it, and frames that
// a queue sends come out of its descriptor.
func queues(x *trial.Trial) error {
	t, err := tapped(x)
	if err != nil {
		return err
	}
	defer t.close()
	want := map[place]sum{}
	rows, err := x.Rows(func() error {
		for i, n := range []int{23, 0, 41} {
			size := 100 + 300*i
			if err := t.fds[i].Receive(n, size); err != nil {
				return err
			}
			want[place{"rx", fmt.Sprint(i)}] = sum{}.add(n, size-ethernet)
		}
		came, err := t.send(x.World, 97, 500)
		all := 0
		for i, n := range came {
			want[place{"tx", fmt.Sprint(i)}] = sum{}.add(n, 500)
			all += n
		}
		if all != 97 || came[0] == 97 {
			return fmt.Errorf("%v of 97 frames came out, want all, and by several queues", came)
		}
		return err
	})
	if err != nil {
		return err
	}
	same(x, counted(x, rows, dev, ""), want)
	return nil
}
