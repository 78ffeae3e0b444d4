// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/cli"
	"seine/internal/lab"
	"seine/internal/probe"
	"seine/internal/tool"
	"seine/tools"
)

const bodyChurn = "live-churn"

func init() { lab.Register(bodyChurn, churn) }

// churn makes connections and ends them, as fast as it can, until it is told to
// end, and some more.
func churn(c *lab.Child) error {
	networks := []lab.Network{lab.TCP4, lab.UDP4, lab.Unix}
	if lab.MPTCPSupported() == nil {
		networks = append(networks, lab.MPTCP4)
	}
	// One socket of each kind exists all the time.
	for _, n := range networks {
		addr := "@live-older"
		if n != lab.Unix {
			addr = "127.0.0.1:0"
		}
		fd, _, err := lab.Listen(n, addr, 1)
		if err != nil {
			return err
		}
		defer lab.Close(fd)
	}
	if err := c.Report(true); err != nil {
		return err
	}
	for more := 50; more > 0; {
		if c.Told() {
			more--
		}
		for _, n := range networks {
			if err := meet(n); err != nil {
				return fmt.Errorf("%v: %w", n, err)
			}
		}
	}
	return nil
}

// meet connects two sockets. One of them sends; the other one receives and is
// closed first. Then the listener is closed.
func meet(n lab.Network) error {
	addr := "@live-churn"
	if n != lab.Unix {
		addr = "127.0.0.1:0"
	}
	l, port, err := lab.Listen(n, addr, 1)
	if err != nil {
		return err
	}
	if n != lab.Unix {
		addr = fmt.Sprint("127.0.0.1:", port)
	}
	w, err := lab.Connect(n, addr)
	if err != nil {
		return err
	}
	r := l
	if n.Stream() {
		if r, err = lab.Accept(l); err != nil {
			return err
		}
	}
	if _, err = unix.Write(w, []byte("hello")); err != nil {
		return err
	}
	if _, err = unix.Read(r, make([]byte, 5)); err != nil {
		return err
	}
	lab.Close(r)
	lab.Close(w)
	if !n.Stream() {
		return nil
	}
	lab.Close(l)
	if w, err = lab.Connect(n, addr); err == nil {
		lab.Close(w) // to itself: its own port was free
	}
	return nil
}

// TestForgets: after a process has ended, maps have only its counts, whatever it did
// before, during and after the attach. An entry by the address of a socket would be
// taken for the next socket at that address.
func TestForgets(t *testing.T) {
	if lab.Emulated() {
		t.Skip("the order of programs does not depend on the kernel, and this takes minutes where it is emulated")
	}
	for _, tl := range tools.All {
		t.Run(tl.Name, func(t *testing.T) {
			w, err := lab.NewWorld(lab.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			p, err := w.Start("", "churner", bodyChurn, nil)
			if err != nil {
				t.Fatal(err)
			}
			var ready bool
			if err := p.Expect(&ready); err != nil {
				t.Fatal(err)
			}
			cfg, o, err := cli.Parse(tl, nil)
			if err != nil {
				t.Fatal(err)
			}
			prepared, err := tool.Prepare(tl, cfg, o)
			if err != nil {
				t.Fatal(err)
			}
			s, err := prepared.Attach()
			var none *probe.PointError
			if errors.As(err, &none) {
				t.Skip(err) // TestLoad checks whether it should
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := p.Tell("end"); err != nil {
				t.Fatal(err)
			}
			if err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			shown := shownMaps(prepared.Views)
			for name, m := range s.Maps {
				if m.Type() != ebpf.Hash || slices.Contains(shown, name) || strings.HasPrefix(name, "filter_") {
					continue
				}
				n := 0
				for range 600 { // sockets of MPTCP end by and by
					if n = mentions(t, m, uint32(p.PID)); n == 0 {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				if n > 0 {
					t.Errorf("%d entries of %s are still those of a process that has ended", n, name)
				}
			}
		})
	}
}

// shownMaps are those that views show.
func shownMaps(views []tool.View) (out []string) {
	for _, v := range views {
		if f := reflect.ValueOf(v.Output).FieldByName("Map"); f.IsValid() {
			out = append(out, f.String())
		}
	}
	return out
}

// mentions is the number of entries of m with a word equal to pid.
func mentions(t *testing.T, m *ebpf.Map, pid uint32) (n int) {
	t.Helper()
	var key, value []byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		all := slices.Concat(key, value)
		for ; len(all) >= 4; all = all[4:] {
			if binary.NativeEndian.Uint32(all) == pid {
				n++
				break
			}
		}
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}
