// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"
)

const (
	apiPause    = 30 * time.Second // for a socket that did not serve
	maxResponse = 1 << 20
)

// apiTimeout is for all sockets together. Tests have another one.
var apiTimeout = 300 * time.Millisecond

// api asks runtimes over their sockets. Its users hold Containers.asking.
type api struct {
	blocked map[string]time.Time // sockets to leave alone, until when
}

// apiName asks Docker or podman, who speaks the same protocol.
func (c *Containers) apiName(r ref) string {
	var sockets []string
	if r.runtime == docker || r.runtime == oci {
		sockets = append(sockets, "/run/docker.sock", "/var/run/docker.sock", runtimeDir(r, "docker.sock"))
	}
	if r.runtime == podman || r.runtime == oci {
		sockets = append(sockets, "/run/podman/podman.sock", runtimeDir(r, "podman/podman.sock"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	asked := make(map[string]bool) // /var/run is mostly /run
	for _, socket := range sockets {
		if ctx.Err() != nil {
			break // the time is up: do not blame the next one
		}
		if socket == "" {
			continue
		}
		path, err := filepath.EvalSymlinks(filepath.Join(c.root, socket))
		if err != nil || asked[path] || c.now().Before(c.api.blocked[path]) {
			continue
		}
		asked[path] = true
		name, err := ask(ctx, path, r.id)
		if err != nil {
			c.api.blocked[path] = c.now().Add(apiPause)
		}
		if name != "" {
			return name
		}
	}
	return ""
}

// ask returns "" without an error where the runtime does not know the container.
func ask(ctx context.Context, socket, id string) (string, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		MaxResponseHeaderBytes: 64 << 10,
	}
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://runtime/containers/"+id+"/json", nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return "", nil
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", socket, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return "", err
	}
	var d description
	if err := decode(body, &d); err != nil {
		return "", err
	}
	return d.name(), nil
}
