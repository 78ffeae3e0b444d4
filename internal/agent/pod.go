// SPDX-License-Identifier: Apache-2.0

package agent

import "strings"

// place are the labels of what happens in a container.
var place = []string{"pod_namespace", "pod", "container"}

// placeOf are their values: a container of Kubernetes is called NAMESPACE/POD/CONTAINER, and the
// sandbox of a pod NAMESPACE/POD. No other runtime allows a slash in a name. It is
// pod_namespace, since Prometheus has a label namespace of its own for what it scrapes.
func placeOf(container string) []string {
	switch part := strings.Split(container, "/"); len(part) {
	case 3:
		return part
	case 2:
		return append(part, "")
	}
	return []string{"", "", container}
}
