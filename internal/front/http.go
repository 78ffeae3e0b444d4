// SPDX-License-Identifier: Apache-2.0

package front

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"

	"seine/internal/agent"
)

//go:embed page
var page embed.FS

// A Question asks the recording.
type Question struct {
	Tool, Where, By, Since, Until string
	Limit                         int
}

// A handler is all that clients can ask for.
type handler struct {
	Options
	mux     *http.ServeMux
	names   []string // in Host
	queries chan struct{}
	hub     hub
}

// New makes the handler. It polls the holder for streams until ctx ends.
func New(ctx context.Context, o Options) http.Handler {
	h := &handler{Options: o, mux: http.NewServeMux(), queries: make(chan struct{}, mostQueries)}
	h.names = append([]string{"localhost"}, o.Hosts...)
	if name := hostname(); name != "" {
		h.names = append(h.names, strings.ToLower(name))
	}
	h.hub.ask = func() (int, []byte, error) { return o.Client.Ask(ctx, "status", nil) }
	for _, r := range Routes() {
		h.mux.HandleFunc(r.Path, r.serve(h))
	}
	h.mux.Handle("/metrics", h.metrics())
	h.mux.HandleFunc("/", h.static)
	return h
}

// ServeHTTP refuses requests with a foreign Host or another method than GET, and sets the headers
// that all answers have.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	if !h.asked(r.Host) {
		problem(w, http.StatusMisdirectedRequest, fmt.Sprintf("this agent is not called %q: name it with --host", r.Host))
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		problem(w, http.StatusMethodNotAllowed, "nothing can be changed here")
		return
	}
	h.mux.ServeHTTP(w, r)
}

// asked says whether a Host header is one of ours. This stops DNS rebinding: a foreign page
// whose name resolves to this address sends its own name, and cannot send an address.
func (h *handler) asked(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return slices.Contains(h.names, name)
}

// problem answers with an error.
func problem(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"error\":%s}\n", strconv.QuoteToASCII(text))
}

// holder is a handler that hands the holder's answer on.
func (h *handler) holder(what string, params []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		given := r.URL.Query()
		for name := range given {
			if !slices.Contains(params, name) {
				problem(w, http.StatusBadRequest, fmt.Sprintf("there is no parameter %q: there are %s", name, strings.Join(params, ", ")))
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), queryTime)
		defer cancel()
		status, body, err := h.Client.Ask(ctx, what, given)
		if err != nil {
			problem(w, http.StatusServiceUnavailable, "the holder does not answer")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		w.Write(body)
	}
}

// metrics is the scrape.
func (h *handler) metrics() http.Handler {
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		ctx, cancel := context.WithTimeout(context.Background(), queryTime)
		defer cancel()
		families, err := Gather(ctx, h.Client)
		return h.OTLP.with(families), err
	})
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{MaxRequestsInFlight: mostScrapes, ErrorHandling: promhttp.HTTPErrorOnError, EnableOpenMetrics: true})
}

// Gather asks the holder for its metrics.
func Gather(ctx context.Context, c *agent.Client) (out []*dto.MetricFamily, err error) {
	status, body, err := c.Ask(ctx, "metrics", nil)
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", body)
	}
	r := bufio.NewReader(bytes.NewReader(body))
	for {
		f := &dto.MetricFamily{}
		if err := protodelim.UnmarshalFrom(r, f); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
}

// healthz says whether both processes live.
func (h *handler) healthz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if _, _, err := h.Client.Ask(ctx, "status", nil); err != nil {
		problem(w, http.StatusServiceUnavailable, "the holder does not answer")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "ok\n")
}

// readyz says whether the tools are attached.
func (h *handler) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	_, body, err := h.Client.Ask(ctx, "status", nil)
	switch {
	case err != nil:
		problem(w, http.StatusServiceUnavailable, "the holder does not answer")
	case !bytes.Contains(body, []byte(`"ready":true`)):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		w.Write(body)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "ready\n")
	}
}

// static hands out the page.
func (h *handler) static(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	if name == "" {
		name = "index.html"
	}
	b, err := fs.ReadFile(page, "page/"+name)
	if err != nil {
		problem(w, http.StatusNotFound, "there is no such page")
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	w.Write(b)
}

// query answers from the recording, a line of JSON for each row.
func (h *handler) query(w http.ResponseWriter, r *http.Request) {
	if h.Query == nil {
		problem(w, http.StatusNotFound, "nothing is recorded: start the agent with --dir")
		return
	}
	q, err := question(r.URL.Query())
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	select {
	case h.queries <- struct{}{}:
		defer func() { <-h.queries }()
	default:
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusTooManyRequests, fmt.Sprintf("%d queries are under way", mostQueries))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), queryTime)
	defer cancel()
	out := &first{w: w}
	if err := h.Query(ctx, out, q); err != nil && !out.began {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if ctx.Err() != nil { // the answer is not complete: break the connection, so that the client sees it
		panic(http.ErrAbortHandler)
	}
	if !out.began {
		w.Header().Set("Content-Type", "application/x-ndjson")
	}
}

// first sets the type of the answer when there is one.
type first struct {
	w     http.ResponseWriter
	began bool
}

func (f *first) Write(b []byte) (int, error) {
	if !f.began {
		f.began = true
		f.w.Header().Set("Content-Type", "application/x-ndjson")
	}
	return f.w.Write(b)
}

func question(p url.Values) (Question, error) {
	q := Question{Tool: p.Get("tool"), Where: p.Get("where"), By: p.Get("by"), Since: p.Get("since"), Until: p.Get("until"), Limit: 1000}
	for name := range p {
		if !slices.Contains(queryParams, name) {
			return q, fmt.Errorf("there is no parameter %q: there are %s", name, strings.Join(queryParams, ", "))
		}
	}
	if q.Tool == "" {
		return q, errors.New("tool: name a tool of the recording")
	}
	if l := p.Get("limit"); l != "" {
		n, err := strconv.Atoi(l)
		if err != nil || n < 1 || n > 100_000 {
			return q, errors.New("limit: want a number from 1 to 100000")
		}
		q.Limit = n
	}
	return q, nil
}

// events is a stream with one event a second, which says what has changed.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	ch, leave, ok := h.hub.join()
	if !ok {
		problem(w, http.StatusServiceUnavailable, "too many streams")
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for {
		select {
		case body := <-ch:
			if err := control.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "event: status\ndata: %s\n\n", bytes.ReplaceAll(body, []byte("\n"), nil)); err != nil {
				return
			}
			if control.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-h.Client.Gone():
			return
		}
	}
}

// A hub asks the holder once a second for all streams together, while there are any.
type hub struct {
	ask func() (int, []byte, error)
	mu  sync.Mutex
	to  map[chan []byte]bool
}

func (h *hub) join() (ch chan []byte, leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.to) >= mostStreams {
		return nil, nil, false
	}
	ch = make(chan []byte, 1)
	if h.to == nil {
		h.to = map[chan []byte]bool{}
	}
	h.to[ch] = true
	if len(h.to) == 1 {
		go h.run()
	}
	return ch, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.to, ch)
	}, true
}

func (h *hub) run() {
	for {
		status, body, err := h.ask()
		h.mu.Lock()
		if len(h.to) == 0 {
			h.mu.Unlock()
			return
		}
		if err == nil && status == http.StatusOK {
			for ch := range h.to {
				select {
				case ch <- body:
				default: // this stream has not taken the last one yet
				}
			}
		}
		h.mu.Unlock()
		time.Sleep(time.Second)
	}
}
