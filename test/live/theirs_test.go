// SPDX-License-Identifier: Apache-2.0

package live

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"seine/internal/lab"
	"seine/internal/trial"
	"seine/tools"
)

// suites are the endings that Debian gives to the names of others' tools.
var suites = map[string][]string{
	"libbpf-tools": {"-libbpf", ""},
	"BCC":          {"-bpfcc"},
}

// A show is the line that a tool must print for a workload to count as working.
type show struct {
	command string
	run     func(*lab.World) error
	line    string
}

const lines = `\b192\.0\.2\.[12]\b|\b2001:db8::` // the addresses of the hosts

var shows = []show{
	{"bindsnoop", binds, "binder"},
	{"gethostlatency", lookUp, "localhost"},
	{"hardirqs", readDisk, `[a-z].* \d+`},
	{"softirqs", sessions(23), `(?i)net_rx`},
	{"solisten", sessions(1), "lab-server"},
	{"sofdsnoop", sessions(1), "lab-server"},
	{"tcpaccept", sessions(7), lines},
	{"tcpconnect", sessions(7), lines},
	{"tcpconnlat", sessions(7), lines},
	{"tcpdrop", lossy, lines},
	{"tcplife", sessions(7), lines},
	{"tcppktlat", sessions(7), lines},
	{"tcprtt", sessions(7), `\|\*`},
	{"tcpstates", sessions(7), lines},
	{"tcpsynbl", sessions(7), "backlog_max"},
	{"tcptop", sessions(7), lines},
	{"tcptracer", sessions(7), lines},
}

// TestTheirs reports for each tool of the other projects whether it works here. A
// tool that does not work is skipped with its output, and is not a failure.
func TestTheirs(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/bin:/usr/sbin")
	t.Setenv("TERM", "xterm")
	for suite, endings := range suites {
		for _, s := range shows {
			i := slices.IndexFunc(endings, func(e string) bool { _, err := exec.LookPath(s.command + e); return err == nil })
			if i < 0 {
				continue
			}
			t.Run(suite+"/"+s.command, func(t *testing.T) {
				c := trial.Case{Name: "theirs", Hosts: lab.TwoHosts, Run: func(x *trial.Trial) error {
					return s.works(x, s.command+endings[i])
				}}
				one(t, tools.All[0], c, "")
			})
		}
	}
}

func (s *show) works(x *trial.Trial, command string) error {
	p, err := startPeer(nil, command)
	if err != nil {
		return trial.Skip("%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	defer p.end()
	if err := s.run(x.World); err != nil {
		return err
	}
	all := p.end()
	if !slices.ContainsFunc(all, regexp.MustCompile(s.line).MatchString) {
		return trial.Skip("it attaches, and shows nothing of the workload in %d lines", len(all))
	}
	return nil
}

// lookUp asks the C library for a name.
func lookUp(*lab.World) error { return exec.Command("getent", "hosts", "localhost").Run() }

// readDisk makes a disk interrupt.
func readDisk(*lab.World) error {
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0); err != nil {
		return err
	}
	return exec.Command("sh", "-c", "cat /usr/bin/[a-g]* > /dev/null").Run()
}

// lossy makes sessions while links lose packets in both directions. Their tools see
// only packets that belong to a socket, such as packets lost on their way out.
func lossy(w *lab.World) error {
	for _, host := range []string{"client", "server"} {
		if err := w.Lose(host, "eth0", 0.1); err != nil {
			return err
		}
	}
	return lab.RunTCP(w, lab.Sessions{Count: 47, Send: 3000, Recv: 5000, Parallel: 8})
}
