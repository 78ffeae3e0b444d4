// SPDX-License-Identifier: Apache-2.0

package agent

import "strings"

// place are the labels that name a container.
var place = []string{"pod_namespace", "pod", "container"}

// placeOf are their values: a container of Kubernetes is called NAMESPACE/POD/CONTAINER, and the
// sandbox of a pod NAMESPACE/POD. No other runtime allows a slash in a name. The label is
// pod_namespace because Prometheus gives its own label namespace to each target.
func placeOf(container string) []string {
	switch part := strings.Split(container, "/"); len(part) {
	case 3:
		return part
	case 2:
		return append(part, "")
	}
	return []string{"", "", container}
}
