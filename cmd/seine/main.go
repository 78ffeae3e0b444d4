// SPDX-License-Identifier: Apache-2.0

// Command seine shows what the Linux network stack is doing.
package main

import (
	"os"

	"seine/internal/cli"
	"seine/internal/lab"
)

func main() {
	lab.Main() // a child of a demo or a self-test does not return
	os.Exit(cli.Main(os.Args, os.Stdout, os.Stderr))
}
