// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The test binary runs itself as the first process of a small container.
const container = "SEINE_SYM_CONTAINER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(container); dir != "" {
		fmt.Fprintln(os.Stderr, enter(dir, os.Args[1], os.Args[2:]))
		os.Exit(1)
	}
	code := m.Run()
	if builds.dir != "" {
		os.RemoveAll(builds.dir)
	}
	os.Exit(code)
}

// enter makes dir a file system that only this process sees, with nothing but a
// copy of file in it, and runs that.
func enter(dir, file string, args []string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("tmpfs: %w", err)
	}
	if err := errors.Join(
		os.Mkdir(dir+"/old", 0o755), os.Mkdir(dir+"/bin", 0o755), os.Mkdir(dir+"/tmp", 0o777),
		os.WriteFile(dir+"/bin/inside", data, 0o755),
	); err != nil {
		return err
	}
	if err := syscall.PivotRoot(dir, dir+"/old"); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := errors.Join(os.Chdir("/"), syscall.Unmount("/old", syscall.MNT_DETACH)); err != nil {
		return err
	}
	return syscall.Exec("/bin/inside", append([]string{"/bin/inside"}, args...), nil)
}

// builds has the test programs, each built once.
var builds struct {
	sync.Mutex
	dir  string
	made map[string]string
}

// built returns the path of a program, which make is to write if it is new.
func built(t testing.TB, name string, make_ func(out string) *exec.Cmd) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if path := builds.made[name]; path != "" {
		return path
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "seine-sym")
		if err != nil {
			t.Fatal(err)
		}
		builds.dir, builds.made = dir, make(map[string]string)
	}
	path := filepath.Join(builds.dir, name)
	cmd := make_(path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	builds.made[name] = path
	return path
}

// goBuild builds ./testdata/SRC with some flags.
func goBuild(t testing.TB, src string, cgo bool, flags ...string) string {
	t.Helper()
	name := strings.NewReplacer("/", "_", " ", "").Replace(src + strings.Join(flags, ""))
	return built(t, name, func(out string) *exec.Cmd {
		cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), "./testdata/"+src)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if cgo {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		}
		return cmd
	})
}

// cc builds testdata/c.cc with some flags, or skips the test.
func cc(t testing.TB, flags ...string) string {
	t.Helper()
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no C++ compiler")
	}
	return built(t, "c"+strings.Join(flags, ""), func(out string) *exec.Cmd {
		return exec.Command(gxx, append([]string{"-O1", "-o", out, "testdata/c.cc"}, flags...)...)
	})
}

// tool runs a program of binutils, or skips the test.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// A child is a running test program.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	pcs []uint64 // what it printed first
}

// start runs a test program and reads the addresses that it prints.
func start(t testing.TB, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{t: t, cmd: cmd}
	cmd.Stderr = os.Stderr
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	c.pcs = c.addresses(c.line())
	return c
}

func (c *child) pid() uint32 { return uint32(c.cmd.Process.Pid) }

func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("%v ended: %v", c.cmd, c.out.Err())
	}
	return c.out.Text()
}

// ask writes a line and returns the answer.
func (c *child) ask(line string) string {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
	return c.line()
}

func (c *child) addresses(line string) (pcs []uint64) {
	for f := range strings.FieldsSeq(line) {
		pc, err := strconv.ParseUint(strings.TrimPrefix(f, "0x"), 16, 64)
		if err != nil {
			break
		}
		pcs = append(pcs, pc)
	}
	return pcs
}

// end waits for the child to be gone, also from /proc.
func (c *child) end() {
	c.in.Close()
	c.cmd.Wait()
}

// expect checks the names of the addresses that a child printed.
func expect(t *testing.T, p *Processes, c *child, module string, want ...string) {
	t.Helper()
	if len(c.pcs) < len(want) {
		t.Fatalf("%d addresses, want %d", len(c.pcs), len(want))
	}
	for i, name := range want {
		f := p.Frame(c.pid(), c.pcs[i])
		if f.Sym != name || f.Module != module {
			t.Errorf("%#x is %q + %#x in %q, want %q in %q", c.pcs[i], f.Sym, f.Off, f.Module, name, module)
		}
	}
}
