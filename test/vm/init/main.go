// SPDX-License-Identifier: Apache-2.0

// Command init is the first and, besides the command under test, the only
// process of a guest. It prepares the kernel, runs the command of its job and
// powers off. Errors before the command starts are printed on the console, and
// the runner sees that no exit code came.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"seine/test/vm/job"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this runs as process 1 of a guest: see go run ./test/vm")
		os.Exit(2)
	}
	if err := guest(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func guest() error {
	if err := mountAll(early); err != nil {
		return err
	}
	text, err := os.ReadFile(job.File)
	if err != nil {
		return err
	}
	var j job.Job
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("%s: %w", job.File, err)
	}
	ports, err := openPorts()
	if err != nil {
		return err
	}
	// The command has to judge a module that does not load, so the error goes to
	// the command's stderr.
	for _, name := range j.Modules {
		if err := loadModule(name); err != nil {
			fmt.Fprintln(ports[job.Stderr], "init:", err)
		}
	}
	if j.Root {
		if err := switchRoot(); err != nil {
			return err
		}
	}
	if err := mountAll(late); err != nil {
		return err
	}
	if j.Tracefs {
		if err := mountAll(tracing); err != nil {
			return err
		}
	}
	if err := prepare(); err != nil {
		return err
	}
	code, err := run(j, ports)
	if err != nil {
		return err
	}
	return ports[job.Marks].say(job.Exited(code))
}
