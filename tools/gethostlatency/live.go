// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "glibc", Run: calledBy(glibc())},
		{Name: "musl", Run: calledBy(musl())},
		{Name: "later", Run: later},
		{Name: "replaced", Run: replaced},
		{Name: "refused", Run: refused},
		{Name: "own", Run: own},
		{Name: "jump", Run: jump},
		{Name: "inflight", Run: inflight},
		{Name: "killed", Run: killed},
		{Name: "dnsmasq", Run: dnsmasq},
		{Name: "pending", Run: pending},
	}
}

// A libc is a C library and the results of its functions.
type libc struct{ lab.LibC }

func glibc() libc { return libc{lab.Glibc} }
func musl() libc  { return libc{lab.Musl} }

// start starts a program that is ready to make calls, each a function and a
// host.
func (l libc) start(x *trial.Trial, etc map[string]string, calls ...string) (*lab.Proc, error) {
	p, err := l.Start(x.World, etc, calls...)
	if errors.Is(err, lab.ErrNotSupported) {
		return nil, trial.Skip("%v", err)
	}
	return p, err
}

// everyCall is each function, for a host that exists and one that does not,
// with the result.
func everyCall() (args, results []string) {
	for _, c := range calls[:len(calls)-1] {
		yes, no, result := "a.example", "nx.example", "HOST_NOT_FOUND"
		switch {
		case c == "getaddrinfo":
			result = "EAI_NONAME"
		case strings.HasPrefix(c, "gethostbyaddr"):
			yes, no = "192.0.2.7", "2001:db8::7" // the server has a name for every address
			result = "success"
		}
		args = append(args, c, yes, c, no)
		results = append(results, "success", result)
	}
	return args, results
}

// calledBy: every function of a C library, with the latencies that the program
// itself measured.
func calledBy(l libc) func(*trial.Trial) error {
	return func(x *trial.Trial) error {
		if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
			return err
		}
		args, results := everyCall()
		p, err := l.start(x, etc, args...)
		if err != nil {
			return err
		}
		if err := x.Attach(); err != nil {
			return err
		}
		return l.compare(x, p, results)
	}
}

// compare runs the program and compares rows with what it reports.
func (l libc) compare(x *trial.Trial, p *lab.Proc, results []string) error {
	reports, err := lab.Resolve(p, len(results))
	if err != nil {
		return err
	}
	x.Await(len(results))
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), len(results)))
	var off []time.Duration
	for i := range min(len(rows), len(results)) {
		agrees(x, rows[i], p, reports[i], results[i])
		x.Want(rows[i], "inflight", 1)
		off = append(off, time.Duration(reports[i].NS-int64(rows[i].Get("latency_us").N)))
	}
	// The machine may stand still between the two clock readings, but not
	// at every call.
	slack := 5 * time.Millisecond
	if lab.Emulated() {
		slack *= 20
	}
	if len(off) > 2 && slices.Min(off) > slack {
		x.Errorf("the program measured %v more than the tool, one call after the other", off)
	}
	x.NoneLost()
	return nil
}

// agrees compares a row with the program's report of the call.
func agrees(x *trial.Trial, r *row.Row, p *lab.Proc, got lab.Resolved, result string) {
	x.Want(r, "pid", p.PID)
	x.Want(r, "comm", p.Comm)
	x.Want(r, "netns", p.Netns)
	x.Want(r, "call", got.Call)
	x.Want(r, "host", got.Host)
	x.Want(r, "result", result)
	if (got.Code == 0) != (result == "success") {
		x.Errorf("%s of %s gives %d, want %s", got.Call, got.Host, got.Code, result)
	}
	if ns := int64(r.Get("latency_us").N); ns > got.NS || ns < int64(late) {
		x.Errorf("%s of %s took %d ns, the program measured %d", got.Call, got.Host, ns, got.NS)
	}
}

// later: programs that start after the tool, in mount namespaces with their own
// C libraries, which no process used before.
func later(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	var procs []*lab.Proc
	for _, l := range []libc{musl(), glibc()} {
		l.Private = true
		p, err := l.start(x, etc, "getaddrinfo", "a.example")
		if err != nil {
			return err
		}
		procs = append(procs, p)
	}
	time.Sleep(3 * again[len(again)-1]) // until the tool has examined them
	var reports []lab.Resolved
	for _, p := range procs {
		r, err := lab.Resolve(p, 1)
		if err != nil {
			return err
		}
		reports = append(reports, r...)
	}
	x.Await(2)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 2); err != nil {
		return err
	}
	for i, r := range rows {
		agrees(x, r, procs[i], reports[i], "success")
	}
	return nil
}

// replaced: the C library of a running program has been replaced on disk.
func replaced(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
		return err
	}
	p, err := musl().start(x, etc, "getaddrinfo", "a.example", "gethostbyname", "nx.example")
	if err != nil {
		return err
	}
	old := fmt.Sprintf("/proc/%d/root%s", p.PID, musl().Files[0])
	text, err := os.ReadFile(old)
	if err != nil {
		return err
	}
	if err := os.WriteFile(old+".new", text, 0o755); err != nil {
		return err
	}
	if err := os.Rename(old+".new", old); err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	return musl().compare(x, p, []string{"success", "HOST_NOT_FOUND"})
}

