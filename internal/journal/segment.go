// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ext is what names of segments end with.
const Ext = ".seine"

const stampForm = "20060102T150405Z"

// segmentName is <sequence>-<time>.seine: names sort by the sequence, since clocks step back.
func segmentName(first uint64, at time.Time) string {
	return fmt.Sprintf("%020d-%s%s", first, at.UTC().Format(stampForm), Ext)
}

// firstOf reads the sequence from a name; false: the file is not a segment.
func firstOf(name string) (uint64, bool) {
	seq, stamp, ok := strings.Cut(strings.TrimSuffix(filepath.Base(name), Ext), "-")
	if !ok || len(seq) != 20 || !strings.HasSuffix(name, Ext) {
		return 0, false
	}
	if _, err := time.Parse(stampForm, stamp); err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(seq, 10, 64)
	return n, err == nil
}

// segments lists the segments of a directory, the oldest first.
func segments(dir string) ([]string, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range all {
		if _, ok := firstOf(e.Name()); ok && e.Type().IsRegular() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(names)
	return names, nil
}

// block is what files are rounded up to: a directory takes what its blocks take.
const block = 4096

func blocks(n int64) int64 { return (n + block - 1) / block * block }
