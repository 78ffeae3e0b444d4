// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"os"
)

// Notify tells systemd the state of this process, such as "READY=1": see sd_notify(3). It does
// nothing if systemd does not wait for that.
func Notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET") // a leading @ is that of an abstract socket, here as in Go
	if name == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("telling systemd: %w", err)
	}
	return nil
}
