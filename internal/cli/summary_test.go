// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"seine/internal/probe"
)

// -v names a way that the verifier refused and its last word; -vv gives all.
func TestExplain(t *testing.T) {
	refused := &ebpf.VerifierError{Cause: errors.New("permission denied"), Log: []string{"0: R1=ctx()", "R2 !read_ok"}}
	choices := []probe.Choice{{
		Point: "state", Way: "raw", Programs: []string{"state__raw"}, Misses: "cookies",
		Refused: []probe.Refusal{{Way: "btf", Err: fmt.Errorf("state__btf: %w", refused)}},
	}}
	for _, logs := range []bool{false, true} {
		var b strings.Builder
		explain(&b, choices, 17*time.Millisecond, logs)
		for _, want := range []string{"point state: raw (state__raw); not seen: cookies\n", "not btf: the verifier refuses it (permission denied): R2 !read_ok\n", "attached in 17ms\n"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in %q", want, b.String())
			}
		}
		if got := strings.Contains(b.String(), "0: R1=ctx()"); got != logs {
			t.Errorf("the log is shown: %t, want %t: %q", got, logs, b.String())
		}
	}
}
