// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
)

// jsonl FILE TOOL N checks that there are N rows of TOOL in the form of the
// contract.
func jsonl(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: jsonl FILE TOOL ROWS")
	}
	rows, err := parseRows(ts.ReadFile(args[0]), args[1])
	ts.Check(err)
	if strconv.Itoa(len(rows)) != args[2] {
		ts.Fatalf("%d rows, want %s", len(rows), args[2])
	}
}

var rowStart = regexp.MustCompile(`^\{"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z","tool":"([a-z0-9]+)"`)

// parseRows reads rows: valid JSON, one a line, time and tool first.
func parseRows(text, tool string) (rows []map[string]any, err error) {
	if text != "" && !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line %q has no end", text[strings.LastIndex(text, "\n")+1:])
	}
	for line := range strings.Lines(text) {
		if m := rowStart.FindStringSubmatch(line); m == nil || m[1] != tool {
			return nil, fmt.Errorf("row %q does not begin with the time and the tool %s", line, tool)
		}
		if !utf8.ValidString(line) {
			return nil, fmt.Errorf("row %q is not UTF-8", line)
		}
		r := map[string]any{}
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("row %q: %w", line, err)
		}
		for id, v := range r {
			if v == nil || v == "" || v == "-" {
				return nil, fmt.Errorf("row %q: %s is %v, want it absent", line, id, v)
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// csv FILE N COLUMN… checks a head with these columns, in order, and N rows.
func csvFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: csv FILE ROWS COLUMN…")
	}
	all, err := csv.NewReader(strings.NewReader(ts.ReadFile(args[0]))).ReadAll()
	ts.Check(err)
	if len(all) == 0 || strings.Join(all[0], " ") != strings.Join(args[2:], " ") {
		ts.Fatalf("head is not %v in %q", args[2:], all)
	}
	if strconv.Itoa(len(all)-1) != args[1] {
		ts.Fatalf("%d rows, want %s", len(all)-1, args[1])
	}
}
