// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// cost measures the cost of samples and series in the engines.
func (f *fleet) cost(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.prom.url+"/api/v1/admin/tsdb/snapshot", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	var answer struct{ Data struct{ Name string } }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	resp.Body.Close()
	if err == nil && answer.Data.Name == "" {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	var samples, series, chunks, index float64
	blocks, err := filepath.Glob(f.path("prometheus", "snapshots", answer.Data.Name, "*", "meta.json"))
	if err != nil {
		return err
	}
	for _, file := range blocks {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var meta struct {
			Stats struct{ NumSamples, NumSeries float64 }
		}
		if err := json.Unmarshal(b, &meta); err != nil {
			return err
		}
		samples += meta.Stats.NumSamples
		series += meta.Stats.NumSeries
		dir := filepath.Dir(file)
		chunks += size(filepath.Join(dir, "chunks"))
		index += size(filepath.Join(dir, "index"))
	}
	if samples == 0 || series == 0 {
		return fmt.Errorf("the snapshot %s has no samples", answer.Data.Name)
	}
	f.figure("prometheus-bytes-a-sample", chunks/samples, "%.2f", chunks/samples)
	f.figure("prometheus-index-bytes-a-series", index/series, "%.0f", index/series)

	own, _, err := get(ctx, f.prom.url+"/metrics")
	if err != nil {
		return err
	}
	head, memory := sum(string(own), "prometheus_tsdb_head_series"), sum(string(own), "process_resident_memory_bytes")-f.empty
	f.figure("prometheus-memory-bytes-a-series", memory/head, "%.0f", memory/head)

	if _, _, err := get(ctx, f.vm.url+"/internal/force_flush"); err != nil {
		return err
	}
	own, _, err = get(ctx, f.vm.url+"/metrics")
	if err != nil {
		return err
	}
	var stored, rows float64
	for line := range strings.Lines(string(own)) {
		if strings.Contains(line, `{type="storage/`) {
			stored += sum(line, "vm_data_size_bytes")
			rows += sum(line, "vm_rows")
		}
	}
	if rows == 0 {
		return errors.New("VictoriaMetrics says nothing of its rows")
	}
	f.figure("victoriametrics-bytes-a-sample", stored/rows, "%.2f", stored/rows)
	f.check(true, "cost: Prometheus keeps %.0f samples of %.0f series at %.2f bytes a sample; VictoriaMetrics %.0f at %.2f", samples, series, chunks/samples, rows, stored/rows)
	return nil
}

// size is the total size of the files in a folder, or the size of a file.
func size(path string) (n float64) {
	_ = filepath.WalkDir(path, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += float64(info.Size())
		}
		return nil
	})
	return n
}
