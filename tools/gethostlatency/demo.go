// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"fmt"
	"os/exec"
	"time"

	"seine/internal/lab"
	"seine/internal/trial"
)

// Demo is lookups by getent(1).
var Demo = trial.Workload{
	Run: func(w *lab.World) error {
		if _, err := lab.StartDNS(w, "", "nameserver", lab.DNS{Delay: 20 * time.Millisecond}); err != nil {
			return err
		}
		path, err := exec.LookPath("getent")
		if err != nil {
			return fmt.Errorf("the demo looks up names by getent: %w", err)
		}
		for _, name := range []string{"www.example", "nx.example", "localhost"} {
			if err := getent(w, path, name); err != nil {
				return err
			}
		}
		return nil
	},
}

// Selftest is the cases of doctor --selftest.
var Selftest = []trial.Case{
	{Name: "getent", Run: lookups},
}

const late = 50 * time.Millisecond

const resolv = "nameserver 127.0.0.1\n"

var etc = map[string]string{"resolv.conf": resolv, "nsswitch.conf": "hosts: files dns\n", "hosts": "127.0.0.1 localhost\n"}

// getent looks a name up by the program of that name.
func getent(w *lab.World, path, name string) error {
	script := `echo '{"report":true}'; ` + path + " ahosts " + name + ` >&2; echo '{"end":{}}'`
	p, err := w.StartIn("", "getent", lab.Mounts{Etc: etc, Program: []string{"/bin/sh", "-c", script}})
	if err != nil {
		return err
	}
	return p.Wait()
}

// lookups: names that the machine's own program looks up, one that is there and
// one that is not, from a server that answers late.
func lookups(x *trial.Trial) error {
	path, err := exec.LookPath("getent")
	if err != nil {
		return trial.Skip("it looks up names by getent: %v", err)
	}
	if _, err := lab.StartDNS(x.World, "", "nameserver", lab.DNS{Delay: late}); err != nil {
		return err
	}
	if err := x.Attach(); err != nil {
		return err
	}
	names := []string{"www.example", "nx.example"}
	var took []time.Duration
	for _, name := range names {
		begin := time.Now()
		if err := getent(x.World, path, name); err != nil {
			return err
		}
		took = append(took, time.Since(begin))
	}
	x.Await(len(names))
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	x.Fail(trial.RowCount(len(rows), len(names)))
	for i, r := range rows[:min(len(rows), len(names))] {
		x.Want(r, "comm", "getent")
		x.Want(r, "call", "getaddrinfo")
		x.Want(r, "host", names[i])
		x.Want(r, "result", []string{"success", "EAI_NONAME"}[i])
		if latency := time.Duration(r.Get("latency_us").N); latency < late || latency > took[i] {
			x.Errorf("the lookup of %s took %v; the server waits %v, and the program ran for %v", names[i], latency, late, took[i])
		}
	}
	x.NoneLost()
	return nil
}
