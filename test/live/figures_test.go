// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Two programs on one hook run one after the other: their times may differ by
// this much.
const apart = 2 * time.Millisecond

// near reports whether two times are of one event.
func near(a, b time.Duration) bool { return (a - b).Abs() <= apart }

var bucket = regexp.MustCompile(`(\d+) -> \d+ +: (\d+)`)

// sameTimes: tcprtt. Each segment is in the same bucket on both sides. Theirs has one bucket for 0 and 1; ours leaves
// out 0, which is a connection without a time.
func sameTimes(x *trial.Trial, ours []*row.Row, theirs []string) {
	want, got := map[uint64]uint64{}, map[uint64]uint64{}
	for _, l := range theirs {
		if m := bucket.FindStringSubmatch(l); m != nil {
			lo, err := strconv.ParseUint(m[1], 10, 64)
			n, err2 := strconv.ParseUint(m[2], 10, 64)
			x.Fail(errors.Join(err, err2))
			if n > 0 {
				want[lo] += n
			}
		}
	}
	for _, r := range ours {
		for _, b := range r.Get("rtt_us").Ref.(*kern.Hist).Buckets() {
			if b.Count > 0 {
				got[b.Lo&^1] += b.Count // 1 is with 0 there
			}
		}
	}
	if len(want) == 0 || !maps.Equal(got, want) {
		x.Errorf("segments by round-trip time are %v, and theirs %v:\n%s", got, want, strings.Join(theirs, "\n"))
	}
}

// sameWaits: tcppktlat over our demo, whose reader takes 1, 1, 3, 7 and 1 packets.
// libbpf-tools' has a row for each read, with the time of the last packet before it; ours
// has the time of the oldest packet.
func sameWaits(x *trial.Trial, ours []*row.Row, theirs []string) {
	reads := []int{1, 1, 3, 7, 1}
	if len(ours) == 0 {
		x.Errorf("no rows, and theirs:\n%s", strings.Join(theirs, "\n"))
		return
	}
	var times []time.Duration
	for _, l := range theirs {
		f := strings.Fields(l)
		if len(f) != 8 || f[2] != "reader" {
			continue
		}
		ms, err := strconv.ParseFloat(f[7], 64)
		x.Fail(err)
		times = append(times, time.Duration(ms*float64(time.Millisecond)))
		// Theirs prints ports as they are in the packet.
		for i, id := range map[int]string{0: "pid", 1: "tid", 3: "laddr", 4: "lport", 5: "raddr", 6: "rport"} {
			v := trial.Value(ours[0].Get(id))
			if n, err := strconv.ParseUint(f[i], 10, 16); err == nil && strings.HasSuffix(id, "port") && f[i] != v {
				f[i] = fmt.Sprint(bits.ReverseBytes16(uint16(n)))
			}
			if f[i] != v {
				x.Errorf("%s is %s, and theirs %s: %s", id, v, f[i], l)
			}
		}
	}
	if len(times) != len(reads) {
		x.Errorf("theirs has %d reads, want %d:\n%s", len(times), len(reads), strings.Join(theirs, "\n"))
		return
	}
	for i, packets := range reads {
		var oldest, youngest time.Duration
		for n := 0; n < packets; {
			if len(ours) == 0 {
				x.Errorf("no row of read %d", i)
				return
			}
			youngest = time.Duration(ours[0].Get("latency_us").N)
			if n == 0 {
				oldest = youngest
			}
			n += int(ours[0].Get("packets").N)
			ours = ours[1:]
		}
		if packets == 1 && !near(oldest, times[i]) || times[i] > oldest+apart {
			x.Errorf("read %d of %d packets: %v to %v, and theirs %v", i, packets, youngest, oldest, times[i])
		}
	}
}

