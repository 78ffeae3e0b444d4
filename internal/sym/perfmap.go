// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxPerfMap bounds what is read of one perf map: its end, where the newest
// functions are.
const maxPerfMap = 64 << 20

// findPerfMap looks for the file in which a JIT compiler notes what it wrote
// where: /tmp/perf-PID.map, with the process's own view of /tmp and of its PID.
// Anyone may write to /tmp, so the file must belong to the process's user or to
// root, and must not be a link.
func findPerfMap(p place) (found, error) {
	if p.root < 0 {
		return found{}, unix.ENOENT
	}
	status, err := readProc(p.dir+"/status", make([]byte, 8192))
	if err != nil {
		return found{}, err
	}
	pid, uid, ok := parseStatus(status)
	if !ok {
		return found{}, unix.ESRCH
	}
	f, err := findIn(p.root, "tmp/perf-"+pid+".map", unix.O_NOFOLLOW)
	if err != nil {
		return found{}, err
	}
	if f.stat.Uid != 0 && f.stat.Uid != uid {
		f.close()
		return found{}, unix.EPERM
	}
	return f, nil
}

// parseStatus finds in /proc/PID/status the PID in the process's own namespace,
// the last one of NSpid, and the effective user, the second one of Uid.
func parseStatus(b []byte) (pid string, uid uint32, ok bool) {
	hasUID := false
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch string(f[0]) {
		case "NSpid:":
			pid = string(f[len(f)-1])
		case "Uid:":
			if len(f) > 2 {
				n, err := strconv.ParseUint(string(f[2]), 10, 32)
				uid, hasUID = uint32(n), err == nil
			}
		}
	}
	_, err := strconv.ParseUint(pid, 10, 32)
	return pid, uid, hasUID && err == nil
}

// readPerfMap reads a perf map, or the end of one that is too large.
func readPerfMap(f *os.File, size int64) *table {
	off := max(0, size-maxPerfMap)
	return parsePerfMap(io.NewSectionReader(f, off, size-off))
}

// parsePerfMap reads lines like
//
//	7f2a54001000 1c0 LazyCompile:~connect net.js:1042
//
// with numbers in hexadecimal. Lines that make no sense are left out, as the
// first one is when the file is read from the middle.
func parsePerfMap(r io.Reader) *table {
	var b builder
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(in)
		if err != nil {
			break
		}
		addr, line, ok := cutHex(line, ' ')
		if !ok {
			continue
		}
		size, name, ok := cutHex(line, ' ')
		name = bytes.TrimSpace(name)
		if !ok || size == 0 || len(name) == 0 {
			continue
		}
		if !b.add(function{addr: addr}, size, name) {
			break
		}
	}
	b.sort()
	b.newest()
	return b.table()
}
