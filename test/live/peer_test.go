// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
	"seine/tools"
)

// A peer is a tool of another project that shows the same as one of ours. The
// common columns of a row form a line. The lines of one workload must be equal,
// except for the differences in differs, which our README explains too.
type peer struct {
	tool    string
	flags   []string // ours
	command string
	args    []string                 // of the command
	want    int                      // lines of the workload
	run     func(w *lab.World) error // nil: our demo
	// If figures is set, theirs, ours, differs and more are not needed.
	figures func(x *trial.Trial, ours []*row.Row, theirs []string)
	// first prepares the world before the command, which then runs in the first
	// host's namespace.
	first func(w *lab.World) (undo func(), err error)
	// tick is the last line of each output of a command that forgets what it has shown, and what comes while it
	// does. The workload begins after one, and is over two later.
	tick    *regexp.Regexp
	theirs  func(fields []string) string // of a line's words; empty: not a row
	ours    []string                     // columns that make the same line; x_kb is x_bytes in KB
	differs map[string]string            // ends of lines that are not the same on both sides, and why
	more    string                       // beginning of lines that only we have
}

var peers = []peer{
	{
		// Their PID is that of the process that closed the socket.
		tool: "tcplife", command: "tcplife", want: 2 * 7, run: sessions(7),
		theirs: func(f []string) string { return pick(f, 9, 2, 3, 4, 5, 6, 7) },
		ours:   []string{"laddr", "lport", "raddr", "rport", "tx_kb", "rx_kb"},
	},
	{
		tool: "tcpconnect", command: "tcpconnect", want: 7, run: sessions(7),
		theirs: func(f []string) string { return pick(f, 6, 0, 1, 3, 4, 5) },
		ours:   []string{"pid", "comm", "laddr", "raddr", "rport"},
	},
	{
		// Their PID and COMM are those of the running process.
		tool: "tcpstates", command: "tcpstates", want: 7*10 + 2, run: sessions(7),
		theirs: func(f []string) string { return pick(f, 11, 3, 4, 5, 6, 7, 9) },
		ours:   []string{"laddr", "lport", "raddr", "rport", "oldstate", "newstate"},
		differs: map[string]string{
			"LISTEN SYN_RECV": "they show the listener's addresses, which the socket still has; we those that it gets",
		},
	},
	{
		tool: "tcpbind", command: "bindsnoop", want: 3, run: binds,
		theirs: func(f []string) string { return pick(f, 8, 0, 1, 2, 6, 7) },
		ours:   []string{"pid", "comm", "ret", "lport", "laddr"},
	},
	{
		tool: "solisten", command: "solisten", want: 1, run: sessions(1),
		theirs: func(f []string) string { return pick(f, 7, 0, 1, 2, 5, 6) },
		ours:   []string{"pid", "comm", "ret", "lport", "laddr"},
	},
	{
		// They show only the accept queue, under the name of the SYN
		// queue.
		tool: "tcpsynbl", command: "tcpsynbl", want: 2, run: sessions(7), more: "syn ",
		theirs: func(f []string) string {
			if len(f) < 5 || f[1] != "->" {
				return ""
			}
			return "accept " + f[4]
		},
		ours: []string{"metric", "used"},
	},
	{tool: "tcprtt", command: "tcprtt", run: sessions(7), figures: sameTimes},
	{tool: "tcppktlat", command: "tcppktlat", flags: []string{"--events"}, figures: sameWaits},
}

// bccPeers are tools that only BCC has.
var bccPeers = []peer{
	{tool: "tcpcong", command: "tcpcong", args: []string{"-u"}, flags: []string{"--interval=1m"}, figures: sameStays},
	{tool: "netqtop", command: "netqtop", args: []string{"-n", queueDev, "-i", "5"}, tick: regexp.MustCompile("^-+$"),
		flags: []string{"--interval=1m", "--dev=" + queueDev}, first: openQueues, run: useQueues, figures: sameQueues},
}

