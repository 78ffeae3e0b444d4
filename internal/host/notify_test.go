// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestNotify: systemd hears the state by a socket in the file system and by an abstract one.
func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil {
		t.Errorf("without systemd: %v", err)
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@seine-notify-%d", os.Getpid())} {
		t.Setenv("NOTIFY_SOCKET", name)
		if err := Notify("READY=1"); err == nil {
			t.Errorf("%s: nobody listens, and there is no error", name)
		}
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := Notify("READY=1"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		l.SetReadDeadline(time.Now().Add(10 * time.Second))
		b := make([]byte, 100)
		if n, err := l.Read(b); err != nil || string(b[:n]) != "READY=1" {
			t.Errorf("%s: heard %q, %v", name, b[:n], err)
		}
	}
}
