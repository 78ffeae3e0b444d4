// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	lab.Register(bodyCalls, func(c *lab.Child) error { return busy(c, callKernel) })
	lab.Register(bodyPinned, func(c *lab.Child) error {
		cpu, err := lab.Pin(int(c.Comm[len(c.Comm)-1] - '0'))
		if err != nil {
			return err
		}
		if err := c.Report(cpu); err != nil {
			return err
		}
		return busy(c, burnHere)
	})
	return []trial.Case{
		{Name: "stacks", Run: stacksAlone},
		{Name: "net", Hosts: lab.TwoHosts, Run: net},
		{Name: "fair", Run: fair},
		{Name: "idle", Run: idle},
		{Name: "kernel", Run: kernel},
		{Name: "c", Run: inC, Slow: true}, // guests have no compiler
	}
}

// stacksAlone: stacks that are not split by process have names too.
func stacksAlone(x *trial.Trial) error {
	p, err := x.World.Start("", "burner", bodyBurn, second)
	if err != nil {
		return err
	}
	var used time.Duration
	rows, err := x.Rows(func() error { return p.Call("go", &used) }, fmt.Sprint("-F", rate(499)), "--by=ustack", fmt.Sprint("--pid=", p.PID))
	if err != nil {
		return err
	}
	if n, all := with(rows, "ustack", through("burnHere")); !most(n, all) {
		x.Errorf("%d of %d samples are in the function that all the time is spent in", n, all)
	}
	return p.Wait()
}

// kernel: a program that is always in the kernel, by kernel stack and by user
// stack.
func kernel(x *trial.Trial) error {
	if _, err := os.Stat("/proc/kallsyms"); err != nil {
		return trial.Skip("%v", err)
	}
	rows, _, err := sampled(x, bodyCalls, second, fmt.Sprint("-F", rate(499)), "-K")
	if err != nil {
		return err
	}
	// From 6.2 on the read goes through iterators. On arm64 the function that
	// clears memory has no frame, so its caller is missing.
	n, all := with(rows, "kstack", func(st *kern.Stack) bool {
		return through("read_zero")(st) || through("read_iter_zero")(st) || through("__arch_clear_user")(st)
	})
	if !most(n, all) {
		x.Errorf("%d of %d samples are in the kernel's function that all the time is spent in", n, all)
	}
	for _, r := range rows {
		x.Want(r, "ustack", "-")
	}
	rows, _, err = sampled(x, bodyCalls, second, fmt.Sprint("-F", rate(499)), "-U")
	if err != nil {
		return err
	}
	if n, all := with(rows, "ustack", through("callKernel")); !most(n, all) {
		x.Errorf("%d of %d samples are in the function that calls the kernel all the time", n, all)
	}
	for _, r := range rows {
		x.Want(r, "kstack", "-")
	}
	return nil
}

