// SPDX-License-Identifier: Apache-2.0

// Command vm runs a static binary on Debian kernels under qemu's emulation.
//
//	go run ./test/vm fetch [-update] [KERNEL...]
//	go run ./test/vm run [flags] -- BINARY [ARG...]
//	go run ./test/vm rootfs [-peers] [-packages a,b]
//	go run ./test/vm libs
//	go run ./test/vm packages
//
// Everything that it downloads or builds is kept in the user's cache directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"seine/test/vm/kernel"
)

const usage = `usage:
  vm fetch [-update] [KERNEL...]     download kernels (%s; default all)
  vm run [flags] -- BINARY [ARG...]  run a static binary on kernels (vm run -h)
  vm rootfs [-peers] [-packages a,b] build the Debian root for vm run -root, or -peers
  vm libs                            download C libraries for arm64; prints their folder
  vm packages                        print the Debian packages that this needs
`

// Exit codes besides the command's own, as timeout(1) and others have them.
const (
	exitUsage    = 2
	exitTimeout  = 124 // the command had not ended in time
	exitNoStatus = 125 // the guest ended without an exit code of the command, or never started
	exitSignal   = 130 // interrupted here
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 2 {
		fmt.Fprintf(os.Stderr, usage, strings.Join(kernel.Names(""), " "))
		os.Exit(exitUsage)
	}
	code, fail, err := 0, 1, error(nil)
	switch args := os.Args[2:]; os.Args[1] {
	case "fetch":
		err = fetch(ctx, args)
	case "run":
		fail = exitNoStatus
		code, err = run(ctx, args)
	case "rootfs":
		err = rootfs(ctx, args)
	case "libs":
		err = libs(ctx)
	case "packages":
		fmt.Println(strings.Join(packages, "\n"))
	default:
		fmt.Fprintf(os.Stderr, usage, strings.Join(kernel.Names(""), " "))
		err = errUsage
	}
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		code = exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "vm: interrupted")
		code = exitSignal
	default:
		fmt.Fprintln(os.Stderr, "vm:", err)
		code = fail
	}
	os.Exit(code)
}

// errUsage means that the arguments were wrong and that this was printed.
var errUsage = errors.New("usage")

func fetch(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	update := flags.Bool("update", false, "fetch the newest even if there is one in the cache")
	if flags.Parse(args) != nil {
		return errUsage
	}
	names := flags.Args()
	if len(names) == 0 {
		names = kernel.Names("")
	}
	for _, name := range names {
		k, err := kernel.Fetch(ctx, name, *update, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "vm: %s: %s\n", name, k.Version)
	}
	return nil
}