// TestPeers runs libbpf-tools' programs beside ours over one workload. It needs
// a machine with tracefs and without other traffic: a guest.
func TestPeers(t *testing.T) { beside(t, peers, "-libbpf") } // Debian's names since version 13

// TestPeersBCC does the same with BCC's, which need the kernel's headers and compile for a
// minute.
func TestPeersBCC(t *testing.T) { beside(t, bccPeers, "-bpfcc") }

func beside(t *testing.T, peers []peer, ending string) {
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/bin:/usr/sbin")
	for _, p := range peers {
		t.Run(p.tool, func(t *testing.T) {
			if _, err := exec.LookPath(p.command); err != nil {
				p.command += ending
			}
			if _, err := exec.LookPath(p.command); err != nil {
				t.Fatal(err)
			}
			hosts := lab.TwoHosts
			if p.first != nil {
				hosts = []string{""}
			} else if p.run == nil {
				p.run, hosts = tools.Demos[p.tool].Run, tools.Demos[p.tool].Hosts
			}
			tl := tools.All[slices.IndexFunc(tools.All, func(t *tool.Tool) bool { return t.Name == p.tool })]
			within(t, patience+4*time.Minute, tl, trial.Case{Name: "peer", Hosts: hosts, Run: p.compare}, "")
		})
	}
}

