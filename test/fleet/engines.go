// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// An engine is a program of another project, built from its Go module. The build takes minutes, so
// the program is kept in the user's cache.
type engine struct {
	name    string
	module  string
	version string
	command string // its package in the module
	tags    string
	// own is the folder of a module of this tree. It is built in place of module, for a program
	// that is assembled from modules.
	own string
}

// The engines. Prometheus is built without the service discovery of clouds. The hosts are in its
// configuration, and the clients of clouds would take most of the build time.
var engines = []engine{
	{name: "victoria-metrics", module: "github.com/VictoriaMetrics/VictoriaMetrics", version: "v1.130.0", command: "./app/victoria-metrics"},
	{name: "prometheus", module: "github.com/prometheus/prometheus", version: "v0.315.0", command: "./cmd/prometheus", tags: "remove_all_sd"},
	{name: "otelcol", version: "v0.162.0", command: ".", own: "test/fleet/otelcol"},
}

// install builds the engine unless the cache has it, and returns its path.
func (e *engine) install(ctx context.Context, say func(string, ...any)) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key, err := e.key()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "seine", "fleet", e.name+"-"+key)
	if _, err := os.Stat(path); err == nil {
		say("%s %s is in the cache", e.name, e.version)
		return path, nil
	}
	say("%s %s is built, which takes minutes", e.name, e.version)
	began := time.Now()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	source := e.own
	if source == "" {
		if source, err = e.fetch(ctx, filepath.Dir(path)); err != nil {
			return "", err
		}
		defer os.RemoveAll(source)
	}
	// An interrupted build must not look like a complete one.
	made := path + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-C", source, "-trimpath", "-ldflags=-s -w", "-tags="+e.tags, "-o", made, e.command)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	say("%s %s was built in %v", e.name, e.version, time.Since(began).Round(time.Second))
	return path, os.Rename(made, path)
}

// key identifies a build: by version, or by the content of our own module.
func (e *engine) key() (string, error) {
	if e.own == "" {
		return e.version, nil
	}
	sum := sha256.New()
	for _, name := range []string{"go.mod", "main.go"} {
		b, err := os.ReadFile(filepath.Join(e.own, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(b), b)
	}
	return fmt.Sprintf("%s-%.6x", e.version, sum.Sum(nil)), nil
}

// fetch copies the source of the module to a new folder. 'go install' refuses a module whose
// go.mod replaces others. A build in the folder uses its go.mod as it is.
func (e *engine) fetch(ctx context.Context, parent string) (dir string, err error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", e.module+"@"+e.version).Output()
	var at struct{ Dir, Error string }
	if json.Unmarshal(out, &at) == nil && at.Error != "" {
		err = errors.New(at.Error)
	}
	if err != nil {
		return "", fmt.Errorf("go mod download %s@%s: %w", e.module, e.version, err)
	}
	if dir, err = os.MkdirTemp(parent, e.name); err != nil {
		return "", err
	}
	if err = os.CopyFS(dir, os.DirFS(at.Dir)); err != nil {
		os.RemoveAll(dir)
	}
	return dir, err
}
