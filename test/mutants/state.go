// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// verdict is a mutant and its result.
type verdict struct {
	mutant
	Ended    string   `json:"ended"`
	By       string   `json:"by,omitempty"` // the test that noticed
	Tools    []string `json:"tools,omitempty"`
	Doubtful []string `json:"doubtful,omitempty"` // tests that failed, though not as a kill
	Inputs   string   `json:"inputs"`             // hash of the tree that it was tried in
	Text     string   `json:"text"`               // hash of the mutated file

	taken bool // from an earlier tree
}

// state keeps verdicts in a file, one JSON object a line.
type state struct {
	mu     sync.Mutex
	file   *os.File
	inputs string
	found  map[string]verdict // the last one of each mutant
}

func statePath() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "seine", "mutants.jsonl")
}

func openState(path, inputs string) (*state, error) {
	s := &state{inputs: inputs, found: map[string]verdict{}}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	lines := bufio.NewScanner(strings.NewReader(string(b)))
	for lines.Scan() {
		var v verdict
		if json.Unmarshal(lines.Bytes(), &v) == nil { // else a line that was cut short
			s.found[v.key()] = v
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	s.file, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return s, err
}

func (s *state) close() { s.file.Close() }

// find returns the result of a mutant in this tree. With -keep it also returns results
// of earlier trees, except those of unexplained survivors.
func (s *state) find(m mutant, explained bool) (verdict, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.found[m.key()]
	if !ok || *only != "" {
		return v, false
	}
	if v.Inputs == s.inputs {
		return v, true
	}
	v.taken = true
	return v, *keep && (v.Ended != survived || explained) && v.Text == textHash(m.File)
}

func (s *state) add(v verdict) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Inputs, v.Text = s.inputs, textHash(v.File)
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.file.Write(append(b, '\n'))
	return err
}

// textHash is of a file of the tree; "" if it cannot be read.
func textHash(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

const survivorsFile = "test/mutants/survivors.txt"

//go:embed survivors.txt
var survivorsText string

// explained returns the reasons why mutants are equivalent, by their keys.
func explained() (map[string]string, error) { return parseExplained(survivorsText) }

// parseExplained reads blocks of three lines: the mutant's file, its old line and its
// new one, marked by - and +; then the reason.
func parseExplained(text string) (map[string]string, error) {
	out := map[string]string{}
	for block := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.Lines(block) {
			if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if len(lines) == 0 {
			continue
		}
		if len(lines) < 4 || !strings.HasPrefix(lines[1], "-") || !strings.HasPrefix(lines[2], "+") {
			return nil, fmt.Errorf("%s: %q: want a file, the old line after -, the new one after +, and the reason", survivorsFile, block)
		}
		key := keyOf(lines[0], lines[1][1:], lines[2][1:])
		out[key] = strings.Join(lines[3:], " ")
	}
	return out, nil
}
