// SPDX-License-Identifier: Apache-2.0

// Command seine shows what the Linux network stack is doing.
package main

import (
	"os"

	"seine/internal/cli"
	"seine/internal/lab"
)

func main() {
	// Neither returns in a child process of a demo or a self-test.
	lab.Main()
	cli.TrialMain()
	os.Exit(cli.Main(os.Args, os.Stdout, os.Stderr))
}
