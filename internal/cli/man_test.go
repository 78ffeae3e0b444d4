// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestMan: each kind of text and of flag, as man(7) wants it.
func TestMan(t *testing.T) {
	root := &cobra.Command{Use: "net", Short: "the net"}
	c := &cobra.Command{Use: "cast [FILE]", Short: "casts a net", Example: "  net cast -o 'a' ~\n.x", Run: func(*cobra.Command, []string) {}}
	c.Long = `It casts ` + "`tcp_v4-rcv`" + ` and waits,
as ` + "`a\nb`" + ` does.
.hidden starts a line. So does a back\slash.

- one
  and more
- two

| word | means |
|---|---|
| fish | it ` + "`swims`" + ` |
| a word that is much too long for one line | x |

    net cast --deep
'no request`
	c.Flags().StringP("out", "o", "table", "a `FORMAT`; -v says more")
	c.Flags().Bool("deep", false, "cast deep")
	c.Flags().Uint("rows", 0, "this many")
	c.Flags().String("level", "", "how `deep`")
	c.Flags().Lookup("level").NoOptDefVal = "1"
	c.Flags().Bool("secret", false, "not shown")
	c.Flags().MarkHidden("secret")
	root.PersistentFlags().Bool("wet", false, "get wet")
	root.AddCommand(c)
	var b strings.Builder
	if err := writeMan(&b, c, time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	want := `'\" t
.nh
.TH "NET-CAST" "8" "Nov 2026" "seine" "seine"
.SH NAME
net-cast \- casts a net
.SH SYNOPSIS
\fBnet cast [FILE] [flags]\fP
.SH DESCRIPTION
.PP
It casts \fBtcp_v4\-rcv\fP and waits,
as \fBa
b\fP does.
\&.hidden starts a line. So does a back\eslash.
.IP \(bu 2
one
and more
.IP \(bu 2
two
.TS
lbx lbx
lx lx.
T{
word
T}	T{
means
T}
T{
fish
T}	T{
it \fBswims\fP
T}
T{
a word that is much too long for one line
T}	T{
x
T}
.TE
.EX
    net cast \-\-deep
.EE
.PP
\&'no request
.SH OPTIONS
.TP
\fB\-\-deep\fP
cast deep
.TP
\fB\-h\fP, \fB\-\-help\fP
help for cast
.TP
\fB\-\-level\fP[=\fIdeep\fP]
how deep
.TP
\fB\-o\fP, \fB\-\-out\fP \fIFORMAT\fP
a FORMAT; \-v says more (default table)
.TP
\fB\-\-rows\fP \fIuint\fP
this many
.SH OPTIONS OF ALL COMMANDS
.TP
\fB\-\-wet\fP
get wet
.SH EXAMPLES
.EX
  net cast \-o \(aqa\(aq \(ti
\&.x
.EE
.SH SEE ALSO
\fBnet\fP(8)
`
	if b.String() != want {
		got, wants := strings.Split(b.String(), "\n"), strings.Split(want, "\n")
		for i := range min(len(got), len(wants)) {
			if got[i] != wants[i] {
				t.Fatalf("line %d is %q, want %q\n%s", i+1, got[i], wants[i], b.String())
			}
		}
		t.Fatalf("%d lines, want %d\n%s", len(got), len(wants), b.String())
	}
}

// TestManAll: each command has a page, of the date that the package is built for.
func TestManAll(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	dir := t.TempDir()
	if code := Main([]string{"seine", "man", dir + "/"}, os.Stdout, os.Stderr); code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	for _, name := range []string{"seine", "seine-tcplife", "seine-run", "seine-agent"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".8"))
		if err != nil {
			t.Fatal(err)
		}
		if want := `"8" "Sep 2001"`; !strings.Contains(string(page), want) {
			t.Errorf("%s has no %s", name, want)
		}
	}
	pages, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	seine, err := os.ReadFile(filepath.Join(dir, "seine.8"))
	if err != nil {
		t.Fatal(err)
	}
	if named := strings.Count(string(seine), `\fP(8)`); named != len(pages)-1 {
		t.Errorf("seine(8) names %d pages, and there are %d beside it", named, len(pages)-1)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "soon")
	if _, err := manDate(); err == nil {
		t.Error("soon is taken for a date")
	}
}
