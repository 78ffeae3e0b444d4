// SPDX-License-Identifier: Apache-2.0

// Command child says where its functions are, and waits until its input ends.
// For each line of input it does one thing and answers with one line:
//
//	exec PATH [ARG…]  replaces itself, which prints its functions again
//	jit               maps executable memory; answers with its address
//	write PATH TEXT   appends a line to a file
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// alpha returns the addresses in alpha, in beta and in main.
//
//go:noinline
func alpha() []uintptr {
	pcs := make([]uintptr, 3)
	return pcs[:runtime.Callers(1, pcs)]
}

//go:noinline
func beta() []uintptr { return alpha() }

func main() {
	for _, pc := range beta() {
		fmt.Printf("%x ", pc)
	}
	fmt.Println(strings.Join(os.Args[1:], " "))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		args := strings.SplitN(in.Text(), " ", 3)
		switch args[0] {
		case "exec":
			fmt.Println(syscall.Exec(args[1], args[1:], os.Environ()))
		case "jit":
			b, err := syscall.Mmap(-1, 0, 1<<16, syscall.PROT_READ|syscall.PROT_EXEC, syscall.MAP_PRIVATE|syscall.MAP_ANON)
			if err != nil {
				fmt.Println(err)
				continue
			}
			fmt.Printf("%x\n", uintptr(unsafe.Pointer(&b[0])))
		case "write":
			f, err := os.OpenFile(args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err == nil {
				_, err = f.WriteString(args[2] + "\n")
				f.Close()
			}
			fmt.Println(err)
		}
	}
}
