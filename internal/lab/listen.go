// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// ListenLow listens on loopback, in the network namespace of the calling thread, at a port below
// those that the kernel gives to clients, as servers do. As long as flows has not reported which
// side serves, the smaller port is taken for the server's. No client gets the port after it is
// closed.
func ListenLow() (l net.Listener, err error) {
	for range 100 {
		if l, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", 5000+rand.IntN(10000))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("100 ports are taken: %w", err)
}
