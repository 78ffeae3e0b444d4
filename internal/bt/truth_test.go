// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// A truth is a script of the corpus in today's style, work for it, and what is wrong with what
// it prints, by what others say of that work.
type truth struct {
	script string
	named  []string
	work   func(t *testing.T)
	wrong  func(out string) []error
}

// TestTruth runs scripts as people write them today, with macros, records and options, and
// holds them against the kernel's own counters, stopwatches and what was sent.
func TestTruth(t *testing.T) {
	needRoot(t)
	for name, make := range map[string]func(*testing.T) truth{
		"tcplife": tcplifeTruth, "tcpdrop": tcpdropTruth, "biosnoop": biosnoopTruth, "runqlat": runqlatTruth, "gethostlatency": gethostTruth,
	} {
		t.Run(name, func(t *testing.T) {
			err := lab.Undisturbed(func() ([]error, error) {
				var c truth
				var out, errs string
				for try, skipped := 0, uint64(1); skipped > 0 && try < 5; try++ { // as live does it, with new work
					c = make(t)
					text := string(must(corpus.ReadFile("testdata/corpus/" + c.script)))
					needKernel(t, text)
					out, errs, skipped = once(t, func(o Options) (*Program, error) {
						o.Named = c.named
						return Compile(&Source{Name: c.script, Text: text}, o)
					}, Options{}, func() { c.work(t) })
				}
				wrong := c.wrong(out)
				if len(wrong) > 0 {
					wrong = append(wrong, fmt.Errorf("it printed\n%s%s", out, errs))
				}
				return wrong, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func named(option string, value any) []string { return []string{fmt.Sprintf("--%s=%v", option, value)} }

// numbersOf finds lines by a pattern, and the numbers of its groups.
func numbersOf(out, pattern string) (lines [][]float64) {
	for _, m := range regexp.MustCompile("(?m)^"+pattern+"$").FindAllStringSubmatch(out, -1) {
		var line []float64
		for _, word := range m[1:] {
			line = append(line, must(strconv.ParseFloat(word, 64)))
		}
		lines = append(lines, line)
	}
	return lines
}

// tcplifeTruth: three connections of 7,100 bytes each. The kernel's counters have SYN and FIN
// in them, and no connection was there for longer than all of them.
func tcplifeTruth(*testing.T) truth {
	const conns, bytes = 3, 7100
	l := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	check(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	check(unix.Listen(l, 16))
	port := must(unix.Getsockname(l)).(*unix.SockaddrInet4).Port
	var took time.Duration
	return truth{
		script: "n_tcplife.bt", named: named("port", port),
		work: func(t *testing.T) {
			began := time.Now()
			for range conns {
				connection(l, 100, 1000, 1000, 5000)
			}
			unix.Close(l)
			closed(t, port)
			took = time.Since(began)
		},
		wrong: func(out string) (wrong []error) {
			lines := numbersOf(out, `(\d+) +(\d+) +(\d+) +(\d+) (\d+)`)
			if len(lines) != 2*conns {
				wrong = append(wrong, fmt.Errorf("%d lines, want %d", len(lines), 2*conns))
			}
			servers := 0
			for _, f := range lines {
				sent, received := 2, 3
				if f[0] == float64(port) {
					servers++
					sent, received = received, sent
				}
				if f[sent] < bytes || f[sent] > bytes+2 || f[received] > 2 || f[4] > float64(took.Microseconds()) {
					wrong = append(wrong, fmt.Errorf("%v: port %d, %d bytes, at most %v", f, port, bytes, took))
				}
			}
			if servers != conns {
				wrong = append(wrong, fmt.Errorf("%d ends at port %d, want %d", servers, port, conns))
			}
			return wrong
		},
	}
}

// closed waits until no connection of a port is left but such as only wait.
func closed(t *testing.T, port int) {
	t.Helper()
	entry := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: (?:\w+:%04X \w+:\w+|\w+:\w+ \w+:%04X) (\w\w)`, port, port))
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(time.Millisecond) {
		left := false
		for _, m := range entry.FindAllSubmatch(must(os.ReadFile("/proc/net/tcp")), -1) {
			const timeWait = "06"
			left = left || string(m[1]) != timeWait
		}
		if !left {
			return
		}
	}
	t.Fatalf("connections of port %d are still there", port)
}

// tcpdropTruth: each connect that is refused is one segment that was dropped for want of a
// socket.
func tcpdropTruth(*testing.T) truth {
	const refusals = 7
	held := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)) // nobody else gets its port
	check(unix.Bind(held, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	addr := must(unix.Getsockname(held)).(*unix.SockaddrInet4)
	return truth{
		script: "n_tcpdrop.bt", named: named("port", addr.Port),
		work: func(*testing.T) {
			for range refusals {
				fd := must(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
				if err := unix.Connect(fd, addr); err != unix.ECONNREFUSED {
					panic(err)
				}
				unix.Close(fd)
			}
			unix.Close(held)
		},
		wrong: func(out string) (wrong []error) {
			for _, line := range []string{
				fmt.Sprintf(`@[%d, tcp_v4_rcv]: %d`, addr.Port, refusals), fmt.Sprintf(`@reason[%d, SKB_DROP_REASON_NO_SOCKET]: %d`, addr.Port, refusals),
			} {
				if !strings.Contains(out, line+"\n") {
					wrong = append(wrong, fmt.Errorf("there is no %s", line))
				}
			}
			return wrong
		},
	}
}

// biosnoopTruth: reads of a loop device that is the test's alone. The kernel counts them, and a
// stopwatch stands beside each.
func biosnoopTruth(t *testing.T) truth {
	const reads, size = 11, 4096
	dev, stat := loopDevice(t)
	var slowest time.Duration
	var counted int
	return truth{
		script: "t_biosnoop.bt",
		work: func(t *testing.T) {
			before := readsOf(stat)
			fd := must(unix.Open(dev, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0))
			buf := must(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
			for i := range reads {
				began := time.Now()
				if n, err := unix.Pread(fd, buf, int64(i)*2*size); n != size {
					panic(fmt.Sprint(n, err))
				}
				slowest = max(slowest, time.Since(began))
			}
			unix.Close(fd)
			check(unix.Munmap(buf))
			counted = readsOf(stat) - before
		},
		wrong: func(out string) (wrong []error) {
			lines := numbersOf(out, fmt.Sprintf(`\d+ +%s +%d +R[AS]* +(\d+\.\d+)`, regexp.QuoteMeta(comm()), os.Getpid()))
			if len(lines) != reads || counted != reads {
				wrong = append(wrong, fmt.Errorf("%d lines, and the kernel counts %d reads; want %d", len(lines), counted, reads))
			}
			for _, f := range lines {
				if f[0] > slowest.Seconds()*1000 {
					wrong = append(wrong, fmt.Errorf("%v ms, but no read took more than %v", f[0], slowest))
				}
			}
			return wrong
		},
	}
}

// loopDevice is a device over 1 MB of memory, and its counters.
func loopDevice(t *testing.T) (dev, stat string) {
	t.Helper()
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		lack(t, fmt.Errorf("/dev/loop-control: %w", err))
	}
	defer unix.Close(control)
	file := filepath.Join(t.TempDir(), "blocks")
	check(os.WriteFile(file, make([]byte, 1<<20), 0o600))
	backing := must(unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0))
	defer unix.Close(backing)
	for range 100 { // others look for one too
		n := must(unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE))
		dev = fmt.Sprintf("/dev/loop%d", n)
		fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			lack(t, fmt.Errorf("%s: %w", dev, err))
		}
		err = unix.IoctlSetInt(fd, unix.LOOP_SET_FD, backing)
		if err == nil {
			t.Cleanup(func() {
				_ = unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
				unix.Close(fd)
			})
			return dev, fmt.Sprintf("/sys/block/loop%d/stat", n)
		}
		unix.Close(fd)
		if err != unix.EBUSY {
			lack(t, fmt.Errorf("%s: %w", dev, err))
		}
	}
	t.Fatal("no loop device is free")
	return "", ""
}

func readsOf(stat string) int {
	return must(strconv.Atoi(strings.Fields(string(must(os.ReadFile(stat))))[0]))
}

// runqlatTruth: a thread that shares its CPU with another one. The kernel counts how often it has
// left the CPU and how long it has waited for one: exact while the thread is asleep, before and
// after its work. The kernel's time lacks the wait of a thread that was preempted when it was about
// to sleep, so that there may be fewer waits in it than the thread had. It begins too early where
// another thread's wake-up preempts this one: the kernel does not look at its clock again until the
// switch is done.
func runqlatTruth(t *testing.T) truth {
	const lookedEarlier = 10_000 // ns; 2,500 to 3,200 in the mean of the waits of a busy machine
	var ends [2]int
	check(unix.Pipe2(ends[:], unix.O_CLOEXEC))
	var done atomic.Bool
	tids := make(chan int)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		pinToFirst()
		tids <- unix.Gettid()
		_, _ = unix.Read(ends[0], make([]byte, 1))
		for range 30 {
			spin(3 * time.Millisecond)
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 1_000_000}, nil)
		}
		done.Store(true)
		_, _ = unix.Read(ends[0], make([]byte, 1))
		unix.Close(ends[0])
	}()
	tid := <-tids
	asleep(t, tid, func() bool { return true })
	var waits, timed, ns int
	return truth{
		script: "n_runqlat.bt", named: named("tid", tid),
		work: func(t *testing.T) {
			go func() {
				runtime.LockOSThread()
				pinToFirst()
				for !done.Load() {
					spin(time.Millisecond)
				}
			}()
			waits0 := switches(tid)
			timed0, ns0 := schedstat(tid)
			_ = must(unix.Write(ends[1], []byte{1}))
			asleep(t, tid, done.Load)
			timed, ns = schedstat(tid)
			waits, timed, ns = switches(tid)-waits0, timed-timed0, ns-ns0
		},
		wrong: func(out string) (wrong []error) {
			unix.Close(ends[1])
			count, sum := numbersOf(out, `@waits: (\d+)`), numbersOf(out, `@ns: (\d+)`)
			if len(count) != 1 || len(sum) != 1 {
				return []error{errors.New("there is no count or no sum")}
			}
			if int(count[0][0]) != waits || waits < 30 {
				wrong = append(wrong, fmt.Errorf("%v waits, the kernel has %d", count[0][0], waits))
			}
			// The host may take an emulated processor away between the kernel's look at the clock and
			// the script's.
			few := sum[0][0] < float64(ns-waits*lookedEarlier)*0.95
			many := timed == waits && sum[0][0] > float64(ns)*1.05
			if (few || many) && !lab.Emulated() {
				wrong = append(wrong, fmt.Errorf("%v ns, the kernel has %d in %d of %d waits", sum[0][0], ns, timed, waits))
			}
			return wrong
		},
	}
}

// pinToFirst keeps this thread on the first CPU that the process may use.
func pinToFirst() {
	var may, one unix.CPUSet
	check(unix.SchedGetaffinity(os.Getpid(), &may))
	for cpu := range 8 * int(unsafe.Sizeof(may)) {
		if may.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	check(unix.SchedSetaffinity(0, &one))
}

func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// asleep waits until a thread sleeps in a read, from when on it may. A thread that is about to
// sleep has the state S already and may be preempted once more. So it asks for the system call,
// which the kernel tells only of a thread that has left the queue of its processor.
func asleep(t *testing.T, tid int, may func() bool) {
	t.Helper()
	inRead := fmt.Sprintf("%d ", unix.SYS_READ)
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
		if may() && strings.HasPrefix(string(must(os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid)))), inRead) {
			return
		}
	}
	t.Fatalf("thread %d does not come to sleep", tid)
}

// switches is how often a thread has left its CPU, to sleep or for another thread.
func switches(tid int) (n int) {
	status := string(must(os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))))
	for _, m := range regexp.MustCompile(`(?m)^(?:non)?voluntary_ctxt_switches:\s+(\d+)$`).FindAllStringSubmatch(status, 2) {
		n += must(strconv.Atoi(m[1]))
	}
	return n
}

// schedstat is how often a thread has come to run, and how long it has waited for that.
func schedstat(tid int) (runs, ns int) {
	var ran int
	_ = must(fmt.Sscan(string(must(os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", tid)))), &ran, &ns, &runs))
	return runs, ns
}

// gethostTruth: names that getent looks up once each, with a stopwatch beside it.
func gethostTruth(t *testing.T) truth {
	getent, err := exec.LookPath("getent")
	if err != nil {
		lack(t, err)
	}
	took := map[string]time.Duration{}
	return truth{
		script: "n_gethostlatency.bt", named: named("min", 0),
		work: func(*testing.T) {
			for i := range 5 {
				began := time.Now()
				host := fmt.Sprintf("127.0.77.%d", i+1)
				_ = must(exec.Command(getent, "ahosts", host).Output())
				took[host] = time.Since(began)
			}
		},
		wrong: func(out string) (wrong []error) {
			seen := map[string]int{}
			for _, m := range regexp.MustCompile(`(?m)^\d+ getent (\d+\.\d+) (127\.0\.77\.\d)$`).FindAllStringSubmatch(out, -1) {
				seen[m[2]]++
				if ms := must(strconv.ParseFloat(m[1], 64)); ms <= 0 || ms > took[m[2]].Seconds()*1000 {
					wrong = append(wrong, fmt.Errorf("%s took %v ms, getent in all %v", m[2], ms, took[m[2]]))
				}
			}
			for host := range took {
				if seen[host] != 1 {
					wrong = append(wrong, fmt.Errorf("%s is there %d times, want once", host, seen[host]))
				}
			}
			return wrong
		},
	}
}
