// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"testing"
)

// Every way to send with every way to receive, over every network: the tally is
// the expected one, and the kernel's own counters agree.
func TestIO(t *testing.T) {
	networks := []Network{TCP4, TCP6, UDP4, UDP6, Unix, UnixDgram, UnixPacket}
	uring := UringSupported() == nil
	for _, n := range networks {
		t.Run(string(n), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if !w.Addr(w.Hosts()[0], n).IsValid() {
				t.Skip("IPv6 is off")
			}
			var loads []Load
			for write := range writers {
				for read := range readers {
					l := Load{Network: n, Write: write, Read: read, Count: 14, Size: 333, Batch: 7}
					if l.defaults() != nil || !uring && (l.needs(UringSend, UringWrite) || l.needs(UringRecv, UringRead)) {
						continue
					}
					if write == Sendto && n != UDP4 && n != UDP6 {
						continue // an address is for those who are not connected
					}
					loads = append(loads, l)
				}
			}
			o, err := StartIO(w, "", "io", loads...)
			if err != nil {
				t.Fatal(err)
			}
			before := counters(t, w, "")
			res, err := o.Run()
			if err != nil {
				t.Fatal(err)
			}
			moved := counters(t, w, "").Since(before)
			datagrams := int64(0)
			for i, l := range loads {
				checkLoad(t, l, res[i])
				datagrams += int64(l.Count)
			}
			switch n {
			case UDP4:
				check(t, "UdpOutDatagrams", moved["UdpOutDatagrams"], datagrams)
				check(t, "UdpInDatagrams", moved["UdpInDatagrams"], datagrams)
			case UDP6:
				check(t, "Udp6OutDatagrams", moved["Udp6OutDatagrams"], datagrams)
				check(t, "Udp6InDatagrams", moved["Udp6InDatagrams"], datagrams)
			}
		})
	}
}

func (l Load) needs(write, read Call) bool { return l.Write == write || l.Read == read }

func checkLoad(t *testing.T, l Load, r LoadResult) {
	t.Helper()
	what := fmt.Sprintf("%s %s %s", l.Network, l.Write, l.Read)
	bytes := int64(l.Count * l.Size)
	want := func(c Call, batch Call) Calls {
		calls := Calls{Count: l.Count, Messages: l.Count, Bytes: bytes}
		if c == batch {
			calls.Count /= l.Batch
		}
		return calls
	}
	if l.Write == Splice && l.Read == Splice {
		check(t, what, r.Tally["splice"].Bytes, 2*bytes)
	} else {
		check(t, what+": sent", r.Tally[l.Write.Name()], want(l.Write, Sendmmsg))
		if l.Read != Splice {
			check(t, what+": received", r.Tally[l.Read.Name()], want(l.Read, Recvmmsg))
		}
	}
	if l.Network.tcp() {
		check(t, what+": the kernel's bytes sent", r.BytesSent, bytes)
		check(t, what+": the kernel's bytes received", r.BytesReceived, bytes)
	}
}

func TestIOFailures(t *testing.T) {
	w := newWorld(t)
	var loads []Load
	for _, n := range []Network{TCP4, UDP4, Unix, UnixDgram} {
		loads = append(loads, Load{Network: n, Count: 5, Size: 100, Peek: 2, Again: 3, Broken: 7})
	}
	o, err := StartIO(w, "", "io", loads...)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "pairs", o.Setup["socketpair"].Count, 2)
	res, err := o.Run()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range loads {
		what := string(l.Network)
		check(t, what+": writes", res[i].Tally["write"], Calls{Count: 12, Errors: 7, Messages: 5, Bytes: 500})
		check(t, what+": reads", res[i].Tally["read"], Calls{Count: 5, Messages: 5, Bytes: 500})
		check(t, what+": peeks", res[i].Tally["peek"], Calls{Count: 10, Messages: 10, Bytes: 1000})
		check(t, what+": receives", res[i].Tally["recvfrom"], Calls{Count: 3, Errors: 3})
	}
}

func TestIOEmptyDatagrams(t *testing.T) {
	w := newWorld(t)
	o, err := StartIO(w, "", "io", Load{Network: UDP4, Count: 7, Write: Sendmsg, Read: Recvmsg})
	if err != nil {
		t.Fatal(err)
	}
	res, err := o.Run()
	if err != nil {
		t.Fatal(err)
	}
	check(t, "sent", res[0].Tally["sendmsg"], Calls{Count: 7, Messages: 7})
	check(t, "received", res[0].Tally["recvmsg"], Calls{Count: 7, Messages: 7})
}

func TestIORefuses(t *testing.T) {
	for _, l := range []Load{
		{Network: TCP4, Count: 1},
		{Network: TCP4, Count: 1, Size: 1, Write: "recv"},
		{Network: TCP4, Count: 1, Size: 1, Read: "send"},
		{Network: TCP4, Count: 3, Size: 1, Batch: 2},
		{Network: TCP4, Count: 1, Size: 1 << 20},
		{Network: UDP4, Count: 1, Size: 1, Read: Splice},
	} {
		if err := l.defaults(); err == nil {
			t.Errorf("%+v was taken", l)
		} else if errors.Is(err, ErrNotSupported) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
