// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"net/netip"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// A peer is one end of sessions. The client makes them again for each word, so
// the same processes serve many runs of a tool.
type peer struct {
	Host  string
	Comm  string
	Name  []byte // set by the process itself: any bytes
	Addr  netip.Addr
	Port  int
	Count int // sessions at each word

	UID    uint32
	Cgroup *os.File `json:"-"`
}

const echoPort = 7207

func (p *peer) network() lab.Network {
	if p.Addr.Is4() {
		return lab.TCP4
	}
	return lab.TCP6
}

func init() {
	lab.Register("cli-server", serverBody)
	lab.Register("cli-client", clientBody)
}

// serverBody closes each session when the client has.
func serverBody(c *lab.Child) error {
	var p peer
	if err := c.Arg(&p); err != nil {
		return err
	}
	fd, _, err := lab.Listen(p.network(), p.network().At(p.Addr, p.Port), 64)
	if err != nil {
		return err
	}
	if err := c.Report(p.Port); err != nil {
		return err
	}
	for {
		s, err := lab.Accept(fd)
		if err != nil {
			return err
		}
		if err := lab.RecvEnd(s); err != nil {
			return err
		}
		if err := lab.Close(s); err != nil {
			return err
		}
	}
}

// clientBody makes Count sessions at each word. It closes its end first and
// waits for the server's end, so that a session has ended when it returns.
func clientBody(c *lab.Child) error {
	var p peer
	if err := c.Arg(&p); err != nil {
		return err
	}
	if p.Name != nil {
		name := append(bytes.Clone(p.Name), 0)
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
			return err
		}
	}
	for {
		c.Next()
		for range p.Count {
			fd, err := lab.Connect(p.network(), p.network().At(p.Addr, p.Port))
			if err != nil {
				return err
			}
			if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
				return err
			}
			if err := lab.RecvEnd(fd); err != nil {
				return err
			}
			if err := lab.Close(fd); err != nil {
				return err
			}
		}
		if err := c.Report(p.Count); err != nil {
			return err
		}
	}
}

func launch(t *testing.T, w *lab.World, p peer, host, body string) *lab.Proc {
	t.Helper()
	proc, err := w.Launch(lab.Command{Host: host, Comm: p.Comm, Body: body, Arg: p, UID: p.UID, Cgroup: p.Cgroup})
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

// serve starts a server and waits until it listens.
func serve(t *testing.T, w *lab.World, p peer) *lab.Proc {
	t.Helper()
	proc := launch(t, w, p, "server", "cli-server")
	var port int
	if err := proc.Expect(&port); err != nil {
		t.Fatal(err)
	}
	return proc
}

func client(t *testing.T, w *lab.World, p peer) *lab.Proc {
	t.Helper()
	return launch(t, w, p, "client", "cli-client")
}

// talk makes clients make their sessions, and waits for the end of the last.
func talk(t *testing.T, clients ...*lab.Proc) {
	t.Helper()
	for _, c := range clients {
		var n int
		if err := c.Call("go", &n); err != nil {
			t.Fatal(err)
		}
	}
}
