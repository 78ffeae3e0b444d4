// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Hostapd makes a radio an access point of hostapd's, on a channel of 2.4 GHz, and
// returns when it is one. Not every machine has that program.
func (w *World) Hostapd(r *Radio, mhz uint32, ssid string) (stop func(), err error) {
	path, err := exec.LookPath("hostapd")
	if err != nil {
		return nil, fmt.Errorf("lab: %w: %w", ErrNotSupported, err)
	}
	config, err := os.CreateTemp("", "hostapd-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(config.Name()) // it has been read by then
	fmt.Fprintf(config, "interface=%s\ndriver=nl80211\nssid=%s\nhw_mode=g\nchannel=%d\nbeacon_int=%d\n", r.Dev, ssid, (mhz-2407)/5, beaconInterval)
	if err := config.Close(); err != nil {
		return nil, err
	}
	cmd := exec.Command(path, config.Name())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.Do(r.Host, cmd.Start); err != nil {
		return nil, err
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	late := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	said := ""
	for s := bufio.NewScanner(out); s.Scan(); {
		if strings.Contains(s.Text(), "AP-ENABLED") {
			return stop, nil
		}
		said += s.Text() + "; "
	}
	stop()
	return nil, fmt.Errorf("lab: hostapd on %s: %s", r.Dev, said)
}
