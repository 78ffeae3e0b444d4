// SPDX-License-Identifier: Apache-2.0

// Package proof keeps the results of tests that are too long for make test: one file for each
// proof, NAME.json. make test checks the files. A proof is stale when its inputs have changed in
// too many commits.
package proof

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Proof is the result of one run of a long test.
type Proof struct {
	Name    string            `json:"name"`
	OK      bool              `json:"ok"`
	Date    string            `json:"date"`
	Kernels []string          `json:"kernels"`
	Inputs  []string          `json:"inputs"` // files and folders that it is about, * for any name
	Hash    string            `json:"hash"`   // of the inputs
	Figures map[string]string `json:"figures"`
}

// Folder is where the proofs are, below the root of the tree.
const Folder = "test/proof"

// Behind is how many commits may change the inputs of a proof before it is stale.
const Behind = 30

// Required are the proofs that must exist. Every other file in Folder is checked too.
var Required = []string{
	"faults", "fleet", "mutants", "record", "soak",
	Full + "native", Full + "5.10", Full + "6.1", Full + "6.12", Full + "new", Full + "arm64", Full + "peers",
}

// inputs is the files that each proof is about.
var inputs = map[string][]string{
	"faults":    {"internal/watch", "internal/why", "tools/flows", "test/why"},
	"mutants":   {"bpf", "tools/*/*.bpf.c", "tools/*/live*.go", "tools/*/demo.go", "test/live"},
	"test-full": {"bpf", "tools/*/*.bpf.c", "tools/*/live*.go", "tools/*/demo.go", "internal/probe", "internal/tool", "internal/bt", "test/live", "test/vm"},
	"record":    {"internal/journal", "internal/record"},
	"fleet":     {"deploy", "internal/agent", "internal/front", "internal/record", "test/fleet"},
	"soak":      {"bpf", "internal/tool", "internal/probe", "internal/kern", "tools/tcplife", "tools/solife", "tools/tcptop", "test/soak"},
}

// Full begins the names of the proofs of make test-full, one for each kernel. They are about the
// same files.
const Full = "test-full-"

// inputsOf is the files that a proof is about.
func inputsOf(name string) []string {
	if strings.HasPrefix(name, Full) {
		name = strings.TrimSuffix(Full, "-")
	}
	return inputs[name]
}

// target is the make target that writes a proof.
func target(name string) string {
	if step, ok := strings.CutPrefix(name, Full); ok {
		return "test-full only=" + step
	}
	return name
}

// Of begins a proof of the tree at root.
func Of(root, name, kernel string) (*Proof, error) {
	in := inputsOf(name)
	if in == nil {
		return nil, fmt.Errorf("there is no proof %s: add what it is about to %s", name, Folder)
	}
	hash, err := hashOf(root, in)
	return &Proof{Name: name, Date: time.Now().UTC().Format(time.DateOnly), Kernels: []string{kernel}, Inputs: in, Hash: hash, Figures: map[string]string{}}, err
}

// Write puts the proof into its file.
func (p *Proof) Write(root string) error {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(p.file(root), append(b, '\n'), 0o644)
}

func (p *Proof) file(root string) string { return filepath.Join(root, Folder, p.Name+".json") }

// passed is the last line of make test.
var passed = regexp.MustCompile(`^\d+ passed, \d+ failed`)

// Attr takes a figure from a line: from t.Attr of a test under go test -v, from a
// command that prints the same form, or from the last line of make test.
func (p *Proof) Attr(line string) {
	if passed.MatchString(line) {
		p.Figures["tests"] = line
	}
	rest, ok := strings.CutPrefix(line, "=== ATTR  ")
	if words := strings.SplitN(rest, " ", 3); ok && len(words) == 3 {
		p.Figures[words[1]] = strings.TrimSpace(words[2])
	}
}

// A Verdict is the state of a proof.
type Verdict struct {
	Name, Text string
	Err        error // the reason why it is not valid
}

// Check looks at all proofs of a tree.
func Check(root string) ([]Verdict, error) {
	files, err := filepath.Glob(filepath.Join(root, Folder, "*.json"))
	if err != nil {
		return nil, err
	}
	names := slices.Clone(Required)
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	slices.Sort(names)
	var out []Verdict
	for _, name := range slices.Compact(names) {
		text, err := check(root, name)
		out = append(out, Verdict{name, text, err})
	}
	return out, nil
}

// Read reads a proof.
func Read(root, name string) (*Proof, error) {
	p := &Proof{Name: name}
	b, err := os.ReadFile(p.file(root))
	if err == nil {
		err = json.Unmarshal(b, p)
	}
	return p, err
}

func check(root, name string) (string, error) {
	p, err := Read(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("it is missing: run make %s", target(name))
	} else if err != nil {
		return "", err
	}
	text := fmt.Sprintf("of %s, on %s", p.Date, strings.Join(p.Kernels, ", "))
	if !p.OK {
		return text, fmt.Errorf("it failed: mend what failed, then run make %s", target(name))
	}
	hash, err := hashOf(root, p.Inputs)
	if err != nil {
		return text, err
	}
	if hash == p.Hash {
		return text + ": nothing has changed since", nil
	}
	n, err := behind(root, p)
	if err != nil {
		return text, err
	}
	text += fmt.Sprintf(": %d commits behind, of %d", n, Behind)
	if n > Behind {
		return text, fmt.Errorf("it is stale: run make %s", target(name))
	}
	return text, nil
}

// behind counts the commits that changed the inputs after the one with the proof.
func behind(root string, p *Proof) (int, error) {
	since, err := git(root, "log", "-1", "--format=%H", "--", filepath.Join(Folder, p.Name+".json"))
	if err != nil || since == "" {
		return 0, err // not committed yet
	}
	n, err := git(root, append([]string{"rev-list", "--count", since + "..HEAD", "--"}, p.Inputs...)...)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(n)
}

func git(root string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// hashOf is over the names and contents of the files.
func hashOf(root string, in []string) (string, error) {
	var folders []string
	for _, pattern := range in {
		some, err := filepath.Glob(filepath.Join(root, pattern))
		if err == nil && len(some) == 0 {
			err = fmt.Errorf("%s: %w", pattern, fs.ErrNotExist)
		}
		if err != nil {
			return "", err
		}
		folders = append(folders, some...)
	}
	sum := sha256.New()
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			name, e := filepath.Rel(root, path)
			fmt.Fprintf(sum, "%s %d\n%s", name, len(b), b)
			return cmp.Or(err, e)
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
