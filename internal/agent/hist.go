// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"seine/internal/kern"
)

// bounds are the upper bounds of classic buckets, in seconds: every second power of two of
// microseconds, from 64 µs to 17 s. They are also bounds of slots of kern.Hist, so no count has
// to be split.
var bounds = func() (out []float64) {
	for e := 6; e <= 24; e += 2 {
		out = append(out, float64(uint64(1)<<e)/1e6)
	}
	return out
}()

// schema is the resolution of native buckets: eight for each power of two.
const schema = 3

// mantissas are the upper bounds of native buckets between 0.5 and 1.
var mantissas = func() (out []float64) {
	for k := range 1 << schema {
		out = append(out, math.Exp2(float64(k)/(1<<schema)-1))
	}
	return out
}()

// histSeries is the number of series of a histogram in the text format: the buckets, the sum and
// the count.
var histSeries = len(bounds) + 1 + 2

// A hist is a histogram of seconds that only grows, with classic and native buckets.
type hist struct {
	count   uint64
	sum     float64
	classic []uint64 // by bounds; the last one counts values above all bounds
	zero    uint64
	native  map[int]uint64
	latest  []example // by bounds, as classic; nil: none was given
}

// An example is a value of a histogram with the process and the socket that it comes from. A scrape has
// the latest one of each classic bucket as its exemplar.
type example struct {
	seconds   float64
	at        time.Time // zero: there is none
	pid, sock uint64    // 0: not known
}

func newHist() *hist {
	return &hist{classic: make([]uint64, len(bounds)+1), native: map[int]uint64{}}
}

// observe counts one value.
func (h *hist) observe(e example) {
	h.add(e.seconds, e.seconds, 1)
	if e.at.IsZero() || e.pid == 0 && e.sock == 0 {
		return
	}
	if h.latest == nil {
		h.latest = make([]example, len(h.classic))
	}
	if i := sort.SearchFloat64s(bounds, e.seconds); !e.at.Before(h.latest[i].at) {
		h.latest[i] = e
	}
}

// add counts n values: in the classic bucket of one value and in the native bucket of another.
// For values from a slot these are the upper end and the middle of the slot.
func (h *hist) add(classic, native float64, n uint64) {
	h.count += n
	h.sum += native * float64(n)
	h.classic[sort.SearchFloat64s(bounds, classic)] += n
	if native <= 0 {
		h.zero += n
		return
	}
	h.native[nativeBucket(native)] += n
}

// merge counts the values of a histogram of microseconds. The sum is exact, and so are classic
// buckets, whose bounds are bounds of slots. A slot is an eighth of a power of two, on a linear
// scale, and can overlap two native buckets. The bucket of its middle gets its count.
func (h *hist) merge(o *kern.Hist) {
	if o == nil || o.Count == 0 {
		return
	}
	sum := h.sum
	o.Each(func(lo, hi, n uint64) {
		hi = min(hi, max(o.Max, lo)+1)
		h.add(float64(hi)/1e6, (float64(lo)+float64(hi-1))/2/1e6, n)
	})
	h.sum = sum + float64(o.Sum)/1e6
}

// nativeBucket is the number of the native bucket of a positive value. The upper bound of a bucket
// is 2^(number/8), inclusive.
func nativeBucket(v float64) int {
	frac, exp := math.Frexp(v)
	return sort.SearchFloat64s(mantissas, frac) + (exp-1)<<schema
}

// proto is the histogram in the scraper's format, with both kinds of buckets.
func (h *hist) proto() *dto.Histogram {
	out := &dto.Histogram{
		SampleCount: proto.Uint64(h.count), SampleSum: proto.Float64(h.sum),
		Schema: proto.Int32(schema), ZeroThreshold: proto.Float64(math.Exp2(-128)), ZeroCount: proto.Uint64(h.zero),
	}
	var below uint64
	for i, le := range bounds {
		below += h.classic[i]
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: proto.Float64(le), CumulativeCount: proto.Uint64(below), Exemplar: h.exemplar(i)})
	}
	if e := h.exemplar(len(bounds)); e != nil { // without it this bucket is left out: it is the count
		out.Bucket = append(out.Bucket, &dto.Bucket{UpperBound: proto.Float64(math.Inf(1)), CumulativeCount: proto.Uint64(h.count), Exemplar: e})
	}
	numbers := make([]int, 0, len(h.native))
	for i := range h.native {
		numbers = append(numbers, i)
	}
	slices.Sort(numbers)
	var last int64
	next := 0 // the number after the last span
	for i, number := range numbers {
		if i == 0 || number != next {
			offset := number
			if i > 0 {
				offset = number - next
			}
			out.PositiveSpan = append(out.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(int32(offset)), Length: proto.Uint32(0)})
		}
		span := out.PositiveSpan[len(out.PositiveSpan)-1]
		*span.Length++
		n := int64(h.native[number])
		out.PositiveDelta = append(out.PositiveDelta, n-last)
		last, next = n, number+1
	}
	if len(numbers) == 0 { // an empty span marks the histogram as native
		out.PositiveSpan = []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(0)}}
	}
	return out
}

// exemplar is the latest example of a classic bucket, nil if there is none.
func (h *hist) exemplar(bucket int) *dto.Exemplar {
	if h.latest == nil || h.latest[bucket].at.IsZero() {
		return nil
	}
	e := h.latest[bucket]
	out := &dto.Exemplar{Value: proto.Float64(e.seconds), Timestamp: timestamppb.New(e.at)}
	for _, l := range []struct {
		name  string
		value uint64
	}{{"pid", e.pid}, {"sock", e.sock}} {
		if l.value != 0 {
			out.Label = append(out.Label, &dto.LabelPair{Name: proto.String(l.name), Value: proto.String(strconv.FormatUint(l.value, 10))})
		}
	}
	return out
}
