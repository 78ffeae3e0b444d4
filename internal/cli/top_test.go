// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

// TestRuns: top prints a command only if seine takes it.
func TestRuns(t *testing.T) {
	for command, want := range map[string]bool{
		"seine flows --view services":                                          true,
		"seine flows --view connections --comm nginx --lport 443":              true,
		`seine flows --view connections --where 'rport == 5432'`:               true,
		`seine flows --view services --where 'conns > 3 && comm == "it'\''s"'`: true,
		`seine flows --view connections --where 'quiet_s > 3'`:                 false, // a column of top alone
		"seine tcplife --comm nginx --lport 443":                               true,
		"seine soconnect --comm shop --raddr 10.0.0.5 --rport 6379":            true,
		"seine dns --comm shop --raddr 10.0.0.2 --rport 53":                    true,
		"seine skbdrop --lport 31337":                                          true,
		"seine tcpretrans --comm shop --raddr 2001:db8::1 --rport 443":         true,
		"seine tcplife --no-such-flag":                                         false,
		"seine nosuchtool":                                                     false,
		"seine why":                                                            false, // not a tool: it needs no check
		"seine flows --view nosuch":                                            false,
	} {
		if got := runs(command); got != want {
			t.Errorf("%s: runs: %v, want %v", command, got, want)
		}
	}
}