func (p *peer) compare(x *trial.Trial) error {
	start := func() (*running, error) { return startPeer(nil, p.command, p.args...) }
	if p.first != nil {
		undo, err := p.first(x.World)
		if err != nil {
			return err
		}
		defer undo()
		start = func() (*running, error) { return startPeer(x.World, p.command, p.args...) }
	}
	their, err := start()
	if err != nil {
		return err
	}
	defer their.end()
	if p.figures != nil {
		rows, err := x.Rows(func() error {
			err := their.await(p.tick)
			return errors.Join(err, p.run(x.World), x.World.Closed(), their.await(p.tick), their.await(p.tick))
		}, p.flags...)
		if err != nil {
			return err
		}
		x.NoneLost(tool.LossOwner)
		p.figures(x, rows, their.end())
		return nil
	}
	if err := x.Attach(p.flags...); err != nil {
		return err
	}
	if err := p.run(x.World); err != nil {
		return err
	}
	x.Await(p.want)
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	var ours []string
	for _, r := range rows {
		if l := p.line(r); p.more == "" || !strings.HasPrefix(l, p.more) {
			ours = append(ours, l)
		}
	}
	var theirs []string
	for _, l := range their.end() {
		if line := p.theirs(strings.Fields(l)); line != "" {
			theirs = append(theirs, line)
		}
	}
	for form, why := range p.differs {
		isForm := func(l string) bool { return strings.HasSuffix(l, form) }
		if !slices.ContainsFunc(theirs, isForm) || !slices.ContainsFunc(ours, isForm) {
			x.Errorf("no line %q on both sides, where %s", form, why)
		}
		theirs, ours = slices.DeleteFunc(theirs, isForm), slices.DeleteFunc(ours, isForm)
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	if len(rows) != p.want || !slices.Equal(ours, theirs) {
		x.Errorf("%d rows, want %d; ours and theirs:\n%s\n--\n%s", len(rows), p.want, strings.Join(ours, "\n"), strings.Join(theirs, "\n"))
	}
	return nil
}

// line is a row in the form of the peer.
func (p *peer) line(r *row.Row) string {
	var b []string
	for _, id := range p.ours {
		if name, isKB := strings.CutSuffix(id, "_kb"); isKB {
			b = append(b, fmt.Sprintf("%.2f", float64(r.Get(name+"_bytes").N)/1024))
		} else {
			v := trial.Value(r.Get(id))
			if h, ok := r.Get(id).Ref.(*kern.Hist); ok {
				v = strconv.FormatUint(h.Count, 10)
			} else if v == "-" { // they print absent values as zero
				v = "0"
				if strings.HasSuffix(id, "addr") {
					v = "0.0.0.0"
				}
			}
			b = append(b, v)
		}
	}
	return strings.Join(b, " ")
}

// pick is some words of a line that has exactly n and is no heading.
func pick(f []string, n int, words ...int) string {
	if len(f) != n || !slices.ContainsFunc(f, func(w string) bool { _, err := strconv.Atoi(w); return err == nil }) {
		return ""
	}
	var b []string
	for _, w := range words {
		b = append(b, f[w])
	}
	return strings.Join(b, " ")
}

func sessions(n int) func(*lab.World) error {
	return func(w *lab.World) error { return lab.RunTCP(w, lab.Sessions{Count: n, Send: 3000, Recv: 5000}) }
}

func binds(w *lab.World) error {
	b, err := lab.StartBinds(w, "client", "binder",
		lab.Binding{Network: lab.TCP4, Addr: lab.TCP4.At(w.Addr4("client"), 7001)},
		lab.Binding{Network: lab.TCP4, Addr: lab.TCP4.At(w.Addr4("client"), 7002)},
		lab.Binding{Network: lab.TCP6, Addr: lab.TCP6.At(w.Addr6("client"), 7003)})
	if err != nil {
		return err
	}
	_, err = b.Run()
	return err
}

// running is a peer that has attached.
type running struct {
	cmd   *exec.Cmd
	lines chan string
	all   []string
	ended bool
}

var ready = regexp.MustCompile(`\b(PID|SKADDR|Tracing|Sampling|loadavg|QueueID)\b`)

// patience is for BCC, which compiles for a minute on an emulated machine, and
// much longer if the host is busy.
const patience = 15 * time.Minute

// startPeer returns when the peer has printed its heading, which it does when
// it has attached. It runs in the host of a world that has one, nil: here.
func startPeer(w *lab.World, command string, args ...string) (*running, error) {
	cmd := exec.Command("stdbuf", slices.Concat([]string{"-oL", command}, args)...)
	mounts := ""
	if w != nil { // sysfs shows the devices of the namespace that mounts it
		mounts = "mount -t sysfs none /sys; "
	}
	if _, err := os.Stat("/sys/kernel/tracing/events"); err != nil || w != nil { // for it alone
		mounts += "mount -t tracefs none /sys/kernel/tracing; "
		cmd = exec.Command("unshare", slices.Concat([]string{"-m", "sh", "-c", mounts + `exec stdbuf -oL "$0" "$@"`, command}, args)...)
	}
	cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1") // of Python the same
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	begin := cmd.Start
	if w != nil {
		begin = func() error { return w.Do("", cmd.Start) }
	}
	if err := begin(); err != nil {
		return nil, err
	}
	r := &running{cmd: cmd, lines: make(chan string, 1<<12)}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			r.lines <- s.Text()
		}
		close(r.lines)
	}()
	for late := time.After(patience); ; {
		select {
		case l, ok := <-r.lines:
			if !ok {
				r.end()
				return nil, fmt.Errorf("%s: %s", command, said.String())
			}
			if ready.MatchString(l) {
				return r, nil
			}
		case <-late:
			r.end()
			return nil, errors.New(command + " does not get ready")
		}
	}
}

// await reads what the peer prints up to a line of this form; nil: nothing.
func (r *running) await(form *regexp.Regexp) error {
	if form == nil {
		return nil
	}
	for l := range r.lines {
		r.all = append(r.all, l)
		if form.MatchString(l) {
			return nil
		}
	}
	return fmt.Errorf("%s has ended, and printed no %s", r.cmd, form)
}

// end stops the peer and returns its output. The peer reads its buffer every
// 100 ms, so end waits first.
func (r *running) end() []string {
	if r.ended {
		return r.all
	}
	r.ended = true
	time.Sleep(time.Second)
	r.cmd.Process.Signal(os.Interrupt)
	for l := range r.lines {
		r.all = append(r.all, l)
	}
	r.cmd.Wait()
	return r.all
}
