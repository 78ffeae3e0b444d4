// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Counters are the protocol counters of a network namespace by name, such as
// "TcpActiveOpens", "TcpExtListenDrops", "MPTcpExtMPCapableSYNRX" or
// "Udp6InDatagrams".
type Counters map[string]int64

// CounterFiles are the open files of a network namespace's counters. They can be
// read again without any privilege, and keep the namespace alive until Close.
type CounterFiles []*os.File

// counterFiles are the files in a directory such as /proc/thread-self/net.
var counterFiles = []struct {
	name string
	read func(Counters, *bufio.Scanner) error
}{{"snmp", Counters.pairs}, {"netstat", Counters.pairs}, {"snmp6", Counters.lines}}

// OpenCounters opens the files in a directory such as /proc/7/net. Everybody may
// read those of every process, unlike /proc/7/ns/net.
func OpenCounters(dir string) (CounterFiles, error) {
	var files CounterFiles
	for _, c := range counterFiles {
		f, err := os.Open(filepath.Join(dir, c.name))
		if errors.Is(err, fs.ErrNotExist) && c.name == "snmp6" {
			continue // no IPv6
		}
		if err != nil {
			files.Close()
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Read reads the counters as they are now.
func (files CounterFiles) Read() (Counters, error) {
	c := Counters{}
	for i, f := range files {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		sc := bufio.NewScanner(f)
		if err := errors.Join(counterFiles[i].read(c, sc), sc.Err()); err != nil {
			return nil, fmt.Errorf("%s: %w", counterFiles[i].name, err)
		}
	}
	return c, nil
}

// A CounterReader reads the counters of a network namespace now and then.
type CounterReader struct {
	CounterFiles
	texts [][]byte // of the files, as they were read last
}

// Changed reads the counters in the files that have changed since the last call. Most of the files of
// a quiet machine have not, and need not be parsed. buf is where a file is read to, and is returned
// larger if one had no room.
func (r *CounterReader) Changed(buf []byte) (Counters, []byte, error) {
	if r.texts == nil {
		r.texts = make([][]byte, len(r.CounterFiles))
	}
	c := Counters{}
	for i, f := range r.CounterFiles {
		text, err := readAll(f, buf)
		if err != nil {
			return nil, buf, err
		}
		if buf = text[:cap(text)]; bytes.Equal(text, r.texts[i]) {
			continue
		}
		if err := counterFiles[i].read(c, bufio.NewScanner(bytes.NewReader(text))); err != nil {
			return nil, buf, fmt.Errorf("%s: %w", counterFiles[i].name, err)
		}
		r.texts[i] = append(r.texts[i][:0], text...)
	}
	return c, buf, nil
}

// readAll reads a file from its beginning, into buf if there is room.
func readAll(f *os.File, buf []byte) ([]byte, error) {
	n := 0
	for {
		if n == len(buf) {
			buf = append(buf, make([]byte, max(4096, n))...)
		}
		got, err := f.ReadAt(buf[n:], int64(n))
		n += got
		if err == io.EOF {
			return buf[:n], nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// ID is the inode of one of the files. It is unique to the network namespace.
func (files CounterFiles) ID() uint64 {
	var st unix.Stat_t
	if len(files) == 0 || unix.Fstat(int(files[0].Fd()), &st) != nil {
		return 0
	}
	return st.Ino
}

// Close releases the namespace.
func (files CounterFiles) Close() {
	for _, f := range files {
		f.Close()
	}
}

// ReadCounters opens the files in a directory and reads them once.
func ReadCounters(dir string) (Counters, error) {
	files, err := OpenCounters(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	return files.Read()
}

// Since returns the counters that changed between before and c.
func (c Counters) Since(before Counters) Counters {
	d := Counters{}
	for k, v := range c {
		if v != before[k] {
			d[k] = v - before[k]
		}
	}
	return d
}

// pairs reads lines of names each followed by a line of values.
func (c Counters) pairs(sc *bufio.Scanner) error {
	for sc.Scan() {
		names := strings.Fields(sc.Text())
		if !sc.Scan() {
			return errors.New("a line of names without values")
		}
		values := strings.Fields(sc.Text())
		if len(names) != len(values) || len(names) == 0 || names[0] != values[0] {
			return fmt.Errorf("%d names, %d values", len(names), len(values))
		}
		group := strings.TrimSuffix(names[0], ":")
		for i := 1; i < len(names); i++ {
			if err := c.set(group+names[i], values[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// lines reads one name and value per line.
func (c Counters) lines(sc *bufio.Scanner) error {
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) != 2 {
			return fmt.Errorf("line %q", sc.Text())
		}
		if err := c.set(f[0], f[1]); err != nil {
			return err
		}
	}
	return nil
}

// set parses a value; some are negative, some fill 64 bits.
func (c Counters) set(name, value string) error {
	v, err := strconv.ParseInt(value, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		var u uint64
		u, err = strconv.ParseUint(value, 10, 64)
		v = int64(u)
	}
	c[name] = v
	return err
}

// A Netns is a network namespace and a file that leads to it.
type Netns struct {
	Inode uint32
	path  string // /proc/7/ns/net, /run/netns/blue
}

// AllNetns lists the network namespaces of all threads, and those that ip-netns(8)
// has named. It does not find namespaces that only a descriptor holds. It needs
// CAP_SYS_PTRACE.
func AllNetns() []Netns {
	var paths []string
	for _, p := range numbers("/proc") {
		for _, t := range numbers(p + "/task") {
			paths = append(paths, t+"/ns/net")
		}
	}
	return netnsAt(append(paths, netnsNames()...))
}

// numbers lists the entries of a directory that are numbers. filepath.Glob would also read all
// directories of each process.
func numbers(dir string) (paths []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if n := e.Name(); n[0] >= '0' && n[0] <= '9' {
			paths = append(paths, dir+"/"+n)
		}
	}
	return paths
}

// NamedNetns lists those that ip-netns(8) has named, which needs no privilege.
func NamedNetns() []Netns { return netnsAt(netnsNames()) }

func netnsNames() (paths []string) {
	for _, dir := range netnsDirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			paths = append(paths, dir+"/"+e.Name())
		}
	}
	return paths
}

func netnsAt(paths []string) []Netns {
	var all []Netns
	seen := map[uint32]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && seen[uint32(st.Ino)] && strings.HasPrefix(path, "/proc/") {
			continue // most threads share a namespace, and opening each takes five calls
		}
		ino, err := netnsFile(path)
		if err != nil || seen[ino] {
			continue // it has ended, or belongs to another user
		}
		seen[ino] = true
		all = append(all, Netns{ino, path})
	}
	return all
}

// Open opens the files of the namespace's protocol counters.
func (n Netns) Open() (files CounterFiles, err error) {
	if dir, ok := strings.CutSuffix(n.path, "/ns/net"); ok {
		return OpenCounters(dir + "/net")
	}
	err = n.Do(func() (err error) {
		files, err = OpenCounters("/proc/thread-self/net")
		return err
	})
	return files, err
}

// Do runs fn on a thread that is in the namespace.
func (n Netns) Do(fn func() error) error {
	done := make(chan error, 1)
	OnThread(func() {
		err := enterNetns(n.path)
		if err == nil {
			err = fn()
		}
		done <- err
	})
	return <-done
}

// enterNetns moves the calling thread into a namespace. If it is already there,
// no privilege is needed.
func enterNetns(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var here, there unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &here) == nil && unix.Fstat(fd, &there) == nil && here.Ino == there.Ino {
		return nil
	}
	return unix.Setns(fd, unix.CLONE_NEWNET)
}
