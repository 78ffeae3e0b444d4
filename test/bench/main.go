// SPDX-License-Identifier: Apache-2.0

// Command bench measures the speed and size of ./seine. It compares them with
// goals, with the tools of libbpf-tools, bpftrace and BCC, and with an empty
// program.
//
//	bench [-seine ./seine] [-rounds 3] [-only PART] [-o FILE.md] [-vm VM]
//
// Every measurement is taken once a round, and each round covers all subjects in
// turn, so that other work of the machine affects all alike. Costs are the kernel's
// count of the programs' run time and the loads' CPU time. Only start-up and the
// rate of a load are wall-clock time. With -vm it then runs itself in a guest
// without other work, where the clock counts instructions.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/lab"
)

type options struct {
	seine    string
	rounds   int
	slow     int
	sessions int
	requests int
	only     string
	tools    string
	markdown string
	vm       string
	kernel   string
	json     bool
	steady   bool
	each     bool
}

func main() {
	lab.Main()
	if tool := os.Getenv(asPreparing); tool != "" {
		exit(prepare(tool))
	}
	var o options
	flag.StringVar(&o.seine, "seine", "./seine", "the `binary` to measure")
	flag.IntVar(&o.rounds, "rounds", 3, "how `often` each measure is taken")
	flag.IntVar(&o.slow, "slow", 1, "how often those of peers that take a minute to start")
	flag.IntVar(&o.sessions, "sessions", 0, "TCP sessions of a round (default 20000; 2000 where emulated)")
	flag.IntVar(&o.requests, "requests", 0, "requests of a round (default 50000; 2000 where emulated)")
	flag.StringVar(&o.only, "only", "", "one `part`: start, sessions, requests, flows, windows, tools, together, language, peers, sinks, recordings or gigabyte, which is heavy and runs only so")
	flag.StringVar(&o.tools, "tools", "", "of the parts tools and peers, only these `names`, with commas between")
	flag.StringVar(&o.markdown, "o", "", "also write the tables into a `file` of Markdown, in the place of those it has of the same machine")
	flag.StringVar(&o.vm, "vm", "", "the `program` of test/vm, to measure in a guest too")
	flag.StringVar(&o.kernel, "kernel", "6.12", "the guest's `kernel`")
	flag.BoolVar(&o.each, "each", false, "say what each program costs a session")
	flag.BoolVar(&o.json, "json", false, "write the figures as JSON (for the run in a guest)")
	flag.BoolVar(&o.steady, "steady", false, "say that the clock goes by instructions (for the run in a guest)")
	flag.Parse()
	exit(run(&o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A machine is the machine of a set of figures.
type machine struct {
	Title   string
	Stamp   string
	Figures []figure
}

func run(o *options) error {
	given := *o // before this machine's defaults
	m, err := o.measure()
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(m)
	}
	m.print(os.Stdout)
	machines := []*machine{m}
	if o.vm != "" {
		g, err := given.inGuest()
		if err != nil {
			return err
		}
		fmt.Println()
		g.print(os.Stdout)
		machines = append(machines, g)
	}
	if o.markdown == "" {
		return nil
	}
	doc, err := os.ReadFile(o.markdown)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, m := range machines {
		doc = m.record(doc, o.only == "" && o.tools == "")
	}
	return os.WriteFile(o.markdown, doc, 0o644)
}

// measure takes all figures on this machine.
func (o *options) measure() (*machine, error) {
	emulated := lab.Emulated()
	setDefault(&o.sessions, emulated, 20000, 2000)
	setDefault(&o.requests, emulated, 50000, 2000)
	if err := host.Memlock(); err != nil {
		return nil, err
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("counting what programs cost: %w", err)
	}
	defer stats.Close()
	dir, err := os.MkdirTemp("", "seine-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	inPages := filepath.Join(dir, "seine")
	if err := lab.CopyInPages(o.seine, inPages); err != nil {
		return nil, err
	}
	o.seine = inPages
	m := &machine{Title: title(emulated, o.steady), Stamp: o.stamp()}
	for _, p := range []struct {
		name string
		take func(*options) ([]figure, error)
	}{{"start", starts}, {"sessions", sessions}, {"requests", requests}, {"flows", flowCosts}, {"windows", windowCosts}, {"tools", everyTool}, {"together", together}, {"language", language}, {"peers", peers}, {"sinks", sinks}, {"recordings", recordings}, {"gigabyte", gigabyte}} {
		if o.only != "" && o.only != p.name {
			continue
		}
		fmt.Fprintln(os.Stderr, "bench: measuring", p.name)
		f, err := p.take(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		m.Figures = append(m.Figures, f...)
	}
	return m, nil
}

func setDefault(v *int, emulated bool, native, slow int) {
	switch {
	case *v != 0:
	case emulated:
		*v = slow
	default:
		*v = native
	}
}

func title(emulated, steady bool) string {
	var u unix.Utsname
	unix.Uname(&u)
	t := "Linux " + unix.ByteSliceToString(u.Release[:])
	if b, err := os.ReadFile("/proc/1/comm"); err == nil && strings.TrimSpace(string(b)) == "init" {
		t += ", in a guest"
	}
	if emulated {
		t += ", emulated"
	}
	if steady {
		t += ", a nanosecond for each instruction"
	}
	return t
}

// inGuest runs this program in a guest and reads its figures.
func (o *options) inGuest() (*machine, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"run", "-kernels", o.kernel, "-cpus", "1", "-steady", "-timeout", "4h", "-peers", "-tracefs", "-file", o.seine + ":/vm/seine",
		"--", self, "-json", "-steady", "-seine", "/vm/seine",
		"-rounds", fmt.Sprint(o.rounds), "-slow", fmt.Sprint(o.slow), "-sessions", fmt.Sprint(o.sessions), "-requests", fmt.Sprint(o.requests),
		"-only", o.only, "-tools", o.tools, fmt.Sprintf("-each=%v", o.each)}
	cmd := exec.Command(o.vm, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("in the guest: %w", err)
	}
	var m machine
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("in the guest: %w: %s", err, out)
	}
	return &m, nil
}

func (m *machine) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", m.Title)
	rows := [][]string{head}
	for _, f := range m.Figures {
		rows = append(rows, f.cells())
	}
	align(w, rows)
}
