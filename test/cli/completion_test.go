// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// complete makes bash complete the last of the words, which are split as bash
// splits them: at spaces, = and :. The package bash-completion is not
// installed.
func complete(t *testing.T, words ...string) []string {
	t.Helper()
	script := `source <(seine completion bash) || exit 1
COMP_WORDS=(seine "$@")
COMP_CWORD=$#
_seine
printf '%s\n' "${COMPREPLY[@]}"`
	cmd := exec.Command("bash", append([]string{"--norc", "--noprofile", "-c", script, "bash"}, words...)...)
	cmd.Env = []string{"PATH=" + filepath.Dir(seine) + ":/usr/bin:/bin"}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || errs.Len() > 0 {
		t.Fatalf("%v: %v, stderr %q", words, err, errs.String())
	}
	return strings.Fields(string(out))
}

func TestBashCompletes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		words string // | between them
		want  string
	}{
		{"tcpl", "tcplife"},
		{"help|tcpst", "tcpstates"},
		{"help|compl", "completion"},
		{"demo|tcpst", "tcpstates"},
		{"doctor|tcplife|udpl", "udplife"},
		{"man|skbd", "skbdrop"},
		{"completion|", "bash fish zsh"},
		{"tcplife|--rp", "--rport"},
		{"tcplife|-o|", "table json csv dot parquet"},
		{"tcplife|--output|=|js", "json"},
		{"tcplife|--output|=", "table json csv dot parquet"},
		{"doctor|-o|", "table json"},
		{"skbdrop|--view|", "drops counters"},
		{"tcplife|--time|", "clock micro iso rel unix none"},
		{"tcplife|--columns|pid,comm,tx_", "pid,comm,tx_bytes"},
		{"tcplife|--columns|+ui", "+uid"},
		{"qdisclat|--columns|dev,p9", "dev,p90 dev,p99"},
		{"qdisclat|--sort|p9", "p90 p99"},
		{"tcplife|--by|rpo", "rport"},
		{"socketio|--by|comm,di", "comm,dir"},
		{"socketio|--by|byt", ""}, // not a key
		{"tcplife|--proto|", "tcp"},
		{"qdisclat|--dev|l", "lo"},
	} {
		if got, want := complete(t, strings.Split(c.words, "|")...), strings.Fields(c.want); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", c.words, got, want)
		}
	}
	if got := complete(t, "tcplife", "--comm", "nosuch,ba"); !slices.Contains(got, "nosuch,bash") {
		t.Errorf("--comm: got %v, want bash, which runs", got)
	}
}