// refused: a process uses a C library that the kernel cannot probe, because it
// has a breakpoint there. The tool still sees the other libraries.
func refused(x *trial.Trial) error {
	text, err := os.ReadFile(glibc().Files[len(glibc().Files)-1])
	if err != nil {
		return trial.Skip("no library: %v", err)
	}
	trap := map[string]string{"amd64": "\xcc\xcc\xcc\xcc", "arm64": "\x00\x00\x20\xd4"}[runtime.GOARCH]
	copy(text[functions(bytes.NewReader(text), false)["getaddrinfo"]:], trap)
	dir, err := x.World.Dir()
	if err != nil {
		return err
	}
	name := filepath.Join(dir, "libc.so.6")
	if err := os.WriteFile(name, text, 0o755); err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	code, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(code)
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
		return err
	}
	p, err := glibc().start(x, etc, "getaddrinfo", "a.example")
	if err != nil {
		return err
	}
	if err := x.Attach("--lib=" + name); err == nil {
		x.Errorf("no error for a file of --lib that refuses")
	}
	if err := x.Attach(); err != nil {
		return err
	}
	return glibc().compare(x, p, []string{"success"})
}

// own: a resolver that is part of a program.
func own(x *trial.Trial) error {
	p, err := glibc().start(x, etc, "own_resolver", "own.example", "own_resolver", "other.example")
	if err != nil {
		return err
	}
	prog, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	if err != nil {
		return err
	}
	if err := x.Attach("--lib=" + prog + ":no_such_resolver"); !errors.Is(err, tool.ErrUsage) {
		x.Errorf("a function that is not there: %v", err)
	}
	if err := x.Attach("--lib=" + prog + ":own_resolver"); err != nil {
		return err
	}
	if _, err := lab.Resolve(p, 2); err != nil {
		return err
	}
	x.Await(2)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 2); err != nil {
		return err
	}
	x.Want(rows[0], "host", "own.example")
	x.Want(rows[0], "result", "success")
	x.Want(rows[0], "call", "other")
	x.Want(rows[1], "host", "other.example")
	x.Want(rows[1], "result", "EAI_NONAME")
	return nil
}

// jump: a function that ends in a jump to another one is one call, however long it
// takes until then.
func jump(x *trial.Trial) error {
	p, err := glibc().start(x, etc, "own_front", "own.example", "own_front", "other.example")
	if err != nil {
		return err
	}
	prog, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	if err != nil {
		return err
	}
	if err := x.Attach("--lib=" + prog + ":own_front," + prog + ":own_resolver"); err != nil {
		return err
	}
	reports, err := lab.Resolve(p, 2)
	if err != nil {
		return err
	}
	rows, err := x.Exactly(2)
	if err != nil {
		return err
	}
	for i, r := range rows {
		x.Want(r, "host", reports[i].Host)
		if ns, least := int64(r.Get("latency_us").N), int64(37*time.Millisecond); ns < least || ns > reports[i].NS {
			x.Errorf("it took %d ns, want from %d to %d, which the program measured", ns, least, reports[i].NS)
		}
	}
	return nil
}

// inflight: seven threads look up a host at once.
func inflight(x *trial.Trial) error {
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Together: 7}); err != nil {
		return err
	}
	args := []string{"-t"}
	for i := range 7 {
		args = append(args, "getaddrinfo", fmt.Sprintf("a%d.example", i))
	}
	p, err := glibc().start(x, etc, args...)
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if _, err := lab.Resolve(p, 7); err != nil {
		return err
	}
	x.Await(7)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	if err := trial.RowCount(len(rows), 7); err != nil {
		return err
	}
	var most uint64
	for _, r := range rows {
		n := r.Get("inflight").N
		if most = max(most, n); n < 1 || n > 7 {
			x.Errorf("%d lookups under way, of 7", n)
		}
	}
	if most != 7 {
		x.Errorf("at most %d lookups under way, want 7", most)
	}
	return nil
}

// killed: the lookup of a program that has ended does not count as under way.
func killed(x *trial.Trial) error {
	server, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late})
	if err != nil {
		return err
	}
	p, err := glibc().start(x, etc, "getaddrinfo", "mute.example")
	if err != nil {
		return err
	}
	next, err := glibc().start(x, etc, "getaddrinfo", "a.example")
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	if err := p.Tell("go"); err != nil {
		return err
	}
	var name string
	if err := server.Expect(&name); err != nil { // it waits for its answer
		return err
	}
	p.Kill()
	return glibc().compare(x, next, []string{"success"})
}

// dnsmasq: a real server behind a forwarder that delays its answers by 50 ms.
func dnsmasq(x *trial.Trial) error {
	d, err := lab.StartDnsmasq(x.World, "", lab.Dnsmasq{Port: 5353, Names: map[string]netip.Addr{"late.example": netip.MustParseAddr("192.0.2.9")}})
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	} else if err != nil {
		return err
	}
	defer d.Stop()
	if _, err := lab.StartDNS(x.World, "", "forwarder", lab.DNS{Delay: late, Forward: "127.0.0.1:5353"}); err != nil {
		return err
	}
	p, err := glibc().start(x, etc, "getaddrinfo", "late.example", "gethostbyname", "late.example", "getaddrinfo", "nobody.example")
	if err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	return glibc().compare(x, p, []string{"success", "success", "EAI_NONAME"})
}
