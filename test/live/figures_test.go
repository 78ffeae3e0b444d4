// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"time"

	"seine/internal/kern"
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
