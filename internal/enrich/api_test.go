// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// socketTree is a tree with a short path: a socket's has 108 bytes at the most. An answer
// may take long while the machine is busy.
func socketTree(t *testing.T) tree {
	t.Helper()
	root, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	usual := apiTimeout
	apiTimeout = time.Minute
	t.Cleanup(func() {
		apiTimeout = usual
		os.RemoveAll(root)
	})
	return tree{t, root}
}

func (t tree) listen(path string) net.Listener {
	t.Helper()
	path = filepath.Join(t.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serve answers like Docker: for the containers that it knows, with the text.
func (t tree) serve(path string, answers map[string]string) *atomic.Int64 {
	t.Helper()
	requests := new(atomic.Int64)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		word, ok := strings.CutPrefix(r.URL.Path, "/containers/")
		answer := answers[strings.TrimSuffix(word, "/json")]
		if !ok || r.Method != http.MethodGet || answer == "" {
			http.Error(w, `{"message":"No such container"}`, http.StatusNotFound)
			return
		}
		if status, ok := strings.CutPrefix(answer, "status "); ok {
			var code int
			fmt.Sscan(status, &code)
			w.Header().Set("Location", "http://elsewhere/")
			w.WriteHeader(code)
			return
		}
		fmt.Fprint(w, answer)
	})}
	l := t.listen(path)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return requests
}

func TestAskSocket(t *testing.T) {
	own := id("api")
	answer := map[string]string{own: `{"Id":"` + own + `","Name":"/web","Config":{"Labels":{"a":"b"}}}`}
	for _, test := range []struct{ socket, cgroup string }{
		{"/run/docker.sock", "/docker/" + own},
		{"/var/run/docker.sock", "/system.slice/docker-" + own + ".scope"},
		{"/run/user/1000/docker.sock", "/user.slice/user-1000.slice/docker-" + own + ".scope"},
		{"/run/podman/podman.sock", "/machine.slice/libpod-" + own + ".scope"},
		{"/run/user/1000/podman/podman.sock", "/user.slice/user-1000.slice/libpod-" + own + ".scope"},
		{"/run/podman/podman.sock", "/mine/" + own},
		{"/run/docker.sock", "/mine/" + own},
	} {
		tree := socketTree(t)
		requests := tree.serve(test.socket, answer)
		c := NewContainers(tree.root)
		wantName(t, c, test.cgroup, own, "web")
		wantName(t, c, test.cgroup, own, "web")
		wantName(t, c, test.cgroup+"/inner", own, "web")
		if got := requests.Load(); got != 1 {
			t.Errorf("%s: %d requests, want 1", test.socket, got)
		}
	}
}

func TestDiskBeforeSocket(t *testing.T) {
	tree, own := socketTree(t), id("disk")
	requests := tree.serve("/run/docker.sock", map[string]string{own: `{"Name":"/socket"}`})
	tree.write("/var/lib/docker/containers/"+own+"/config.v2.json", `{"Name":"/disk"}`)
	wantName(t, NewContainers(tree.root), "/docker/"+own, own, "disk")
	if got := requests.Load(); got != 0 {
		t.Errorf("%d requests, want 0", got)
	}
}

func TestSocketAnswers(t *testing.T) {
	own := id("odd")
	for _, test := range []struct{ name, answer, want string }{
		{"unknown", "", ""},
		{"server error", "status 500", ""},
		{"redirect", "status 302", ""},
		{"forbidden", "status 403", ""},
		{"not JSON", "hello", ""},
		{"truncated", `{"Name":"/web"`, ""},
		{"wrong type", `{"Name":["web"]}`, ""},
		{"huge", `{"x":"` + strings.Repeat("y", 2<<20) + `","Name":"/web"}`, ""},
		{"control characters", `{"Name":"/w\u001b[2Jb"}`, "w\x1b[2Jb"},
		{"long", `{"Name":"` + strings.Repeat("n", 9999) + `"}`, strings.Repeat("n", 256)},
		{"kubernetes", `{"Name":"/k8s_x","Config":{"Labels":{"io.kubernetes.container.name":"c","io.kubernetes.pod.name":"p","io.kubernetes.pod.namespace":"n"}}}`, "n/p/c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := socketTree(t)
			requests := tree.serve("/run/docker.sock", map[string]string{own: test.answer})
			want := test.want
			if want == "" {
				want = own[:12]
			}
			wantName(t, NewContainers(tree.root), "/docker/"+own, own, want)
			if got := requests.Load(); got != 1 {
				t.Errorf("%d requests, want 1", got)
			}
		})
	}
}

// TestHungSocket: a daemon that accepts and says nothing costs one timeout, not
// one for each container, and is asked again after a pause.
func TestHungSocket(t *testing.T) {
	tree := socketTree(t)
	l := tree.listen("/run/docker.sock")
	var accepted atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			defer conn.Close()
		}
	}()
	known := id("known")
	tree.serve("/run/podman/podman.sock", map[string]string{known: `{"Name":"web"}`})

	c := NewContainers(tree.root)
	now := time.Unix(1000, 0)
	c.now = func() time.Time { return now }
	wantAsked := func(want int64) { // it accepts when it gets its turn
		t.Helper()
		for end := time.Now().Add(time.Minute); accepted.Load() < want && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if got := accepted.Load(); got != want {
			t.Errorf("asked %d times, want %d", got, want)
		}
	}
	const short = 50 * time.Millisecond
	for i := range 11 {
		own := id(fmt.Sprint("hung", i))
		answers := apiTimeout
		if i == 0 {
			apiTimeout = short
		}
		start := time.Now()
		wantName(t, c, "/mine/"+own, own, own[:12])
		if took := time.Since(start); i == 0 && took < short {
			t.Errorf("asked for %v, want %v", took, short)
		}
		apiTimeout = answers
	}
	// Podman's socket is not to blame: it is still asked.
	wantName(t, c, "/mine/"+known, known, "web")
	wantAsked(1)
	now = now.Add(apiPause)
	apiTimeout = short
	c.ByCgroupPath("/mine/" + id("hung0"))
	wantAsked(2)
}

// TestReadersDoNotWait: while a socket is being asked, other lookups go on.
func TestReadersDoNotWait(t *testing.T) {
	tree := socketTree(t)
	l := tree.listen("/run/docker.sock")
	c := NewContainers(tree.root)
	wantName(t, c, "/lxc/web", "web", "web")
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.ByCgroupPath("/docker/" + id("slow"))
	}()
	conn, err := l.Accept() // it is being asked from here on
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wantName(t, c, "/lxc/web", "web", "web")
	wantName(t, c, "/system.slice/new.service", "", "")
	select {
	case <-done:
		t.Error("the other lookups waited for the socket")
	default:
	}
	conn.Close()
	<-done
}

func TestDeadSocket(t *testing.T) {
	tree, own := socketTree(t), id("dead")
	l := tree.listen("/run/docker.sock").(*net.UnixListener)
	l.SetUnlinkOnClose(false)
	l.Close()
	c := NewContainers(tree.root)
	tree.write("/var/run/docker.sock", "not a socket")
	wantName(t, c, "/docker/"+own, own, own[:12])
}
