// SPDX-License-Identifier: Apache-2.0

// Package front is the part of 'seine agent' that talks to the network: metrics, the API, the
// page, and OTLP. It runs in a process of its own without any capability, and gets everything
// from the holder over a socketpair (internal/agent).
package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"seine/internal/agent"
)

// Options of a front.
type Options struct {
	Listen    string   // address and port
	WebConfig string   // file of exporter-toolkit, for TLS and passwords; "": none
	Hosts     []string // names by which it may be asked for, besides localhost, this host's and addresses
	Client    *agent.Client
	Log       *slog.Logger
	// Query writes rows of the recording as lines of JSON. Nil: there is no recording.
	Query func(ctx context.Context, out io.Writer, q Question) error
	// Confine is called when the socket is open, before the first request is taken.
	Confine func() error
	OTLP    *OTLP // nil: nothing is pushed
}

// Limits of what clients can ask for at once.
const (
	mostConns   = 256
	mostStreams = 64
	mostQueries = 2
	mostScrapes = 4
	queryTime   = 10 * time.Second
)

// Run serves until ctx ends or the holder is gone.
func Run(ctx context.Context, o Options) error {
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	if o.Confine != nil {
		if err := o.Confine(); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	handler := New(ctx, o)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	errs := make(chan error, 2)
	go func() {
		systemd := false
		errs <- web.Serve(limit(listener, mostConns), server, &web.FlagConfig{
			WebListenAddresses: &[]string{o.Listen}, WebSystemdSocket: &systemd, WebConfigFile: &o.WebConfig,
		}, o.Log)
	}()
	if o.OTLP != nil {
		go o.OTLP.run(ctx, o.Client, o.Log)
	}
	select {
	case err = <-errs:
	case <-ctx.Done():
	case <-o.Client.Gone():
	}
	stop()
	_ = server.Close()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// limited accepts a limited number of connections. It closes one too many at once, instead of
// letting it wait: clients that hold connections open must not make others hang.
type limited struct {
	net.Listener
	room chan struct{}
}

func limit(l net.Listener, most int) net.Listener {
	return &limited{l, make(chan struct{}, most)}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.room <- struct{}{}:
			return &limitedConn{Conn: c, done: func() { <-l.room }}, nil
		default:
			c.Close()
		}
	}
}

type limitedConn struct {
	net.Conn
	once sync.Once
	done func()
}

func (c *limitedConn) Close() error {
	defer c.once.Do(c.done)
	return c.Conn.Close()
}

// hostname is this machine's.
func hostname() string {
	name, _ := os.Hostname()
	return name
}
