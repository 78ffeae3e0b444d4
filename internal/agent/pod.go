// SPDX-License-Identifier: Apache-2.0

package agent

import "strings"

// place are the labels that name a container.
var place = []string{"pod_namespace", "pod", "container"}

// placeOf returns the values of these labels. The name of a Kubernetes container is
// NAMESPACE/POD/CONTAINER, and that of a pod's sandbox is NAMESPACE/POD. No other runtime allows a
// slash in a name. The label is pod_namespace, because Prometheus sets a label namespace on each
// target itself.
func placeOf(container string) []string {
	switch part := strings.Split(container, "/"); len(part) {
	case 3:
		return part
	case 2:
		return append(part, "")
	}
	return []string{"", "", container}
}
