// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"time"
)

// ResolvedStub is where programs ask systemd-resolved.
const ResolvedStub = "127.0.0.53"

// StartResolved starts systemd-resolved in a host, with a name server to ask, and
// returns when it answers. It caches no answers. ErrNotSupported: this machine does
// not have it.
//
// It sends no queries if the host has only loopback, so the world must have two
// hosts.
func StartResolved(w *World, host, server string) (*Proc, error) {
	path, err := w.Program("systemd-resolved")
	if err != nil {
		return nil, err
	}
	// It makes its files in /run. Its user has the number of root.
	script := `mount -t tmpfs tmpfs /run && mkdir /run/systemd && echo '{"report":true}' && exec ` + path
	p, err := w.StartIn(host, "systemd-resolve", Mounts{
		Etc: map[string]string{
			"passwd": "root:x:0:0::/:/bin/sh\nsystemd-resolve:x:0:0::/:/bin/false\n",
			"group":  "root:x:0:\nsystemd-resolve:x:0:\n",
			"systemd/resolved.conf": "[Resolve]\nDNS=" + server + "\nLLMNR=no\nMulticastDNS=no\nDNSSEC=no\nDNSOverTLS=no\nCache=no\n" +
				"FallbackDNS=\nDNSStubListener=yes\n",
		},
		Program: []string{"/bin/sh", "-c", script},
	})
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(startup); time.Now().Before(end); {
		err = w.Do(host, func() error {
			_, err := forward(ResolvedStub+":53", DNSQuery(7, "localhost"))
			return err
		})
		if err == nil {
			return p, nil
		}
		time.Sleep(10 * time.Millisecond) // it is not there yet: refused
	}
	p.Kill()
	return nil, fmt.Errorf("lab: systemd-resolved does not answer: %w", err)
}
