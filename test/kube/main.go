// SPDX-License-Identifier: Apache-2.0

// Command kube has kustomize build the manifests of a directory, and decodes the result into the
// types of Kubernetes itself: a field that they do not have is an error. It has a module of its
// own, so that the product does not depend on these.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kube DIR")
		os.Exit(2)
	}
	kinds, err := check(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1)
	}
	fmt.Println("valid:", strings.Join(kinds, ", "))
}

// check returns the kinds of objects that kustomize makes of a directory.
func check(dir string) (kinds []string, err error) {
	tmp, err := os.MkdirTemp("", "kube")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := os.CopyFS(tmp, os.DirFS(dir)); err != nil {
		return nil, err
	}
	// As the kustomization says, users make this one.
	if err := os.Rename(filepath.Join(tmp, "web.yaml.example"), filepath.Join(tmp, "web.yaml")); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "tool", "kustomize", "build", tmp)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize: %w", err)
	}
	names := map[string]bool{} // of ConfigMaps and Secrets
	var set *apps.DaemonSet
	for _, doc := range bytes.Split(out, []byte("\n---\n")) {
		var head struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			return nil, err
		}
		var into any
		switch head.Kind {
		case "Namespace":
			into = &core.Namespace{}
		case "ConfigMap":
			into = &core.ConfigMap{}
		case "Secret":
			into = &core.Secret{}
		case "DaemonSet":
			set = &apps.DaemonSet{}
			into = set
		default:
			return nil, fmt.Errorf("kind %q is not expected", head.Kind)
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			return nil, fmt.Errorf("%s: %w", head.Kind, err)
		}
		names[head.Kind+"/"+head.Metadata.Name] = true
		kinds = append(kinds, head.Kind)
	}
	if set == nil {
		return nil, fmt.Errorf("there is no DaemonSet")
	}
	return kinds, whole(set, names)
}

// whole checks what the types do not: that names in the DaemonSet lead somewhere.
func whole(set *apps.DaemonSet, names map[string]bool) error {
	pod := &set.Spec.Template
	for k, v := range set.Spec.Selector.MatchLabels {
		if pod.Labels[k] != v {
			return fmt.Errorf("the selector's label %s is not the pod's", k)
		}
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil && !names["ConfigMap/"+s.ConfigMap.Name] || s.Secret != nil && !names["Secret/"+s.Secret.Name] {
				return fmt.Errorf("volume %s is made of something that is not there", v.Name)
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				return fmt.Errorf("there is no volume %s", m.Name)
			}
		}
		for _, p := range []*core.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if p != nil && p.TCPSocket != nil && !ports[p.TCPSocket.Port.StrVal] {
				return fmt.Errorf("there is no port %s", p.TCPSocket.Port.String())
			}
		}
	}
	return nil
}
