// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile are process names that an attacker may choose.
var hostile = []string{
	"new\nline",
	"tab\tret\rbell\a",
	`quote"s'and\`,
	"\x1b[2J\x1b[31m",
	"\xff\xfe\x80bad",
	"rtl\u202eevil",
	`<b>&"];x->y`,
	"a,b;c|d",
	"=cmd|'/c'!A1",
	"%s%n%x{}",
	"\u009b31m", // the one-byte form of ESC [
	" ",
}

// Names that processes gave themselves do no harm in any format, and none is
// lost.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	w, only := twoHosts(t)
	for _, format := range []string{"table", "json", "csv", "dot"} {
		t.Run(format, func(t *testing.T) {
			args := append([]string{"tcplife", "-o", format, "--where", fmt.Sprintf("rport == %d", echoPort)}, only...)
			server := serve(t, w, peer{Addr: w.Addr4("server"), Port: echoPort})
			p := start(t, nil, args...)
			for _, name := range hostile {
				c := client(t, w, peer{Addr: w.Addr4("server"), Port: echoPort, Name: []byte(name), Count: 1})
				talk(t, c)
				c.Kill()
			}
			p.signal(2)
			p.wantEnd(0)
			server.Kill()
			checkHostile(t, format, p.out.String())
		})
	}
}

func checkHostile(t *testing.T, format, out string) {
	t.Helper()
	if !utf8.ValidString(out) {
		t.Errorf("not UTF-8: %q", out)
	}
	switch format {
	case "table":
		if n := strings.Count(out, "\n"); n != len(hostile)+1 {
			t.Errorf("%d lines, want %d: %q", n, len(hostile)+1, out)
		}
		if i := strings.IndexFunc(out, func(r rune) bool { return isControl(r) || r == '\u202e' }); i >= 0 {
			t.Errorf("a control code at byte %d of %q", i, out)
		}
	case "json":
		rows, err := parseRows(out, "tcplife")
		if err != nil || len(rows) != len(hostile) {
			t.Fatalf("%d rows, %v, want %d: %q", len(rows), err, len(hostile), out)
		}
		for i, name := range hostile {
			if want := strings.ToValidUTF8(name, "\ufffd"); utf8.ValidString(name) && rows[i]["comm"] != want {
				t.Errorf("comm is %q, want %q", rows[i]["comm"], want)
			}
		}
	case "csv":
		all, err := csv.NewReader(strings.NewReader(out)).ReadAll()
		if err != nil || len(all) != len(hostile)+1 {
			t.Fatalf("%d records, %v, want %d: %q", len(all), err, len(hostile)+1, out)
		}
		for i := range hostile {
			if len(all[i+1]) != len(all[0]) {
				t.Errorf("%d fields, want %d: %q", len(all[i+1]), len(all[0]), all[i+1])
			}
		}
	case "dot":
		if _, err := exec.LookPath("dot"); err != nil {
			t.Skip("graphviz is not installed")
		}
		dot := exec.Command("dot", "-Tplain")
		dot.Stdin = strings.NewReader(out)
		var errs strings.Builder
		dot.Stderr = &errs
		plain, err := dot.Output()
		if err != nil || errs.Len() > 0 {
			t.Fatalf("graphviz: %v, %q in %q", err, errs.String(), out)
		}
		// One node for each name and one for the server; one edge for each name.
		if n, want := strings.Count("\n"+string(plain), "\nnode "), len(hostile)+1; n != want {
			t.Errorf("%d nodes, want %d: %s", n, want, out)
		}
		if n := strings.Count("\n"+string(plain), "\nedge "); n != len(hostile) {
			t.Errorf("%d edges, want %d: %s", n, len(hostile), out)
		}
	}
}
