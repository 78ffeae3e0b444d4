// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/watch"
)

// A Self sets the metrics about the agent itself.
type Self struct {
	Counts  *Counts
	Model   *watch.Model
	Answers *Answers
	Logs    *Limited
	Version string
	Front   func() (pid int, starts uint64) // may be nil
	Shed    func() []string                 // parts that the guard has stopped; may be nil
	BPF     *BPFTime                        // may be nil
	// Recorder returns the size of the recording, the number of rows that were not written, and the
	// start of what it has of each tool. May be nil.
	Recorder func() (size, lost uint64, oldest map[string]time.Time)

	mu   sync.Mutex
	told map[string]float64 // last values of the counters
	shed sync.Mutex         // for TellShed
}

// upTo brings a counter up to its current value.
func (s *Self) upTo(name string, now float64, values ...string) {
	key := name
	for _, v := range values {
		key += "\x00" + v
	}
	if by := now - s.told[key]; by > 0 || s.told[key] == 0 {
		s.Counts.Add(name, max(by, 0), values...)
		s.told[key] = now
	}
}

// Run calls Tell every five seconds until ctx ends. It calls it less often if that would take more
// than a fiftieth of a processor. A scrape does not wait for it.
func (s *Self) Run(ctx context.Context) {
	for {
		began := time.Now()
		s.Tell()
		select {
		case <-time.After(max(tellEvery, 50*time.Since(began))):
		case <-ctx.Done():
			return
		}
	}
}

const tellEvery = 5 * time.Second

// Tell updates all metrics about the agent and the findings.
func (s *Self) Tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = map[string]float64{}
	}
	c := s.Counts
	c.Settle()
	c.Set(agentInfo, 1, s.Version)
	pid, starts := 0, uint64(0)
	if s.Front != nil {
		pid, starts = s.Front()
	}
	s.upTo(agentCPU, Used(pid).Seconds())
	if s.BPF != nil {
		if total, ok := s.BPF.Total(time.Now()); ok {
			s.upTo(agentBPF, total.Seconds())
		}
	}
	c.Replace(agentMemory, func(set func(float64, ...string)) {
		set(float64(resident(os.Getpid())), "holder")
		if pid != 0 {
			set(float64(resident(pid)), "front")
		}
	})
	s.upTo(agentFront, float64(starts))
	s.TellShed()
	if s.Logs != nil {
		s.upTo(agentLogs, float64(s.Logs.Suppressed()))
	}
	if s.Recorder != nil {
		size, lost, oldest := s.Recorder()
		c.Replace(recorderOldest, func(set func(float64, ...string)) {
			for tool, at := range oldest {
				set(float64(at.UnixMilli())/1000, tool)
			}
		})
		c.Set(recorderBytes, float64(size))
		s.upTo(recorderLost, float64(lost))
	}
	v := s.Model.Window(time.Second)
	for name, source := range v.Sources {
		if source.Why != "" {
			c.Set(agentUnseen, 1, name)
		}
	}
	s.upTo(agentModelEvicted, float64(v.Bounds.Evicted), "seconds")
	s.upTo(agentModelEvicted, float64(v.Bounds.Conns), "connections")
	s.upTo(agentModelRefused, float64(v.Bounds.Refused))
	c.Replace(finding, func(set func(float64, ...string)) {
		for _, f := range s.Answers.findingsNow().Findings {
			set(1, f.Object.Name, f.Class, f.Severity.String())
		}
	})
	n := c.Count()
	s.upTo(agentRefused, float64(n.Refused))
	s.upTo(agentOverflow, float64(n.Overflow))
	s.upTo(agentEvicted, float64(n.Evicted))
	c.Set(agentSeriesLimit, float64(n.Limit))
	c.Set(agentSeries, float64(n.Series)) // the first call makes its own series
	c.Set(agentSeries, float64(c.Count().Series))
}

// TellShed updates the metric about parts that the guard has stopped.
func (s *Self) TellShed() {
	if s.Shed == nil {
		return
	}
	s.shed.Lock()
	defer s.shed.Unlock()
	s.Counts.Replace(agentShed, func(set func(float64, ...string)) {
		for _, name := range s.Shed() {
			set(1, name)
		}
	})
}

// ownTime is the processor time of this process and of its children that have ended.
func ownTime() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// resident is the resident memory of a process, 0 if it has ended.
func resident(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var all, pages uint64
	fmt.Sscan(string(b), &all, &pages)
	return pages * uint64(os.Getpagesize())
}

// processorTime is the processor time of another process so far, with that of threads that have
// ended. It is 0 if there is no such process.
func processorTime(pid int) time.Duration {
	var t unix.Timespec
	if pid == 0 || unix.ClockGettime(processClock(pid), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// processClock is the clock of a process, as clock_getcpuclockid(3) gives it.
func processClock(pid int) int32 {
	const sched = 2 // CPUCLOCK_SCHED of the kernel: what the scheduler has counted
	return ^int32(pid)<<3 | sched
}
