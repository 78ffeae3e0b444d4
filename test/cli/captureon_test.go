// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/test/pcapng"
)

// TestCaptureOn: with --on the file has the packets that tcpdump has in the time from
// --before a row of the other tool to --after it, and no others. The row is that of a SYN
// that is retransmitted after a second.
func TestCaptureOn(t *testing.T) {
	need(t, "tcpdump")
	t.Parallel()
	err := lab.Undisturbed(func() ([]error, error) { return captureOn(t) })
	if err != nil {
		t.Fatal(err)
	}
}

// The ports that datagrams go to: long before the row, shortly before it, long after it.
const longBefore, justBefore, longAfter = 1001, 1002, 1003

func captureOn(t *testing.T) (differ []error, err error) {
	w, err := lab.NewWorld(lab.Options{Hosts: lab.TwoHosts})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := w.Refuse("server"); err != nil { // it answers nothing
		return nil, err
	}
	const before, after, near = 2 * time.Second, 500 * time.Millisecond, 200 * time.Millisecond
	send := func(port, count int) error {
		return w.SendUDP("client", fmt.Sprintf("%s:%d", w.Addr4("server"), port), count)
	}
	name := filepath.Join(t.TempDir(), "a.pcapng")
	stop := tcpdump(t, w, "client", "eth0")
	p := start(t, nil, "capture", "-w", name, fmt.Sprintf("--netns=%d", w.Netns("client")), "--dev=eth0",
		"--on", fmt.Sprintf(`tcpretrans --netns=%d: state == "SYN_SENT"`, w.Netns("client")), "--before=2s", "--after=500ms")
	if err := send(longBefore, 31); err != nil {
		return nil, err
	}
	time.Sleep(before - time.Second + 2*near) // the SYN is sent again after a second
	again, err := sendSYN(w, func() error { return send(justBefore, 37) })
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(again.Add(after + 2*near)))
	if err := send(longAfter, 41); err != nil {
		return nil, err
	}
	theirs := stop()
	p.signal(syscall.SIGINT)
	p.wantEnd(0)

	var retransmitted time.Time
	syns := 0
	for _, f := range theirs {
		if len(f.Data) >= 48 && f.Data[12] == 8 && f.Data[23] == unix.IPPROTO_TCP && f.Data[47] == 2 {
			if syns++; syns == 2 {
				retransmitted = f.Time
			}
		}
	}
	if syns != 2 {
		return nil, fmt.Errorf("tcpdump has %d SYNs, want 2", syns)
	}
	errorf := func(format string, args ...any) { differ = append(differ, fmt.Errorf(format, args...)) }
	got := map[string]int{}
	to := map[int]int{}
	for _, b := range blocks(t, name) {
		if b.Type == pcapng.Packet {
			got[string(b.Data)]++
			_, dst := ports(b.Data)
			to[dst]++
		}
	}
	if to[longBefore] != 0 || to[longAfter] != 0 || to[justBefore] != 37 {
		errorf("%d packets from long before, %d from long after, %d from just before, want 0, 0 and 37", to[longBefore], to[longAfter], to[justBefore])
	}
	for _, f := range theirs {
		since := f.Time.Sub(retransmitted)
		if got[string(f.Data)] > 0 && since > -before-near && since < after+near {
			got[string(f.Data)]--
		} else if since > -before+near && since < after-near {
			errorf("the packet of %v after the row is missing: %x", since, f.Data)
		}
	}
	for data, n := range got {
		if n > 0 {
			errorf("%d times too many: %x", n, data)
		}
	}
	for _, err := range differ {
		t.Log(err)
	}
	return differ, nil
}

// sendSYN connects to a host that answers nothing, calls meanwhile, and gives up when the SYN has been
// sent again. It returns when that was, or a little later.
func sendSYN(w *lab.World, meanwhile func() error) (again time.Time, err error) {
	first, err := w.Counters("client")
	if err != nil {
		return again, err
	}
	var fd int
	err = w.Do("client", func() error {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		err := unix.Connect(fd, &unix.SockaddrInet4{Port: 4711, Addr: w.Addr4("server").As4()})
		if errors.Is(err, unix.EINPROGRESS) {
			return nil
		}
		return fmt.Errorf("connect: %w", err)
	})
	if err != nil {
		return again, err
	}
	defer unix.Close(fd)
	if err := meanwhile(); err != nil {
		return again, err
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		now, err := w.Counters("client")
		if err != nil {
			return again, err
		}
		if now["TcpRetransSegs"] > first["TcpRetransSegs"] {
			return time.Now(), nil
		}
		if time.Since(begin) > 10*time.Second {
			return again, errors.New("the SYN was not sent again")
		}
	}
}