// sameStays: tcpcong over our demo. Theirs begins with the first change of a connection, which it does not count, and
// counts no time before it.
func sameStays(x *trial.Trial, ours []*row.Row, theirs []string) {
	seen := 0
	for _, l := range theirs {
		f := strings.Fields(l) // local, remote, open, disorder, recovery, cwr, loss, changes
		if len(f) != 8 || !strings.HasPrefix(f[0], "127.0.0.1/") {
			continue
		}
		i := slices.IndexFunc(ours, func(r *row.Row) bool { return strings.TrimPrefix(f[0], "127.0.0.1/") == trial.Value(r.Get("lport")) })
		if i < 0 {
			x.Errorf("only theirs has %s", l)
			continue
		}
		seen++
		for at, id := range map[int]string{2: "open_ms", 3: "disorder_ms", 4: "recovery_ms", 5: "cwr_ms", 6: "loss_ms"} {
			us, err := strconv.Atoi(f[at])
			x.Fail(err)
			a, b := time.Duration(ours[i].Get(id).N), time.Duration(us)*time.Microsecond
			if id == "open_ms" && b > a+apart || id != "open_ms" && !near(a, b) {
				x.Errorf("%s is %v, and theirs %v: %s", id, a, b, l)
			}
		}
		if n, err := strconv.Atoi(f[7]); err != nil || uint64(n)+1 != ours[i].Get("changes").N {
			x.Errorf("%d changes, and theirs has %s besides the first: %s", ours[i].Get("changes").N, f[7], l)
		}
	}
	if seen != len(ours) || seen != 2 {
		x.Errorf("%d connections, and theirs has %d; want 2:\n%s", len(ours), seen, strings.Join(theirs, "\n"))
	}
}

// queueDev is a device of three queues.
const queueDev = "tap0"

var queues []*lab.Tap

func openQueues(w *lab.World) (undo func(), err error) {
	queues = nil
	undo = func() {
		for _, q := range queues {
			q.Close()
		}
	}
	for range 3 {
		q, err := w.OpenTap("", queueDev, unix.IFF_MULTI_QUEUE)
		if err != nil {
			undo()
			return nil, err
		}
		queues = append(queues, q)
	}
	return undo, nil
}

// useQueues has the device receive by two of its queues, and send by the one that the kernel chooses.
func useQueues(w *lab.World) error {
	_, err := w.SendFrames("", queueDev, 57, 900)
	return errors.Join(err, queues[0].Receive(31, 70), queues[2].Receive(101, 400))
}

// sameQueues: netqtop. Theirs has packets by size, in five classes, and the average size.
func sameQueues(x *trial.Trial, ours []*row.Row, theirs []string) {
	type queue struct {
		dir, number      string
		packets, average int
	}
	sums, dir := map[[2]string]queue{}, ""
	for _, l := range theirs {
		f := strings.Fields(l)
		switch {
		case l == "TX", l == "RX":
			dir = strings.ToLower(l)
		case len(f) == 7 && f[0] != "Total":
			at := [2]string{dir, f[0]}
			q := sums[at]
			q.dir, q.number = dir, f[0]
			for _, w := range f[2:] {
				n, err := strconv.Atoi(w)
				x.Fail(err)
				q.packets += n
			}
			if average, err := strconv.ParseFloat(f[1], 64); err == nil && average > 0 {
				q.average = int(average)
			}
			if q.packets > 0 {
				sums[at] = q
			}
		}
	}
	var got []queue
	for _, r := range ours {
		got = append(got, queue{r.Get("dir").S, trial.Value(r.Get("queue")), int(r.Get("packets").N), int(r.Get("average_bytes").N)})
	}
	order := func(a, b queue) int { return strings.Compare(a.dir+a.number, b.dir+b.number) }
	want := slices.SortedFunc(maps.Values(sums), order)
	slices.SortFunc(got, order)
	if len(got) != 3 || !slices.Equal(got, want) {
		x.Errorf("%v, and theirs %v:\n%s", got, want, strings.Join(theirs, "\n"))
	}
}
