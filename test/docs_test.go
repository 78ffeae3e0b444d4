// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"seine/internal/cli"
	"seine/internal/words"
	"seine/test/pages"
)

func documents(t *testing.T) []*pages.Page {
	t.Helper()
	all, err := pages.All("..")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Fatalf("only %d documents found", len(all))
	}
	return all
}

// TestLinks: every link of every document leads to a file or heading of this tree.
func TestLinks(t *testing.T) {
	all := documents(t)
	anchors := map[string]map[string]bool{}
	for _, p := range all {
		anchors[p.Path] = p.Anchors()
	}
	n := 0
	for _, p := range all {
		for _, l := range p.Links() {
			n++
			if err := follow(p.Path, l.Text, anchors); err != nil {
				t.Errorf("%s:%d: %v", p.Path, l.Line, err)
			}
		}
		if p.Path == "CHANGELOG.md" {
			continue // it names files that existed before
		}
		for _, l := range p.Torn() {
			t.Errorf("%s:%d: code between backticks ends on another line: its commands would not be checked", p.Path, l.Line)
		}
		for _, s := range p.Inline() {
			if _, err := os.Stat(filepath.Join("..", s.Text)); err != nil && file.MatchString(s.Text) && !placeholder.MatchString(s.Text) {
				t.Errorf("%s:%d: there is no %s", p.Path, s.Line, s.Text)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d links found", n)
	}
}

// file is code that names a file of the tree.
var file = regexp.MustCompile(`^(bpf|cmd|deploy|docs|internal|release|test|tools)/[\w./-]+\.\w+$`)

// follow checks that a link of a page leads to a file or heading. Links to the
// web are not checked.
func follow(page, link string, anchors map[string]map[string]bool) error {
	u, err := url.Parse(link)
	if err != nil {
		return err
	}
	if u.Scheme != "" {
		return nil
	}
	path := page
	if u.Path != "" {
		path = filepath.Join(filepath.Dir(page), u.Path)
	}
	if _, err := os.Stat(filepath.Join("..", path)); err != nil {
		return fmt.Errorf("%s: there is no %s", link, path)
	}
	if u.Fragment != "" && !anchors[path][u.Fragment] {
		return fmt.Errorf("%s: %s has no heading #%s", link, path, u.Fragment)
	}
	return nil
}

func TestFollow(t *testing.T) {
	p := pages.Parse("docs/X.md", "# A title, with `code`\n\n[a](WHY.md) ![b](pictures/none.svg)\n\n```\n# no title\n[c](in-code.md)\n```\n[d](#no-title) [e](#a-title-with-code) [f](https://example.com/g)\n")
	anchors := map[string]map[string]bool{p.Path: p.Anchors()}
	var wrong []string
	for _, l := range p.Links() {
		if l.Text == "#a-title-with-code" || l.Text == "#no-title" {
			l.Text = "../docs/WHY.md" + l.Text // X.md is not there
			anchors["docs/WHY.md"] = p.Anchors()
		}
		if err := follow(p.Path, l.Text, anchors); err != nil {
			wrong = append(wrong, fmt.Sprint(l.Line, " ", l.Text))
		}
	}
	if got, want := strings.Join(wrong, ", "), "3 pictures/none.svg, 9 ../docs/WHY.md#no-title"; got != want {
		t.Errorf("broken links: %s, want %s", got, want)
	}
}

// elsewhere are the tools for networks of others. BCC's, libbpf-tools' and bpftrace's are those of Debian 12's
// packages bpfcc-tools and libbpf-tools 0.26 and bpftrace 0.17, and those that came later. Inspektor Gadget's are
// those of its documentation.
var elsewhere = map[string]string{
	"BCC": "bindsnoop gethostlatency hardirqs mptcpify netqtop nfsdist nfsslower rdmaucma sofdsnoop softirqs solisten sslsniff tcpaccept tcpcong virtiostat " +
		"tcpconnect tcpconnlat tcpdrop tcplife tcpretrans tcprtt tcpstates tcpsubnet tcpsynbl tcptop tcptracer undump argdist funccount profile stackcount trace",
	"libbpf-tools": "bindsnoop gethostlatency hardirqs softirqs solisten tcpconnect tcpconnlat tcplife tcppktlat tcprtt tcpstates tcpsynbl tcptop tcptracer profile",
	"bpftrace":     "gethostlatency.bt ssllatency.bt sslsnoop.bt tcpaccept.bt tcpconnect.bt tcpdrop.bt tcplife.bt tcpretrans.bt tcpsynbl.bt undump.bt",
	"Inspektor Gadget": "advise_networkpolicy chaos_packet_drop fdpass profile_qdisc_latency profile_tcprtt snapshot_socket tcpdump top_tcp trace_bind trace_dns trace_sni " +
		"trace_ssl trace_tcp trace_tcpconnect trace_tcpdrop trace_tcpretrans",
	"the system": "ss netstat tcpdump lsof ping nstat ethtool",
}

// TestComingFrom: docs/COMING-FROM.md has a row for each tool of others.
func TestComingFrom(t *testing.T) {
	b, err := os.ReadFile("../docs/COMING-FROM.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		first, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if !ok || !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, w := range strings.FieldsFunc(first, func(r rune) bool { return strings.ContainsRune(" ,()`", r) }) {
			there[w] = true
		}
	}
	for whose, names := range elsewhere {
		for _, n := range strings.Fields(names) {
			if !there[n] {
				t.Errorf("there is no row for %s of %s", n, whose)
			}
		}
	}
}

// TestCommands: seine takes every command that a document shows, in a block or in a
// sentence. Nothing is attached: a thread without capabilities gets as far as exit
// code 4, which comes after all flags, expressions and columns have been read.
func TestCommands(t *testing.T) {
	all := documents(t)
	unprivileged(t, func() {
		seen := map[string]bool{}
		for _, p := range all {
			if p.Path == "CHANGELOG.md" {
				continue // it names flags that existed before
			}
			check := func(s pages.Span, whole bool) {
				if seen[s.Text] || placeholder.MatchString(s.Text) {
					return
				}
				seen[s.Text] = true
				if err := taken(t, s.Text); err != nil && (whole || !unfinished.MatchString(err.Error())) {
					t.Errorf("%s:%d: %s: %v", p.Path, s.Line, s.Text, err)
				}
			}
			for _, s := range p.Commands() {
				check(s, true)
			}
			for _, s := range sentences(p) {
				check(s, false)
			}
		}
		if len(seen) < 200 {
			t.Errorf("only %d commands found", len(seen))
		}
	})
}

// TestBuildCommands: the commands that build and test this tree name targets of the Makefile and folders that exist.
func TestBuildCommands(t *testing.T) {
	b, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(string(b), -1) {
		targets[m[1]] = true
	}
	n := 0
	for _, p := range documents(t) {
		if p.Path == "CHANGELOG.md" {
			continue // it names targets that existed before
		}
		for _, s := range slices.Concat(p.Code(), p.Inline()) {
			wrong, ok := missing(s.Text, targets)
			if ok {
				n++
			}
			for _, w := range wrong {
				t.Errorf("%s:%d: %s: there is no %s", p.Path, s.Line, s.Text, w)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d commands found", n)
	}
}

var (
	target = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	built  = regexp.MustCompile(`^\s*(?:[#$] )?(?:CGO_ENABLED=0 )?(make|go|\./[a-z]\S*)(?: (.*))?$`)
	folder = regexp.MustCompile(`(?:^| )\./([a-z][\w/]*)`)
)

// missing is the targets and folders of a command that do not exist, and whether the text is such a command.
func missing(text string, targets map[string]bool) (wrong []string, ok bool) {
	m := built.FindStringSubmatch(text)
	if m == nil || m[1] == "./seine" {
		return nil, false
	}
	rest, _, _ := strings.Cut(m[2], " #")
	if m[1] == "make" {
		line, _, _ := strings.Cut(rest, "&&")
		for _, w := range strings.Fields(line) {
			if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") && !targets[w] {
				wrong = append(wrong, "target "+w)
			}
		}
	}
	for _, f := range folder.FindAllStringSubmatch(m[1]+" "+rest, -1) {
		if _, err := os.Stat(filepath.Join("..", f[1])); err != nil && f[1] != "seine" {
			wrong = append(wrong, f[1])
		}
	}
	return wrong, true
}

func TestMissing(t *testing.T) {
	targets := map[string]bool{"test": true, "build": true}
	for text, want := range map[string]string{
		"make test only=native,6.12":                    "[] true",
		"    make build && ./seine demo x # three rows": "[] true",
		"make tets": "[target tets] true",
		"    CGO_ENABLED=0 go test -v ./test/live  # live": "[] true",
		"go run ./internal/generate x":                     "[internal/generate] true",
		"./test/bunch/run -only peers":                     "[test/bunch/run] true",
		"make":                                             "[] true",
		"a make test":                                      "[] false",
		"./seine why":                                      "[] false",
	} {
		wrong, ok := missing(text, targets)
		if got := fmt.Sprint(wrong, ok); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// widest is how many characters a line of text may have. Tables and code are not wrapped.
const widest = 160

// TestWrapped: the text of documents is wrapped.
func TestWrapped(t *testing.T) {
	for _, p := range documents(t) {
		for _, s := range p.Text() {
			if n := utf8.RuneCountInString(s.Text); n > widest && !strings.HasPrefix(s.Text, "|") {
				t.Errorf("%s:%d: %d characters, want %d at most", p.Path, s.Line, n, widest)
			}
		}
	}
}

// unfinished is seine's error for a command that needs more words. A sentence may
// leave them out: "seine record", "tcplife --from".
var unfinished = regexp.MustCompile(`: (record|run) needs |flag needs an argument`)

// foreign are programs other than seine whose flags documents show.
var foreign = strings.Fields("cc ethtool ip kill ln lsof netstat ping ss taskset tc tcpdump ulimit uname")

// program is a word that may be the name of a tool or of another program.
var program = regexp.MustCompile(`^[a-z][a-z0-9]+$`)

// sentences is the commands between backticks: those that begin with seine, and words
// with a flag, unless the word is a foreign program.
func sentences(p *pages.Page) (out []pages.Span) {
	for _, s := range p.Inline() {
		first, rest, _ := strings.Cut(s.Text, " ")
		if program.MatchString(first) && first != "seine" && strings.HasPrefix(rest, "-") && !slices.Contains(foreign, first) {
			s.Text = "seine " + s.Text
		}
		if strings.HasPrefix(s.Text, "seine ") {
			out = append(out, s)
		}
	}
	return out
}

// TestSentences: the commands that are found in a page's text. They include a wrong
// name of a tool, with or without seine before it.
func TestSentences(t *testing.T) {
	p := pages.Parse("x.md", "a `seine why` b `tcplife -4` c `tcplive --by comm` d `ss -tin` e `flows` f `--by comm`\n\n    seine in code\n")
	var got []string
	for _, s := range sentences(p) {
		got = append(got, s.Text)
	}
	if want := "seine why|seine tcplife -4|seine tcplive --by comm"; strings.Join(got, "|") != want {
		t.Errorf("%q, want %q", got, want)
	}
	torn := pages.Parse("x.md", "a `b` c `d\ne` f\n\n    code `\n").Torn()
	if len(torn) != 2 || torn[0].Line != 1 || torn[1].Line != 2 {
		t.Errorf("torn %v, want lines 1 and 2", torn)
	}
}

// placeholder is a word or a file that stands for others.
var placeholder = regexp.MustCompile(`\b(TOOL|COMMAND|NAME|FILE|DIR|TARGET|PID|ADDR|N|T|tcpfoo|script\.bt)\b|/opt/|…|\[`)

// Commands may name recordings, containers, processes and files that are not here.
var (
	past      = regexp.MustCompile(` --(from|since|until) ('[^']*'|\S+)| --follow\b`)
	container = regexp.MustCompile(` --(container|cgroup|netns)[ =]\S+`)
	process   = regexp.MustCompile(`( -p|--pid)[ =]\d+\b`)
)

// notRecording is the uses of record that read recordings, which do not exist
// here.
var notRecording = regexp.MustCompile(` --(list|cut)\b`)

// flags looks up a command that needs no privileges, with its flags and tools, and
// does not run it.
func flags(line []string) error {
	root := cli.New(io.Discard, io.Discard)
	cmd, rest, err := root.Find(line)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err != nil {
		return err
	}
	for _, name := range cmd.Flags().Args() {
		if _, _, err := root.Find([]string{name}); err != nil {
			return err
		}
	}
	return nil
}

// taken runs a command without privileges and returns its error.
func taken(t *testing.T, command string) error {
	command = past.ReplaceAllString(command, "")
	command = container.ReplaceAllString(command, "")
	command = process.ReplaceAllString(command, "$1 1")
	line, err := words.Fields(command)
	if err != nil {
		return err
	}
	if line[1] == "doctor" || line[1] == "record" && notRecording.MatchString(command) {
		return flags(line[1:])
	}
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		return err
	}
	defer out.Close()
	code := cli.Main(line, out, out)
	if said, _ := os.ReadFile(out.Name()); code != 4 && code != 0 {
		return fmt.Errorf("exit code %d: %s", code, said)
	}
	return nil
}

// unprivileged runs f in a thread that has no capabilities. The thread ends with it.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&head, &none[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
