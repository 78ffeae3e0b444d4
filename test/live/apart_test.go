// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"seine/internal/host"
	"seine/internal/trial"
)

// TestApart: the process of a case has given up its privileges in all of its
// threads, as a run does.
func TestApart(t *testing.T) {
	c := trial.Case{Name: "apart", Run: func(x *trial.Trial) error {
		x.Apart = true
		if err := x.Attach(); err != nil {
			return err
		}
		threads, err := apartThreads("tcpretrans")
		if err != nil {
			return err
		}
		for _, th := range threads {
			status, err := os.ReadFile(th + "/status")
			if err != nil {
				continue // it has ended
			}
			for _, set := range []string{"CapPrm:", "CapEff:"} {
				if more := field(status, set) &^ mayKeep; more != 0 {
					x.Errorf("thread %s has capabilities %#x in %s", th, more, set)
				}
			}
			if field(status, "NoNewPrivs:") != 1 {
				x.Errorf("thread %s can get privileges back", th)
			}
		}
		_, err = x.Detach()
		return err
	}}
	if _, err := trial.RunCase(t.Context(), named(t, "tcpretrans"), c, ""); err != nil {
		t.Error(err)
	}
}

// mayKeep is the capabilities that a tool without stacks may keep: for names of
// cgroups, and for reading maps before Linux 6.0.
const mayKeep = 1<<host.CapDACReadSearch | 1<<host.CapBPF

// field is a hexadecimal number of a status file.
func field(status []byte, name string) (n uint64) {
	_, after, _ := strings.Cut(string(status), "\n"+name+"\t")
	fmt.Sscanf(after, "%x", &n)
	return n
}

// apartThreads are the threads of our child that was started under a name.
func apartThreads(name string) ([]string, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		status, _ := os.ReadFile(dir + "/status")
		line, _ := os.ReadFile(dir + "/cmdline")
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) && string(line) == name+"\x00" {
			return filepath.Glob(dir + "/task/*")
		}
	}
	return nil, fmt.Errorf("no child is called %s", name)
}
