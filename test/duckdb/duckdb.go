// SPDX-License-Identifier: Apache-2.0

// Package duckdb queries DuckDB for tests: an independent reader of Parquet
// files.
package duckdb

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// version is that of the npm package @duckdb/node-api.
const version = "1.5.6-r.1"

//go:embed query.mjs
var script string

// home is the directory in the user's cache that DuckDB is installed in.
func home() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "seine-duckdb-"+version), err
}

// Install puts DuckDB into the user's cache by npm, unless it is there.
func Install(ctx context.Context) error {
	dir, err := home()
	if err != nil || installed(dir) {
		return err
	}
	fmt.Println("installing DuckDB", version)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	// An interrupted installation does not look complete.
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "seine-duckdb-tmp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	out, err := exec.CommandContext(ctx, "npm", "install", "--prefix", tmp, "--ignore-scripts", "--no-audit", "--no-fund", "@duckdb/node-api@"+version).CombinedOutput()
	if err != nil {
		return fmt.Errorf("npm install @duckdb/node-api: %w: %s", err, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

func installed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "node_modules", "@duckdb", "node-api"))
	return err == nil
}

// Query runs statements, separated by semicolons, and returns the rows of the last one as
// JSON. Where DuckDB is not installed the test is skipped.
func Query(t testing.TB, sql string) string {
	t.Helper()
	dir, err := home()
	if err != nil {
		t.Fatal(err)
	}
	if !installed(dir) {
		t.Skip("DuckDB is not installed: make test installs it")
	}
	out, err := Ask(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Ask is Query for a program that has called Install.
func Ask(ctx context.Context, sql string) (string, error) {
	dir, err := home()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "node", "--input-type=module", "-e", script, sql)
	cmd.Dir = dir // where modules are looked for
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("DuckDB: %s: %w: %s%s", sql, err, out, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}
