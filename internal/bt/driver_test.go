// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// veths makes a network namespace with a pair of veth devices, and returns a
// function that sends n datagrams into it: each is one veth_xmit by this process.
func veths(t *testing.T) (send func(n int)) {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // for good: the thread ends with its namespace
	check(unix.Unshare(unix.CLONE_NEWNET))
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0)
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "btv0"}, PeerName: "btv1"}
	if err := netlink.LinkAdd(pair); err != nil {
		lack(t, fmt.Errorf("veth: %w", err))
	}
	for _, name := range []string{"btv0", "btv1"} {
		check(netlink.LinkSetUp(must(netlink.LinkByName(name))))
	}
	out := must(netlink.LinkByName("btv0"))
	check(netlink.AddrAdd(out, must(netlink.ParseAddr("10.77.7.1/24"))))
	check(netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: out.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.IPv4(10, 77, 7, 2), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 7},
	}))
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
	t.Cleanup(func() { unix.Close(fd) })
	return func(n int) {
		for range n {
			check(unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 77, 7, 2}}))
		}
	}
}

// TestDriver counts all functions of a driver module.
func TestDriver(t *testing.T) {
	send := veths(t)
	o := Options{PIDs: self()}
	few := "veth_*"
	if !running().multi() {
		few = "veth_x*" // one by one takes half a minute under emulation: once is enough
	}
	for _, pattern := range []string{"k:veth_*", "k:veth:" + few} {
		out, errs := live(t, script(pattern+" { @[func] = count(); }"), o, func() { send(37) })
		want(t, out, "@[veth_xmit]: 37\n")
		// One line a function, the least called first.
		last := 0
		for line := range strings.Lines(strings.TrimSpace(out)) {
			var n int
			m := regexp.MustCompile(`^@\[veth_\w+(?:\.\w+)*\]: (\d+)\n?$`).FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("got %q in\n%s", line, out)
			}
			if fmt.Sscan(m[1], &n); n < last {
				t.Errorf("%d comes after %d:\n%s", n, last, out)
			}
			last = n
		}
		if strings.Contains(errs, "lost") {
			t.Error(errs)
		}
	}
	out, _ := live(t, func(o Options) (*Program, error) { return FuncCount(few, false, o) }, o, func() { send(41) })
	want(t, out, fmt.Sprintf("%-36s %9d\n", "veth_xmit", 41)[27:])
	want(t, out, "veth_xmit ")
}

// TestUserFunctions takes BCC's specs of user functions: of this program, and of
// the C library where there is one.
func TestUserFunctions(t *testing.T) {
	needRoot(t)
	self := self()
	work := func() {
		for i := range 7 {
			sink += traced(i % 2)
		}
	}
	const own = "/proc/self/exe:seine/internal/bt.traced"
	for _, kind := range []string{"u", "p"} {
		out, _ := live(t, func(o Options) (*Program, error) {
			return Trace([]string{kind + ":" + own + ` (pid > 1) "cpu below %d", 1 + 1`}, false, o)
		}, Options{PIDs: self}, work)
		if n := strings.Count(out, " seine/internal/bt.traced cpu below 2\n"); n != 7 {
			t.Errorf("trace %s: got %d lines, want 7:\n%s", kind, n, out)
		}
		out, _ = live(t, func(o Options) (*Program, error) {
			return ArgDist([]ArgSpec{{Text: kind + ":" + own + "():int,char*:$PID,$COMM:$pid > 1"}}, 0, o)
		}, Options{PIDs: self}, work)
		want(t, out, fmt.Sprintf("\t7          $PID = %d, $COMM = ", self[0]))
	}
	out, _ := live(t, func(o Options) (*Program, error) { return FuncCount("u:"+own, false, o) }, Options{PIDs: self}, work)
	want(t, out, "seine/internal/bt.traced ", " 7\n")
	out, _ = live(t, func(o Options) (*Program, error) { return StackCount("u:"+own, StackOptions{}, o) }, Options{PIDs: self}, work)
	want(t, out, "  seine/internal/bt.traced\n", "    7\n\n")
}

// TestLibrary has arguments and returned values of functions of the C library: a
// shell that changes its directory, twice where it may and once where it cannot.
func TestLibrary(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("sh"); err != nil {
		lack(t, err)
	}
	a, b := t.TempDir(), t.TempDir() // names that nobody else has
	shell := func() { _ = exec.Command("sh", "-c", "cd "+a+"; cd "+b+"; cd "+a+"; cd "+b+"/none 2>/dev/null").Run() }
	for _, spec := range []string{`p:c:chdir "%s", arg1`, `c:chdir(char *path) "%s", path`, `u:c:chdir (STRCMP("` + a + `", arg1)) "%s", arg1`} {
		out, _ := live(t, func(o Options) (*Program, error) { return Trace([]string{spec}, false, o) }, Options{}, shell)
		n := regexp.MustCompile(`(?m)^\d+ +\d+ +sh +chdir +`+a+`$`).FindAllString(out, -1)
		if len(n) != 2 || strings.Contains(out, b) == strings.Contains(spec, "STRCMP") {
			t.Errorf("%s: got\n%s", spec, out)
		}
	}
	out, _ := live(t, func(o Options) (*Program, error) { return Trace([]string{`r:c:chdir "%d", retval`}, false, o) }, Options{}, shell)
	want(t, out, "chdir            0\n", "chdir            -1\n")
	out, _ = live(t, func(o Options) (*Program, error) {
		return ArgDist([]ArgSpec{
			{Text: "p:c:chdir(char *path):char *:path"}, {Text: "r:c:chdir(char *path):int,char *:$retval,$entry(path):$retval < 0"}, {Hist: true, Text: "r:c:chdir():u64:$latency/1000000#ms"},
		}, 0, o)
	}, Options{}, shell)
	want(t, out, "\t2          path = "+a+"\n", "\t1          path = "+b+"\n", "\t1          $retval = -1, $entry(path) = "+b+"/none\n", ": count     distribution\n")
	out, _ = live(t, script(`u:libc:chdir /str(arg0) == str($1)/ { @in[tid] = 1; @p[comm, str(arg0)] = count(); } ur:c:chdir /@in[tid]/ { @[func, (int32)retval] = count(); delete(@in[tid]); }`, a), Options{}, shell)
	want(t, out, "@[chdir, 0]: 2\n", "@p[sh, "+a+"]: 2\n")
}
