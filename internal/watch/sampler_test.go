// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"testing"
	"time"
)

// BenchmarkSample is what reading the counters costs every second of an idle agent or screen.
func BenchmarkSample(b *testing.B) {
	m, s := New(Options{}), NewSampler()
	defer s.Close()
	b.ReportMetric(float64(len(s.spaces)), "namespaces")
	b.ReportAllocs()
	for b.Loop() {
		s.Sample(m, time.Now())
	}
	b.ReportMetric(float64(len(s.spaces)), "namespaces")
}
