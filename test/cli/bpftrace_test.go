// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// besides runs a script by the command and returns its output. bpftrace looks
// for tracefs in its usual place and mounts nothing.
func besides(t *testing.T, script string, command ...string) *exec.Cmd {
	t.Helper()
	const mounted = `mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"`
	cmd := exec.Command("sh", append([]string{"-c", mounted, "sh"}, append(command, "-e", script)...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Stdout, cmd.Stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return cmd
}

// words is the output of a script without empty lines, which differ between
// releases of bpftrace.
func words(cmd *exec.Cmd) string {
	var b strings.Builder
	for line := range strings.Lines(cmd.Stdout.(*bytes.Buffer).String()) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "Attaching ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func needBpftrace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("bpftrace"); err != nil {
		t.Skip("bpftrace is not installed")
	}
}

// TestSameText: seine run and Debian's bpftrace print the same text.
func TestSameText(t *testing.T) {
	needBpftrace(t)
	for _, body := range []string{
		`@a = count(); @b[1] = count(); @b[1] = count(); @c[1, "x"] = 7; @c[2, "y"] = 3; @d = -5; @e = "text"`,
		`printf("%d %5d|%-5d|%05d %x %X %o %c %u %lld %s|%8s|%-8s|%p\n", -1, 42, 42, 42, 255, 255, 8, 65, 7, -9, "ab", "ab", "ab", 4096)`,
		`@ = hist(-3); @ = hist(0); @ = hist(1); @ = hist(2); @ = hist(3); @ = hist(1024); @ = hist(100000); @h[1] = hist(5); @h[2] = hist(7); @h[2] = hist(8)`,
		`@ = lhist(-1, 0, 30, 10); @ = lhist(5, 0, 30, 10); @ = lhist(29, 0, 30, 10); @ = lhist(30, 0, 30, 10); @l["x"] = lhist(5, 0, 100, 10); @l["y"] = lhist(15, 0, 100, 10)`,
		`@k = lhist(1500, 0, 4096, 1024); @k = lhist(3000, 0, 4096, 1024); @m = lhist(1500000, 0, 4000000, 1000000)`,
		`@s = sum(5); @s = sum(7); @m = min(3); @m = min(2); @x = max(3); @x = max(9); @a = avg(4); @a = avg(8); @st = stats(3); @st = stats(4); @kst[1] = stats(3); @kst[2] = stats(40)`,
		`$t = (1, "two", (3, 4)); print($t); @t = $t; @[1] = (5, "x"); print("text"); print(5)`,
		`@a[1] = 10; @a[2] = 30; @a[3] = 20; print(@a, 2); print(@a); @b[1] = 1000; @b[2] = 3000; print(@b, 1, 100)`,
		`@a[1] = 10; zero(@a); @c[1] = sum(4); zero(@c); @d[1] = 5; @d[2] = 6; delete(@d[1])`,
		`printf("%s %s\n", ntop(0x0100007f), ntop(2, 16777343)); @[ntop(0x0100007f)] = count(); @p[probe] = count()`,
		`$i = 0; while ($i < 5) { $i++; @[$i] = $i * $i; } unroll(3) { printf("x"); } printf("\n")`,
		`@x++; ++@x; $z = 1; $z += 4; $z <<= 2; printf("%d %d %d %d %d\n", $z, 1 ? 2 : 3, !5, ~0, sizeof(uint32)); if ("a" == "a") { printf("eq\n"); } else { printf("ne\n"); } $y = 1`,
		`@start[tid] = 1; printf("%d\n", @start[tid]); delete(@start[tid]); printf("%d\n", @start[tid]); time("%Y\n"); cat("/proc/sys/kernel/ostype")`,
		`printf("%10.3s|%-10s|%c%c %16llx %lu\n", "abcdef", "xyz", 72, 105, 255, 5); @[1, 2, 3] = count(); @k["a b", -1] = sum(-5); @big = (uint64)18446744073709551615`,
	} {
		script := "BEGIN { " + body + "; exit(); } END { printf(\"end\\n\"); }"
		own, other := besides(t, script, seine, "run"), besides(t, script, "bpftrace")
		for _, cmd := range []*exec.Cmd{own, other} {
			if err := cmd.Run(); err != nil {
				t.Errorf("%s\n%v: %v\n%s", script, cmd.Args, err, cmd.Stderr)
			}
		}
		if got, want := words(own), words(other); got != want || want == "" {
			t.Errorf("%s\nseine run:\n%s\nbpftrace:\n%s", script, got, want)
		}
	}
}

// TestSameFigures runs both over the same events.
func TestSameFigures(t *testing.T) {
	needBpftrace(t)
	for _, c := range []struct{ text, want string }{
		{"t:syscalls:sys_enter_connect /pid == PID/ { @[pid, args->fd > 0 ? 1 : 0] = count(); }", `^@\[\d+, 1\]: 23\n$`},
		{"t:syscalls:sys_exit_connect /pid == PID && args->ret < 0/ { @[- args->ret] = count(); }", `^@\[111\]: 23\n$`},
		{"t:syscalls:sys_enter_connect,t:syscalls:sys_enter_socket* /pid == PID/ { @[probe] = count(); }",
			`^@\[tracepoint:syscalls:sys_enter_connect\]: 23\n@\[tracepoint:syscalls:sys_enter_socket\]: 29\n$`},
		{"t:net:net_dev_xmit /pid == PID/ { if (args->len > 60) { @[kstack] = count(); } @len = hist(args->len); @dev[str(args->name)] = lhist(args->len, 0, 100, 20); }",
			`^@\[\n(    \w+(\.\w+)*\+\d+\n)+\]: \d+\n`},
	} {
		script := strings.ReplaceAll(c.text, "PID", fmt.Sprint(os.Getpid())) +
			fmt.Sprintf(` t:syscalls:sys_enter_getpgid /pid == %d/ { printf("up\n"); }`, os.Getpid())
		own, other := besides(t, script, seine, "run"), besides(t, script, "bpftrace", "-B", "line")
		var stop []func() error
		for _, cmd := range []*exec.Cmd{own, other} {
			stop = append(stop, startUp(t, cmd))
		}
		for i := range 29 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if i < 23 {
				if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 1, Addr: [4]byte{127, 0, 0, 1}}); err != unix.ECONNREFUSED {
					t.Fatal(err)
				}
			}
			unix.Close(fd)
		}
		for _, stop := range stop {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		got, want := strings.ReplaceAll(words(own), "up\n", ""), strings.ReplaceAll(words(other), "up\n", "")
		if got != want || !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s\nseine run:\n%s\nbpftrace:\n%s\nwant a match of %s", script, got, want, c.want)
		}
	}
}

// startUp starts a command and calls getpgid(2) until it prints a line.
func startUp(t *testing.T, cmd *exec.Cmd) (stop func() error) {
	t.Helper()
	all := cmd.Stdout.(*bytes.Buffer)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			all.WriteString(line)
			if line == "up\n" {
				select {
				case up <- struct{}{}:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	limit := time.After(time.Minute)
	for waiting := true; waiting; {
		select {
		case <-up:
			waiting = false
		case <-ended:
			t.Fatalf("%v ended: %s", cmd.Args, cmd.Stderr)
		case <-limit:
			_ = cmd.Process.Kill()
			t.Fatalf("%v: not up after a minute", cmd.Args)
		case <-time.After(time.Millisecond):
			_, _ = unix.Getpgid(0)
		}
	}
	return func() error {
		_ = cmd.Process.Signal(os.Interrupt)
		<-ended
		err := cmd.Wait()
		cmd.Stdout = all
		return err
	}
}
