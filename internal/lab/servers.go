// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Server is a server program from Debian in a host of the world. It writes a
// log.
type Server struct {
	Addr netip.AddrPort
	log  string // a file
	cmd  *exec.Cmd
	dir  string
}

// nobody is the user for servers that refuse to run as root.
var nobody = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}

// StartRedis starts redis-server. It keeps nothing on disk.
func StartRedis(w *World, host string) (*Server, error) {
	return startServer(w, host, 6379, []string{"redis-server"}, func(s *Server, path string) ([]string, error) {
		return []string{"--port", "6379", "--bind", s.Addr.Addr().String(), "--save", "", "--appendonly", "no", "--protected-mode", "no", "--enable-debug-command", "yes"}, nil
	})
}

// nginxConf delays a request by a fiftieth of a second for each request before
// it. It logs the client's port and the time of each request. Another port, on all
// addresses, is for HTTP/2.
const nginxConf = `daemon off; master_process off; pid nginx.pid; error_log error.log;
events {}
http {
	log_format took '$remote_port $request_time';
	access_log log took;
	client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
	limit_req_zone $server_port zone=all:1m rate=50r/s;
	server { listen %s; listen %d http2; location / { root www; limit_req zone=all burst=1000; } }
}
`

// NginxHTTP2 is the port on which nginx speaks HTTP/2, without TLS.
const NginxHTTP2 = 8081

// StartNginx starts nginx, which has a small file "/a".
func StartNginx(w *World, host string) (*Server, error) {
	return startServer(w, host, 8080, []string{"nginx", "/usr/sbin/nginx"}, func(s *Server, path string) ([]string, error) {
		conf := filepath.Join(s.dir, "nginx.conf")
		err := errors.Join(os.WriteFile(conf, fmt.Appendf(nil, nginxConf, s.Addr, NginxHTTP2), 0o644),
			os.Mkdir(filepath.Join(s.dir, "www"), 0o755), os.WriteFile(filepath.Join(s.dir, "www", "a"), []byte("hello\n"), 0o644))
		return []string{"-p", s.dir, "-c", conf, "-e", "error.log", "-g", "user root;"}, err
	})
}

// StartPostgres makes a cluster of PostgreSQL and starts it. It logs how long each
// statement took.
func StartPostgres(w *World, host string) (*Server, error) {
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	s, err := startServer(w, host, 5432, append([]string{"postgres"}, installed...), func(s *Server, path string) ([]string, error) {
		if err := os.Chown(s.dir, 65534, 65534); err != nil {
			return nil, err
		}
		data := filepath.Join(s.dir, "data")
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(filepath.Join(filepath.Dir(path), "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")
		cmd.SysProcAttr, cmd.Dir, cmd.Env = nobody, s.dir, []string{"PATH=/usr/bin:/bin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w: %s", err, out)
		}
		hba := filepath.Join(data, "pg_hba.conf")
		if err := os.WriteFile(hba, []byte("host all all 0.0.0.0/0 trust\n"), 0o644); err != nil {
			return nil, err
		}
		return []string{"-D", data, "-c", "listen_addresses=" + s.Addr.Addr().String(), "-c", "port=5432", "-c", "unix_socket_directories=",
			"-c", "fsync=off", "-c", "log_min_duration_statement=0", "-c", "log_line_prefix="}, nil
	})
	return s, err
}

// startServer starts the first program that exists, with the arguments that args
// makes, and returns when it listens. ErrNotSupported: none exists.
func startServer(w *World, host string, port uint16, names []string, args func(s *Server, path string) ([]string, error)) (*Server, error) {
	path, err := "", error(nil)
	for _, name := range names {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lab: %w: %w", ErrNotSupported, err)
	}
	s := &Server{Addr: netip.AddrPortFrom(w.Addr(host, TCP4), port)}
	if s.dir, err = os.MkdirTemp("", "server"); err != nil {
		return nil, err
	}
	s.log = filepath.Join(s.dir, "log")
	arg, err := args(s, path)
	if err == nil {
		err = s.start(w, host, exec.Command(path, arg...))
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("lab: %s: %w", names[0], err)
	}
	return s, nil
}

func (s *Server) start(w *World, host string, cmd *exec.Cmd) error {
	out, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, out, out
	if filepath.Base(cmd.Path) == "postgres" {
		cmd.SysProcAttr = nobody
	}
	if err := w.Do(host, cmd.Start); err != nil {
		return err
	}
	s.cmd = cmd
	for range 1000 {
		c, derr := s.Dial(w, host)
		if derr == nil {
			return c.Close()
		}
		err = derr
		time.Sleep(20 * time.Millisecond) // it does not listen yet: refused
	}
	said, _ := os.ReadFile(s.log)
	return fmt.Errorf("it does not listen: %w: %s", err, said)
}

// Dial connects to it from a host.
func (s *Server) Dial(w *World, host string) (c net.Conn, err error) {
	err = w.Do(host, func() error {
		c, err = net.Dial("tcp", s.Addr.String())
		return err
	})
	return c, err
}

// AwaitClosed returns when the kernel has no open connection with it in a host.
func (s *Server) AwaitClosed(w *World, host string) error {
	return w.AwaitClosed(host, int(s.Addr.Port()))
}

// Lines are what it has logged.
func (s *Server) Lines() ([]string, error) {
	b, err := os.ReadFile(s.log)
	return slices.Collect(strings.Lines(string(b))), err
}

// Stop ends it, and its children with it.
func (s *Server) Stop() {
	if s.cmd != nil && s.cmd.ProcessState == nil {
		s.cmd.Process.Signal(syscall.SIGINT)
		s.cmd.Wait()
	}
	os.RemoveAll(s.dir)
}
