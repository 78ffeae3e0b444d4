// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A server answers PromQL, as Prometheus and VictoriaMetrics do.
type server struct{ url string }

// A series is one series of an answer.
type series struct {
	Metric map[string]string
	Value  point
	Values []point // for a range query
}

// A point is a time and a value.
type point struct{ At, Value float64 }

func (p *point) UnmarshalJSON(b []byte) error {
	var pair [2]any
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	at, isNumber := pair[0].(float64)
	text, isText := pair[1].(string)
	if !isNumber || !isText {
		return fmt.Errorf("%s is not a point", b)
	}
	value, err := strconv.ParseFloat(text, 64)
	*p = point{at, value}
	return err
}

// get reads a page.
func get(ctx context.Context, address string, head ...string) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i < len(head); i += 2 {
		req.Header.Set(head[i], head[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", address, resp.Status, b)
	}
	return b, resp.Header, err
}

// ask returns the answer to an instant query.
func (s server) ask(ctx context.Context, format string, args ...any) ([]series, error) {
	query := fmt.Sprintf(format, args...)
	b, _, err := get(ctx, s.url+"/api/v1/query?query="+url.QueryEscape(query))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error string
		Data  struct{ Result []series }
	}
	if err := json.Unmarshal(b, &answer); err != nil || answer.Error != "" {
		return nil, fmt.Errorf("%s: %v %s", query, err, answer.Error)
	}
	return answer.Data.Result, nil
}

// one returns the value of a query with one series.
func (s server) one(ctx context.Context, format string, args ...any) (float64, error) {
	all, err := s.ask(ctx, format, args...)
	if err != nil {
		return 0, err
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("%s: %d series, want 1", fmt.Sprintf(format, args...), len(all))
	}
	return all[0].Value.Value, nil
}

// is waits until a query has one series with the value want.
func (s server) is(ctx context.Context, patience time.Duration, want float64, format string, args ...any) error {
	return await(ctx, patience, func() error {
		got, err := s.one(ctx, format, args...)
		if err == nil && got != want {
			err = fmt.Errorf("%s is %v, want %v", fmt.Sprintf(format, args...), got, want)
		}
		return err
	})
}

// An alert is an alert of Prometheus.
type alert struct {
	Labels      map[string]string
	Annotations map[string]string
	State       string
	ActiveAt    time.Time
}

// alerts returns the alerts that are pending or firing.
func (s server) alerts(ctx context.Context) ([]alert, error) {
	b, _, err := get(ctx, s.url+"/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	var answer struct{ Data struct{ Alerts []alert } }
	err = json.Unmarshal(b, &answer)
	return answer.Data.Alerts, err
}

// firing returns the firing alerts with the given name.
func (s server) firing(ctx context.Context, name string) (out []alert, err error) {
	all, err := s.alerts(ctx)
	for _, a := range all {
		if a.State == "firing" && a.Labels["alertname"] == name {
			out = append(out, a)
		}
	}
	return out, err
}
