// SPDX-License-Identifier: Apache-2.0

// Command write runs a heavy test and writes its proof:
//
//	go run ./test/proof/write NAME COMMAND [ARG...]
//
// Figures are what the test gives to t.Attr, under go test -v, and the last line of
// make test.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"seine/internal/host"
	"seine/test/proof"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: write NAME COMMAND [ARG...]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

func run(name string, command []string) error {
	p, err := proof.Of(".", name, host.KernelVersion())
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			fmt.Println(lines.Text())
			p.Attr(lines.Text())
		}
		read <- lines.Err()
	}()
	c := exec.Command(command[0], command[1:]...)
	c.Stdout, c.Stderr = w, w
	err = c.Run()
	w.Close()
	err = errors.Join(err, <-read)
	p.OK = err == nil
	return errors.Join(err, p.Write("."))
}
