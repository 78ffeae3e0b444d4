// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSkbOutput writes packets that this process sends into a file, and finds in it what was sent.
func TestSkbOutput(t *testing.T) {
	needRoot(t)
	file := filepath.Join(t.TempDir(), "out.pcap")
	peer := must(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))
	defer peer.Close()
	c := must(net.DialUDP("udp4", nil, peer.LocalAddr().(*net.UDPAddr)))
	defer c.Close()
	port := uint16(peer.LocalAddr().(*net.UDPAddr).Port)
	sent := [][]byte{bytes.Repeat([]byte("a"), 100), []byte("second"), bytes.Repeat([]byte("c"), 700)}
	var begun, ended time.Time
	// Of the longest, 500 bytes are asked for.
	out, errs := live(t, script(fmt.Sprintf(`t:net:net_dev_queue /pid == %d/ { $skb = (struct sk_buff *)args.skbaddr; @[skboutput("%s", $skb, $skb->len > 600 ? 500 : $skb->len, 14)] = count(); }`, os.Getpid(), file)), Options{}, func() {
		begun = time.Now()
		for _, b := range sent {
			must(c.Write(b))
		}
		ended = time.Now()
	})
	want(t, out, "@[0]: 3\n")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if head := "\xd4\xc3\xb2\xa1\x02\x00\x04\x00"; !bytes.HasPrefix(data, []byte(head)) || binary.LittleEndian.Uint32(data[20:]) != 101 {
		t.Fatalf("the file begins with % x", data[:min(24, len(data))])
	}
	data = data[24:]
	for i, b := range sent {
		if len(data) < 16 {
			t.Fatalf("there are %d packets, want %d", i, len(sent))
		}
		u32 := func(at int) int { return int(binary.LittleEndian.Uint32(data[at:])) }
		at, n, size := time.Unix(int64(u32(0)), int64(u32(4))*1000), u32(8), u32(12)
		packet := data[16 : 16+n]
		data = data[16+n:]
		all := 20 + 8 + len(b)
		if kept := min(all, 500); n != kept || size != all {
			t.Errorf("packet %d has %d of %d bytes, want %d of %d", i, n, size, kept, all)
		}
		if packet[0] != 0x45 || packet[9] != 17 || binary.BigEndian.Uint16(packet[22:]) != port || !bytes.Equal(packet[28:], b[:min(n-28, len(b))]) {
			t.Errorf("packet %d is % x", i, packet)
		}
		// The file has microseconds.
		if at.Before(begun.Add(-time.Microsecond).Add(-clockSlack)) || at.After(ended.Add(clockSlack)) {
			t.Errorf("packet %d is of %v, sent between %v and %v", i, at, begun, ended)
		}
	}
	if len(data) > 0 {
		t.Errorf("%d bytes more in the file", len(data))
	}
}

// clockSlack is by how much the wall clock may be set while a test runs.
const clockSlack = 5 * time.Millisecond
