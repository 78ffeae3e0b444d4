// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
)

// limit is the longest that a command may take.
const limit = 3 * time.Minute

// loads is what runs beside a command, by the name that marks use.
var loads = map[string]func(*stage) error{
	"":      func(*stage) error { return nil },
	"shop":  (*stage).shop,
	"agent": (*stage).agent,
	"clone": (*stage).clone,
}

// A stage is where the commands of a page run: a directory of their own, and a load
// beside them. They see its network namespace as "shop", and its web server as the
// container "web", in a mount namespace of their own. Nothing is left behind.
type stage struct {
	root string // of the tree
	dir  string // where commands run
	load string

	world  *lab.World
	ended  chan error // takes what the world's load says at its end
	ns     *os.File
	cgroup string
	daemon *exec.Cmd
}

func newStage(root string) (*stage, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "guide")
	return &stage{root: root, dir: dir}, err
}

// close ends the load and removes the directory.
func (s *stage) close() error {
	return firstError(s.end(), os.RemoveAll(s.dir))
}

// set changes the load, unless it runs. The shop begins anew for each command: after some
// ten seconds TCP's backoff makes web wait for a request that was dropped, now and then.
func (s *stage) set(load string) error {
	if load == s.load && load != "shop" {
		return nil
	}
	if err := s.end(); err != nil {
		return err
	}
	s.load = load
	return loads[load](s)
}

// end ends the load.
func (s *stage) end() error {
	if s.daemon != nil {
		_ = s.daemon.Process.Signal(unix.SIGTERM)
		_ = s.daemon.Wait()
		s.daemon = nil
	}
	if s.world == nil {
		return nil
	}
	s.world.Stop()
	<-s.ended // it was stopped, and says so
	s.ns.Close()
	err := s.world.Close()
	s.world = nil
	for _, dir := range []string{s.cgroup, filepath.Dir(s.cgroup)} {
		err = firstError(err, os.Remove(dir))
	}
	return err
}

// container is the id of the container that the web server of the shop is in.
var container = strings.Repeat("5e1ec7ed", 8)

// shop opens the shop of seine demo why, until it is ended. Its web server is in a control group as Docker makes them.
func (s *stage) shop() error {
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		return err
	}
	s.world, s.ended = w, make(chan error, 1)
	if err := w.Do("", func() (err error) { s.ns, err = os.Open("/proc/thread-self/ns/net"); return err }); err != nil {
		return err
	}
	root, err := cgroup2()
	if err != nil {
		return err
	}
	s.cgroup = filepath.Join(root, fmt.Sprintf("guide-%d.slice", os.Getpid()), "docker-"+container+".scope")
	if err := os.MkdirAll(s.cgroup, 0o755); err != nil {
		return err
	}
	go func() {
		s.ended <- lab.RunShop(w, "", lab.Shop{Think: 150 * time.Millisecond, Backlog: 4, Browsers: 12, Pages: math.MaxInt32})
	}()
	for len(w.Procs()) < 3 {
		select {
		case err := <-s.ended:
			s.ended <- err
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
	return os.WriteFile(filepath.Join(s.cgroup, "cgroup.procs"), fmt.Append(nil, w.Procs()[1].PID), 0)
}

// cgroup2 is where cgroup2 is mounted.
func cgroup2() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(string(mounts)) {
		if f := strings.Fields(l); f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("cgroup2 is not mounted")
}

// agent is the shop with an agent that watches it, and waits until it has findings.
func (s *stage) agent() error {
	if err := s.shop(); err != nil {
		return err
	}
	s.daemon = s.command(context.Background(), "exec seine agent --netns shop")
	if err := s.daemon.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Second) {
		r, err := http.Get("http://127.0.0.1:7346/metrics")
		if err != nil {
			continue
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err == nil && bytes.Contains(b, []byte(`class="app-slow"`)) && bytes.Contains(b, []byte(`class="peer-slow",object="browser`)) {
			return nil
		}
	}
	return errors.New("the agent found nothing")
}

// clone has the committed tree in the stage's directory, to add a tool to.
func (s *stage) clone() error {
	out, err := exec.Command("git", "clone", "-q", s.root, s.dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// see shows a command the names of the shop: its network namespace (descriptor 3) and
// its container.
const see = `mount -t tmpfs none /run && mount -t tmpfs none /var/lib &&
mkdir /run/netns && touch /run/netns/shop && mount --bind /proc/self/fd/3 /run/netns/shop &&
mkdir -p /var/lib/docker/containers/$CONTAINER && echo '{"Name":"/web"}' > /var/lib/docker/containers/$CONTAINER/config.v2.json &&
exec 3<&- && `

// command is a line of shell that runs on the stage.
func (s *stage) command(ctx context.Context, line string) *exec.Cmd {
	if s.world != nil {
		line = see + line
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.root+":"+os.Getenv("PATH"), "CONTAINER="+container, "LC_ALL=C.UTF-8")
	if s.world != nil {
		cmd.ExtraFiles = []*os.File{s.ns}
		cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	}
	return cmd
}

// run runs a command and returns the lines that it wrote, as a terminal shows them.
func (s *stage) run(line string) ([]string, error) {
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	out, err := s.command(ctx, line).CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	select {
	case err := <-s.ended: // nil and never ready if there is no world
		s.ended <- err
		return nil, fmt.Errorf("the load %s has ended: %w", s.load, err)
	default:
	}
	text := strings.TrimRight(string(out), "\n")
	if text == "" {
		return nil, errors.New("it wrote nothing")
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines, nil
}
