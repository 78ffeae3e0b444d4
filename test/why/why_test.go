// SPDX-License-Identifier: Apache-2.0

// Package why tests 'seine why': each fault is made on purpose and must be named first,
// and a healthy machine must have no findings.
package why

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"seine/internal/cli"
	"seine/internal/lab"
	"seine/internal/words"
)

var all = flag.Bool("all", false, "all faults, pairs and loads: make faults")

// seineEnv makes the test binary run as seine.
const seineEnv = "SEINE_WHY_TEST"

func TestMain(m *testing.M) {
	lab.Main()
	if order := os.Getenv(keepEnv); order != "" {
		os.Exit(keep(order))
	}
	if os.Getenv(seineEnv) != "" {
		os.Unsetenv(seineEnv)
		os.Exit(cli.Main(append([]string{"seine"}, os.Args[1:]...), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// finding is one of -o json.
type finding struct {
	ID, Class, Severity, Object, Rname, Confidence, Advice, Next, Rule string
	Rank                                                               int
	Causes                                                             []int
	Evidence                                                           []evidence
}

type evidence struct {
	What, Unit, From string
	Value            float64
	Window           float64 `json:"window_s"`
}

func (f *finding) String() string { return f.Class + " " + f.Object }

// seine runs a command line. When it is ready, begin is run, and one tick later it gets
// an interrupt, as by Ctrl-C, because the duration of begin is not known on a busy
// machine.
func seine(t *testing.T, begin func() error, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), seineEnv+"=1")
	var out, said bytes.Buffer
	cmd.Stdout = &out
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	began := make(chan error, 1)
	lines := bufio.NewScanner(io.TeeReader(pipe, &said))
	for lines.Scan() {
		if lines.Text() == "seine: ready" && begin != nil {
			go func() {
				err := begin()
				time.Sleep(1500 * ms)
				cmd.Process.Signal(os.Interrupt)
				began <- err
			}()
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if begin != nil && strings.Contains(said.String(), "seine: ready") {
		if err := <-began; err != nil {
			t.Fatalf("the fault: %v\n%s", err, said.String())
		}
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

func parse(t *testing.T, out string) (all []*finding) {
	t.Helper()
	for line := range strings.Lines(out) {
		f := &finding{}
		if err := json.Unmarshal([]byte(line), f); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, f)
	}
	return all
}

// ours are the findings about processes of the lab, whose names begin so, about objects of
// faults, and those that they explain.
func ours(all []*finding, made ...*trouble) (out []*finding) {
	for _, f := range all {
		mine := strings.HasPrefix(f.Object, "why-") ||
			slices.ContainsFunc(out, func(o *finding) bool { return slices.Contains(f.Causes, o.Rank) })
		for _, m := range made {
			mine = mine || f.Object == m.object && (!m.shared || f.Class == m.class)
		}
		if mine {
			out = append(out, f)
		}
	}
	return out
}

// list is findings, one a line.
func list(all []*finding) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "  %d %s, %s, %s, causes %v\n", f.Rank, f, f.Severity, f.Confidence, f.Causes)
	}
	return b.String()
}

// A trouble is a fault that has been made.
type trouble struct {
	*fault
	object string
	begin  func() error
}

// make makes a fault in a world of its own.
func (f *fault) make(t *testing.T) *trouble {
	t.Helper()
	w, err := lab.NewWorld(lab.Options{Hosts: lab.TwoHosts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if !f.loses() {
		patient(t, w)
	}
	x := &trouble{fault: f}
	x.begin, x.object, err = f.start(w)
	if errors.Is(err, lab.ErrNotSupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return x
}

// patient makes TCP's timers wait longer than a busy machine may delay an
// acknowledgement. Otherwise they retransmit segments that are not lost, which is a
// finding of its own. Kernels before 6.11 do not have this setting.
func patient(t *testing.T, w *lab.World) {
	t.Helper()
	for _, h := range w.Hosts() {
		if err := w.Sysctl(h, "net.ipv4.tcp_early_retrans", "0"); err != nil {
			t.Fatal(err)
		}
		if err := rtoMin(w, h, 20*time.Second); err != nil {
			t.Fatal(err)
		}
	}
}

// rtoMin sets the least time after which a host's new sockets retransmit and probe.
func rtoMin(w *lab.World, host string, least time.Duration) error {
	err := w.Sysctl(host, "net.ipv4.tcp_rto_min_us", fmt.Sprint(least.Microseconds()))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// TestFaults: each fault is the first finding about the lab's processes, and all other
// findings are explained by it.
func TestFaults(t *testing.T) {
	for i := range faults {
		f := &faults[i]
		if f.heavy && !*all {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			x := f.make(t)
			out, said, code := seine(t, x.begin, "why", "-o", "json", "-d", "120s", "-vv", "--fail-on", "info")
			found := ours(parse(t, out), x)
			if len(found) == 0 {
				t.Fatalf("nothing was found of %s %s (exit %d):\n%s%s", f.class, x.object, code, out, said)
			}
			first := found[0]
			if first.Class != f.class || first.Object != x.object {
				t.Errorf("first is %q, want %q:\n%s%s%s", first, f.class+" "+x.object, list(found), out, said)
			}
			if code != 5 {
				t.Errorf("exit code %d, want 5 for a finding", code)
			}
			explained := map[int]bool{first.Rank: true}
			for _, o := range found[1:] {
				if explained[o.Rank] = slices.ContainsFunc(o.Causes, func(rank int) bool { return explained[rank] }); !explained[o.Rank] {
					t.Errorf("%q is told too, and not explained by the fault:\n%s%s%s", o, list(found), out, said)
				}
			}
			for _, class := range f.then {
				if !slices.ContainsFunc(found[1:], func(o *finding) bool { return o.Class == class && explained[o.Rank] }) {
					t.Errorf("no %s is explained by it:\n%s%s", class, list(found), said)
				}
			}
			if f.closer != "" && !slices.ContainsFunc(first.Evidence, func(e evidence) bool { return e.From == f.closer && e.Value > 0 }) {
				t.Errorf("nothing of it was seen by %s:\n%s%s", f.closer, out, said)
			}
			if f.rname != "" && !slices.ContainsFunc(found, func(o *finding) bool { return o.Rname == f.rname }) {
				t.Errorf("no finding has the name %s:\n%s%s", f.rname, out, said)
			}
			for _, one := range found {
				runs(t, one.Next)
			}
			t.Attr(fmt.Sprintf("fault%02d", i+1), fmt.Sprintf("%s | %s | %s | %s", f.name, first.Class, first.Severity, first.Confidence))
		})
	}
}

// pairs are faults that are there at once, and flags of seine why.
var pairs = []struct {
	faults [2]string
	flags  []string
}{
	{faults: [...]string{"a server that thinks", "nobody listens"}},
	{faults: [...]string{"a name server that is slow", "clients that reset"}},
	{faults: [...]string{"a server that reads late", "nobody answers"}},
	// On a busy emulated machine this name server does take a tenth of a second to answer.
	{[...]string{"a server that does not accept", "a name server that fails"}, []string{"--slow=10s"}},
	{faults: [...]string{"a request in two small writes", "no descriptor is left"}},
}

// TestPairs: two faults at the same time are both named, before all findings
// that they explain.
func TestPairs(t *testing.T) {
	if !*all {
		pairs = pairs[:1]
	}
	for i, pair := range pairs {
		t.Run(pair.faults[0]+", "+pair.faults[1], func(t *testing.T) {
			var made []*trouble
			for _, name := range pair.faults {
				i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
				if i < 0 {
					t.Fatalf("there is no fault %q", name)
				}
				made = append(made, faults[i].make(t))
			}
			out, said, _ := seine(t, func() error {
				other := make(chan error, 1)
				go func() { other <- made[1].begin() }()
				return errors.Join(made[0].begin(), <-other)
			}, append([]string{"why", "-o", "json", "-d", "120s", "-vv"}, pair.flags...)...)
			found := ours(parse(t, out), made...)
			for _, m := range made {
				if !slices.ContainsFunc(found, func(f *finding) bool { return f.Class == m.class && f.Object == m.object && len(f.Causes) == 0 }) {
					t.Errorf("%s %s is not named:\n%s%s", m.class, m.object, list(found), said)
				}
			}
			for _, f := range found {
				if len(f.Causes) == 0 && !slices.ContainsFunc(made, func(m *trouble) bool { return f.Class == m.class }) {
					t.Errorf("%q is none of them:\n%s%s", f, list(found), said)
				}
			}
			t.Attr(fmt.Sprintf("pair%02d", i+1), strings.Join(pair.faults[:], " | "))
		})
	}
}

// runs checks that a printed command can be run. It does not check the output.
func runs(t *testing.T, command string) {
	t.Helper()
	line, err := words.Fields(command)
	if err != nil || len(line) < 2 || line[0] != "seine" {
		t.Errorf("%q is not a command: %v", command, err)
		return
	}
	if _, said, code := seine(t, nil, append(line[1:], "-d", "100ms")...); code != 0 {
		t.Errorf("%s: exit %d: %s", command, code, said)
	}
}

// TestRname: a finding has the name by which the process looked up the address.
func TestRname(t *testing.T) {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	stop, err := lab.StartNames(w, "", map[string]netip.Addr{"gone.example": netip.MustParseAddr("127.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	p, err := lab.StartLookups(w, "", "why-asks", "nameserver 127.0.0.1\n", slices.Repeat([]string{"gone.example.:9"}, 5)...)
	if err != nil {
		t.Fatal(err)
	}
	var looked []lab.Lookup
	out, said, _ := seine(t, func() error { return p.Call("go", &looked) }, "why", "-o", "json", "-d", "120s", "-vv")
	found := ours(parse(t, out))
	if len(found) != 1 || found[0].String() != "connect-refused why-asks → 127.0.0.2:9" || found[0].Rname != "gone.example" {
		t.Errorf("found\n%s%s%s%+v", list(found), out, said, looked)
	}
}

// TestDemo: 'seine demo why' names the cause first, and all else follows from it.
func TestDemo(t *testing.T) {
	out, said, code := seine(t, nil, "demo", "why", "-o", "json", "-d", "120s")
	found := parse(t, out)
	if code != 0 || len(found) < 4 || found[0].String() != "app-slow db :5432" {
		t.Fatalf("exit %d:\n%s%s", code, list(found), said)
	}
	explained := map[int]bool{1: true}
	for _, f := range found[1:] {
		if explained[f.Rank] = slices.ContainsFunc(f.Causes, func(rank int) bool { return explained[rank] }); !explained[f.Rank] {
			t.Errorf("%q does not follow:\n%s%s", f, list(found), said)
		}
	}
	if !slices.ContainsFunc(found, func(f *finding) bool { return f.String() == "accept-queue web :8080" }) {
		t.Errorf("the queue is not named:\n%s", list(found))
	}
}

// TestTarget: a target limits the findings, and a target that does not exist is
// reported.
func TestTarget(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"why", "4194305"}, 2, "there is no process"},
		{[]string{"why", ":0"}, 2, "not a port"},
		{[]string{"why", "-o", "xml"}, 2, "why writes table, json, md"},
		{[]string{"why", "--fail-on", "worse"}, 2, "info, warn, bad"},
		{[]string{"why", "--since", "14:00"}, 2, "give --from"},
		{[]string{"why", "no-such-process", "-d", "1s"}, 0, "nothing was seen of no-such-process"},
	} {
		if _, said, code := seine(t, nil, c.args...); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%v: exit %d: %s", c.args, code, said)
		}
	}
}
