// SPDX-License-Identifier: Apache-2.0

package front

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"seine/test/programs"
)

// TestPrometheus has a real Prometheus scrape the front, text and then protobuf with native
// histograms, and asks it.
func TestPrometheus(t *testing.T) {
	t.Parallel() // it waits more than it works
	program, err := programs.Prometheus("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, nil)
	w.fill()
	for _, native := range []bool{false, true} {
		t.Run(fmt.Sprintf("native=%v", native), func(t *testing.T) {
			t.Parallel()
			p := startPrometheus(t, program, strings.TrimPrefix(w.server.URL, "http://"), native)
			const service = `{service="slowd :8080"}`
			turns := `seine_turn_seconds_count` + service
			quantile := `histogram_quantile(0.99, seine_turn_seconds_bucket` + service + `)`
			lo, hi := 0.262144, 1.048576 // the classic bucket of 0.3 s
			if native {
				// Of a scrape with native buckets this Prometheus keeps those alone.
				turns = `histogram_count(seine_turn_seconds` + service + `)`
				quantile = `histogram_quantile(0.99, seine_turn_seconds` + service + `)`
				lo, hi = 0.3/1.0906, 0.3*1.0906
			}
			if got := p.ask(turns); got != 100 {
				t.Errorf("%s: %v, want 100", turns, got)
			}
			if got := p.ask(quantile); got < lo || got > hi {
				t.Errorf("p99 is %v, want %v to %v", got, lo, hi)
			}
			if got := p.ask(`sum(seine_tcp_time_seconds_total{service="slowd :8080",part="app"})`); math.Abs(got-29.6) > 1e-9 {
				t.Errorf("%v s in the application, want 29.6", got)
			}
			if got := p.ask(`count(seine_finding{class="app-slow"})`); got != 1 {
				t.Errorf("%v findings, want 1", got)
			}
			p.exemplar(`seine_tcp_connect_seconds`+map[bool]string{false: "_bucket"}[native], lastConnect, map[string]string{"pid": fmt.Sprint(connectPID), "sock": fmt.Sprint(uint64(connectSock))})
		})
	}
}

type prometheusServer struct {
	t   *testing.T
	url string
}

func startPrometheus(t *testing.T, program, target string, native bool) *prometheusServer {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf("scrape_configs:\n- job_name: seine\n  scrape_interval: 1s\n  static_configs: [{targets: [%q]}]\n", target)
	if err := os.WriteFile(filepath.Join(dir, "p.yml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	args := []string{"--config.file=" + filepath.Join(dir, "p.yml"), "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + address}
	features := "exemplar-storage"
	if native {
		features += ",native-histograms"
	}
	args = append(args, "--enable-feature="+features)
	cmd := exec.Command(program, args...)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("%s", b)
		}
	})
	return &prometheusServer{t, "http://" + address}
}

// ask is the value of a query, when there is one.
func (p *prometheusServer) ask(query string) float64 {
	p.t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		var answer struct {
			Error string
			Data  struct{ Result []struct{ Value [2]any } }
		}
		resp, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(query))
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			err = json.Unmarshal(b, &answer)
		}
		if err == nil && len(answer.Data.Result) == 1 {
			v, err := strconv.ParseFloat(answer.Data.Result[0].Value[1].(string), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return v
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s: no answer: %v %s", query, err, answer.Error)
		}
	}
}

// exemplar wants the exemplars of a metric to be one, with this value and these labels.
func (p *prometheusServer) exemplar(metric string, value float64, labels map[string]string) {
	p.t.Helper()
	now := time.Now()
	query := url.Values{"query": {metric}, "start": {fmt.Sprint(now.Add(-time.Hour).Unix())}, "end": {fmt.Sprint(now.Add(time.Hour).Unix())}}
	for end := now.Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		var answer struct {
			Error string
			Data  []struct {
				Exemplars []struct {
					Labels map[string]string
					Value  string
				}
			}
		}
		resp, err := http.Get(p.url + "/api/v1/query_exemplars?" + query.Encode())
		if err == nil {
			err = json.NewDecoder(resp.Body).Decode(&answer)
			resp.Body.Close()
		}
		if err == nil && len(answer.Data) > 0 {
			if got := answer.Data[0].Exemplars; len(answer.Data) != 1 || len(got) != 1 || got[0].Value != fmt.Sprint(value) || !maps.Equal(got[0].Labels, labels) {
				p.t.Errorf("exemplars of %s: %+v, want %v of %v", metric, answer.Data, value, labels)
			}
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s has no exemplar: %v %s", metric, err, answer.Error)
		}
	}
}
