// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"seine/test/pages"
)

// Some commands need something that a test does not have.
var unrunnable = regexp.MustCompile(`TOOL|COMMAND|NAME|…|script.bt|/opt/|--container|--selftest|completion|setcap|systemctl|tcpfoo`)

// somebody is a process or a network namespace in a page. The test replaces it
// by its own.
var somebody = regexp.MustCompile(`(-p|--pid|--netns)[ =](\d+|shop)\b`)

// Recordings in a page: commands write to a directory of their own and read a recording
// that was just made. It has nothing of the time of day in the page.
var (
	written = regexp.MustCompile(`--dir \S+`)
	read    = regexp.MustCompile(`(--from|--list) \S+`)
	file    = regexp.MustCompile(`-w \S+\.pcapng`)
	cut     = regexp.MustCompile(`--cut \S+ (.*) --since \S+ --until \S+`)
)

// recording makes one of what the pages show.
func recording(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "rec")
	cmd := exec.Command(seine, "record", "tcplife", "soconnect --where 'errno != nil'", "tcpretrans", "skbdrop", "--dir", dir, "-d", "1s")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// elsewhere replaces the recordings of a command by those of the test.
func elsewhere(t *testing.T, command, rec string) string {
	command = written.ReplaceAllString(command, "--dir "+filepath.Join(t.TempDir(), "rec"))
	command = file.ReplaceAllString(command, "-w "+filepath.Join(t.TempDir(), "a.pcapng"))
	command = read.ReplaceAllString(command, "$1 "+rec)
	return cut.ReplaceAllString(command, "--cut "+filepath.Join(t.TempDir(), "cut")+" $1 --since '1h ago'")
}

// TestDocs runs every command that the documents show, for a moment: each is one
// that this kernel runs. TestCommands of the tree reads their flags alone.
func TestDocs(t *testing.T) {
	all, err := pages.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(seine, filepath.Join(bin, "seine")); err != nil {
		t.Fatal(err)
	}
	rec := recording(t)
	seen := map[string]bool{}
	for _, page := range all {
		for _, s := range page.Commands() {
			c := somebody.ReplaceAllString(s.Text, fmt.Sprint("$1 ", os.Getpid()))
			if seen[c] || unrunnable.MatchString(c) {
				continue
			}
			seen[c] = true
			t.Run(c, func(t *testing.T) {
				t.Parallel()
				moment(t, bin, elsewhere(t, c, rec))
			})
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d commands found", len(seen))
	}
}

// moment runs a command until it is ready or ends by itself, and interrupts it.
// A command that this kernel cannot run is not an error of the page.
func moment(t *testing.T, bin, command string) {
	var out bytes.Buffer
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &out, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	limit := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer limit.Stop()
	var said bytes.Buffer
	buf := make([]byte, 4096)
	interrupted := false
	for {
		n, err := r.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			break
		}
		if !interrupted && bytes.Contains(said.Bytes(), []byte("seine: ready")) {
			interrupted = true
			cmd.Process.Signal(syscall.SIGINT)
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skip(strings.TrimSpace(said.String()))
	}
	if err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
}