// fair: each of two processes has as many samples as perf takes of it, on the
// processor that it runs on.
func fair(x *trial.Trial) error {
	hz := rate(997)
	want := []time.Duration{second, second / 3}
	var procs []*lab.Proc
	var cpus [2]int
	used := make([]time.Duration, len(want))
	var pids []string
	for i, w := range want {
		p, err := x.World.Start("", fmt.Sprint("burner", i), bodyPinned, w)
		if err != nil {
			return err
		}
		if err := p.Expect(&cpus[i]); err != nil {
			return err
		}
		procs = append(procs, p)
		pids = append(pids, fmt.Sprint(p.PID))
	}
	perf, err := lab.StartSamples(hz)
	if err != nil {
		return err
	}
	defer perf.Close()
	rows, err := x.Rows(func() error {
		for _, p := range procs {
			if err := p.Tell("go"); err != nil {
				return err
			}
		}
		for i, p := range procs {
			if err := p.Expect(&used[i]); err != nil {
				return err
			}
		}
		return nil
	}, fmt.Sprint("-F", hz), "--by=pid,comm,cpu", "--pid="+strings.Join(pids, ","))
	if err != nil {
		return err
	}
	for i, p := range procs {
		var got uint64
		for _, r := range rows {
			if int(r.Get("pid").N) == p.PID && int(r.Get("cpu").N) == cpus[i] {
				got += r.Get("count").N
			}
		}
		want, err := perf.Count(p.PID, cpus[i])
		if err != nil {
			return err
		}
		if err := near(got, want, want); err != nil {
			x.Errorf("processor %d: %v", cpus[i], err)
		}
		if err := p.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// idle: idle processors are left out. With --include-idle they have as many
// samples as perf takes.
func idle(x *trial.Trial) error {
	const hz = 199
	work := func() error {
		p, err := x.World.Start("", "burner", bodyBurn, second/2)
		if err != nil {
			return err
		}
		return errors.Join(p.Tell("go"), p.Wait())
	}
	rows, err := x.Rows(work, "-K", fmt.Sprint("-F", hz))
	if err != nil {
		return err
	}
	for _, r := range rows {
		if st, ok := r.Get("kstack").Ref.(*kern.Stack); strings.HasPrefix(r.Get("comm").S, "swapper/") && (!ok || !interrupted(st)) {
			x.Errorf("%d samples of a processor that does nothing: %v", r.Get("count").N, st)
		}
	}
	perf, err := lab.StartSamples(hz)
	if err != nil {
		return err
	}
	defer perf.Close()
	var n uint64
	var idle [4]uint64 // before and after each
	for i, step := range []func() error{
		func() error { return nil },
		func() error { return x.Attach("-K", fmt.Sprint("-F", hz), "--include-idle") },
		work,
		func() error { rows, err = x.Detach(); return err },
	} {
		if err := step(); err != nil {
			return err
		}
		if idle[i], err = perf.Count(0, -1); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if strings.HasPrefix(r.Get("comm").S, "swapper/") {
			n += r.Get("count").N
		}
	}
	return near(n, idle[2]-idle[1], idle[3]-idle[0])
}

// interrupted reports whether a stack is that of an interrupt.
func interrupted(st *kern.Stack) bool {
	return slices.ContainsFunc(st.Frames, func(f kern.Frame) bool {
		return strings.Contains(f.Sym, "softirq") || strings.Contains(f.Sym, "irq_exit") || strings.Contains(f.Sym, "sysvec") || strings.Contains(f.Sym, "interrupt")
	})
}

// below is the layers that a transfer goes through.
var below = []string{"socket", "tcp", "ip", "queue", "napi", "driver"}

// net: most samples of a bulk transfer are in TCP, which copies the data, and
// some are in each layer below. Functions of modules have names. A layer that
// takes little time may need more than one transfer until a sample hits it.
func net(x *trial.Trial) error {
	_, err := os.Stat("/sys/module/veth/sections")
	module := err == nil // veth, and the kernel has names for its functions
	layers := map[string]uint64{}
	var all, inModule uint64
	for range 10 {
		rows, err := x.Rows(func() error { return transfer(x.World, bulk(3<<30)) }, "--net", "-F997", "--by=comm,layer,kstack")
		if err != nil {
			return err
		}
		for _, r := range rows {
			if comm := r.Get("comm").S; comm == "sender" || comm == "receiver" {
				all += r.Get("count").N
				layers[trial.Value(r.Get("layer"))] += r.Get("count").N
			}
		}
		n, _ := with(rows, "kstack", func(st *kern.Stack) bool {
			return slices.ContainsFunc(st.Frames, func(f kern.Frame) bool { return f.Module == "veth" && strings.HasPrefix(f.Sym, "veth_") })
		})
		missed := func(l string) bool { return layers[l] == 0 }
		if inModule += n; !slices.ContainsFunc(below, missed) && (inModule > 0 || !module) {
			break
		}
	}
	in, least := all-layers["-"], uint64(70)
	if lab.Emulated() {
		least = 50 // the rest is Go's runtime and the scheduler, which take long there
	}
	if in*100 < all*least {
		x.Errorf("%d of %d samples of a transfer are in the network code: %v", in, all, layers)
	}
	if layers["tcp"]*10 < in*3 {
		x.Errorf("%d of %d samples are in tcp, where the copying is done: %v", layers["tcp"], in, layers)
	}
	for _, l := range below {
		if layers[l] == 0 {
			x.Errorf("no sample in %s: %v", l, layers)
		}
	}
	if module && inModule == 0 {
		x.Errorf("no sample in a function of the module veth, through which all went")
	}
	return nil
}

// inC: a C program with frame pointers, by its whole chain of calls.
func inC(x *trial.Trial) error {
	prog, err := x.World.Program("hot")
	if errors.Is(err, lab.ErrNotSupported) {
		return trial.Skip("%v", err)
	}
	if err != nil {
		return err
	}
	cmd := exec.Command(prog)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	rows, err := x.Rows(func() error { // it burns when its input ends, and exits
		in.Close()
		return cmd.Wait()
	}, "-F499", fmt.Sprint("--pid=", cmd.Process.Pid))
	if err != nil {
		return err
	}
	n, all := with(rows, "ustack", func(st *kern.Stack) bool {
		var names []string
		for _, f := range st.Frames {
			names = append(names, f.Sym)
		}
		return strings.HasPrefix(strings.Join(names, " "), "hot_function middle main")
	})
	if !most(n, all) || all < 100 {
		x.Errorf("%d of %d samples are in hot_function, called by middle, called by main", n, all)
	}
	return nil
}
