// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Dnsmasq is Debian's dnsmasq on a port of 127.0.0.1. It knows the given names,
// each with an address. Other names below their domains do not exist. It
// forwards names below Dead to a server that does not answer.
type Dnsmasq struct {
	Port  int
	Names map[string]netip.Addr
	Dead  string // a domain
	// DeadServer is where Dead is forwarded to: 127.0.0.9#5399.
	DeadServer string

	cmd *exec.Cmd
	log *bytes.Buffer
}

// startup is the time limit for the first answer of a server program.
const startup = 30 * time.Second

// probe is a name that StartDnsmasq asks for until there is an answer.
const probe = "x.ready.invalid"

// StartDnsmasq starts it in a host, and returns when it answers. ErrNotSupported:
// there is no dnsmasq on this machine. The caller calls Stop.
func StartDnsmasq(w *World, host string, d Dnsmasq) (*Dnsmasq, error) {
	path, err := exec.LookPath("dnsmasq")
	if err != nil {
		return nil, fmt.Errorf("lab: %w: %w", ErrNotSupported, err)
	}
	args := []string{
		"--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv", "--pid-file=", "--user=root",
		"--listen-address=127.0.0.1", "--bind-interfaces", fmt.Sprintf("--port=%d", d.Port),
		"--log-queries=extra", "--log-facility=-", "--local=/invalid/",
	}
	for name, addr := range d.Names {
		_, domain, _ := strings.Cut(name, ".")
		args = append(args, "--local=/"+domain+"/", fmt.Sprintf("--host-record=%s,%s", name, addr))
	}
	if d.Dead != "" {
		args = append(args, fmt.Sprintf("--server=/%s/%s", d.Dead, d.DeadServer))
	}
	d.cmd, d.log = exec.Command(path, args...), &bytes.Buffer{}
	d.cmd.Stderr = d.log
	if err := w.Do(host, d.cmd.Start); err != nil {
		return nil, fmt.Errorf("lab: dnsmasq: %w", err)
	}
	query := []byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01x\x05ready\x07invalid\x00\x00\x01\x00\x01")
	for end := time.Now().Add(startup); time.Now().Before(end); {
		err = w.Do(host, func() error {
			_, err := forward(fmt.Sprintf("127.0.0.1:%d", d.Port), query)
			return err
		})
		if err == nil {
			return &d, nil
		}
		time.Sleep(10 * time.Millisecond) // it is not there yet: refused
	}
	d.Stop()
	return nil, fmt.Errorf("lab: dnsmasq does not answer: %w", err)
}

// Stop ends it.
func (d *Dnsmasq) Stop() {
	if d.cmd.ProcessState == nil {
		d.cmd.Process.Kill()
		d.cmd.Wait()
	}
}

// A DNSAsked is a query as dnsmasq logs it.
type DNSAsked struct {
	Type, Name string
	Port       uint16 // of the client
	Answer     string // the first one: an address, NXDOMAIN, NODATA-IPv4; empty: none
}

// dnsmasq: 3 127.0.0.1/40111 query[A] www.example from 127.0.0.1
var (
	asked = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`: (\d+) [0-9a-f.:]+/(\d+) query\[(.+?)\] (\S+) from `)
	})
	answer = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`: (\d+) [0-9a-f.:]+/\d+ config \S+ is (\S+)`) })
)

// Log ends dnsmasq and returns the queries in order, with their answers.
func (d *Dnsmasq) Log() []DNSAsked {
	d.Stop()
	var out []DNSAsked
	at := map[string]int{} // by the query's number in the log
	for line := range strings.Lines(d.log.String()) {
		if m := asked().FindStringSubmatch(line); m != nil && m[4] != probe {
			a := DNSAsked{Type: m[3], Name: m[4]}
			fmt.Sscan(m[2], &a.Port)
			at[m[1]] = len(out)
			out = append(out, a)
		} else if m := answer().FindStringSubmatch(line); m != nil {
			if i, ok := at[m[1]]; ok && out[i].Answer == "" {
				out[i].Answer = m[2]
			}
		}
	}
	return out
}
