// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"testing"
)

// TestAgentPods: metrics of a pod of a real containerd have the names of the pod, its
// namespace and its container as labels, also after the pod has ended.
func TestAgentPods(t *testing.T) {
	w := newAgentWorld(t)
	c := startCRI(t, w)
	a := startAgentBy(t, c.inside, fmt.Sprintf("--netns=%d", w.Netns("")), "--max-cpu=1000%")
	const n = 17
	pod := c.pod("shop", "web-7d9f", "nginx", "/pod", "serve", fmt.Sprint(n))
	labels := func(more string) string {
		return `container="nginx",pod="web-7d9f",pod_namespace="shop",` + more
	}
	wants := []string{
		`seine_tcp_accepts_total\{` + labels(`result="ok",service="pod :18080",side="in"`) + fmt.Sprintf(`\} %d\n`, n),
		`seine_tcp_connects_total\{` + labels(`result="ok",service="pod → 127.0.0.1:18080",side="out"`) + fmt.Sprintf(`\} %d\n`, n),
	}
	for _, want := range wants {
		a.await("/metrics", want)
	}
	c.must("StopPodSandbox", field{1, pod})
	c.must("RemovePodSandbox", field{1, pod})
	for _, want := range wants {
		a.await("/metrics", want)
	}
}
