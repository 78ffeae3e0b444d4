// SPDX-License-Identifier: Apache-2.0

// Command cgo has C code before its Go code, and says where alpha is.
package main

// #include <stdio.h>
// int before(int x) { return printf("%d\n", x); }
import "C"

import (
	"fmt"
	"os"
	"runtime"
)

//go:noinline
func alpha() []uintptr {
	pcs := make([]uintptr, 3)
	return pcs[:runtime.Callers(1, pcs)]
}

//go:noinline
func beta() []uintptr { return alpha() }

func main() {
	if len(os.Args) > 1 {
		C.before(1)
	}
	for _, pc := range beta() {
		fmt.Printf("%x ", pc)
	}
	fmt.Println()
	os.Stdin.Read(make([]byte, 1))
}
