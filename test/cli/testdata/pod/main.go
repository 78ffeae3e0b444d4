// SPDX-License-Identifier: Apache-2.0

// Command pod is the program in the images of the pod test: "pod pause" waits; "pod serve
// N" makes N requests to itself at port 18080, and waits.
package main

import (
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) > 2 {
		n, err := strconv.Atoi(os.Args[2])
		check(err)
		l, err := net.Listen("tcp", "127.0.0.1:18080")
		check(err)
		for range n {
			c, err := net.Dial("tcp", l.Addr().String())
			check(err)
			s, err := l.Accept()
			check(err)
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, s)
			s.Close()
			io.Copy(io.Discard, c)
			c.Close()
		}
	}
	time.Sleep(24 * time.Hour)
}

func check(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
