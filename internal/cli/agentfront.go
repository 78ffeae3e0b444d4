// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/exporter-toolkit/web"
	"github.com/spf13/cobra"

	"seine/internal/agent"
	"seine/internal/front"
	"seine/internal/host"
	"seine/internal/tool"
)

// agentFrontCommand is the agent's second process. It drops all capabilities before it does
// anything else.
func agentFrontCommand(_, stderr io.Writer) *cobra.Command {
	f := &agentFlags{stder: stderr}
	cmd := &cobra.Command{Use: frontName, Short: "the part of the agent that talks to the network; the agent starts it", Hidden: true, Args: cobra.NoArgs}
	f.declare(cmd.Flags())
	cmd.SetFlagErrorFunc(flagError)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := host.Keep(); err != nil {
			return err
		}
		_ = os.WriteFile("/proc/self/comm", []byte("seine"), 0) // it was started as /proc/self/exe
		return f.front(cmd.Context())
	}
	return cmd
}

func (f *agentFlags) front(ctx context.Context) error {
	end := os.NewFile(agent.FrontFD, "holder")
	conn, err := net.FileConn(end)
	if err != nil {
		return tool.Usagef("%s is started by 'seine agent'", frontName)
	}
	end.Close()
	log := slog.New(agentLog(f.log, f.stder))
	o := front.Options{
		Listen: f.listen, WebConfig: f.webConfig, Hosts: f.hosts, Client: agent.NewClient(conn), Log: log,
		Confine: func() error {
			err := host.Confine(f.frontReads())
			if errors.Is(err, errors.ErrUnsupported) {
				log.Info("this kernel has no Landlock: the front can read files")
				return nil
			}
			return err
		},
	}
	if f.dir != "" {
		o.Query = func(ctx context.Context, out io.Writer, q front.Question) error { return ask(ctx, f.dir, out, q) }
	}
	if f.otlp != "" {
		name, _ := os.Hostname()
		o.OTLP = &front.OTLP{URL: f.otlp, Every: f.otlpEvery, Host: name, Version: version()}
	}
	return front.Run(ctx, o)
}

// frontReads are the files that the front may read, and the ports that it may connect to.
func (f *agentFlags) frontReads() (paths []string, ports []uint16) {
	paths = []string{"/etc", "/usr/share/zoneinfo", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/proc/self", "/proc/sys/net/core/somaxconn", "/sys/devices/system/cpu", "/sys/kernel/btf", "/sys/kernel/mm/transparent_hugepage"}
	if f.dir != "" {
		paths = append(paths, f.dir)
	}
	if f.webConfig != "" {
		paths = append(paths, filepath.Dir(f.webConfig)) // its certificates are in the same directory
	}
	if f.otlp != "" {
		if port, err := otlpPort(f.otlp); err == nil {
			ports = append(ports, port, 53)
		}
	}
	return paths, ports
}

// otlpPort is the port of a collector.
func otlpPort(address string) (uint16, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return 0, fmt.Errorf("%q is not an address such as http://127.0.0.1:4318", address)
	}
	port := u.Port()
	if port == "" {
		if port = "80"; u.Scheme == "https" {
			port = "443"
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q has no port: %w", address, err)
	}
	return uint16(n), nil
}

// checkWebConfig checks a web config file of exporter-toolkit.
func checkWebConfig(path string) error { return web.Validate(path) }

// ask writes rows of a recording, as 'seine TOOL --from DIR -o json' does.
func ask(ctx context.Context, dir string, out io.Writer, q front.Question) error {
	t, _ := find(q.Tool)
	if t == nil {
		return fmt.Errorf("there is no tool %q", q.Tool)
	}
	args := []string{"seine", t.Name, "--from=" + dir, "--output=json"}
	for name, value := range map[string]string{"where": q.Where, "by": q.By, "since": q.Since, "until": q.Until} {
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err := execute(ctx, args, &lineLimit{out, q.Limit, stop}, io.Discard)
	if ctx.Err() != nil {
		return nil // the limit or the deadline is reached, which the caller knows
	}
	return err
}

// lineLimit writes at most so many lines.
type lineLimit struct {
	to   io.Writer
	left int
	stop func()
}

func (l *lineLimit) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && l.left > 0 {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			end = len(b)
		} else {
			l.left--
		}
		if _, err := l.to.Write(b[:end]); err != nil {
			return 0, err
		}
		b = b[end:]
	}
	if l.left == 0 {
		l.stop()
	}
	return n, nil
}
