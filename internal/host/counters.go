// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"errors"
	"fmt"
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

// ReadCounters reads snmp, netstat and snmp6 in a directory such as
// /proc/thread-self/net.
func ReadCounters(dir string) (Counters, error) {
	c := Counters{}
	for file, read := range map[string]func(Counters, *bufio.Scanner) error{
		"snmp": Counters.pairs, "netstat": Counters.pairs, "snmp6": Counters.lines,
	} {
		f, err := os.Open(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) && file == "snmp6" {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		sc := bufio.NewScanner(f)
		if err := errors.Join(read(c, sc), sc.Err()); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return c, nil
}

// Since gives the counters that moved between before and c.
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

// AllNetns lists the network namespaces that processes live in, or threads of
// this one, and those that ip-netns(8) has a name for. Others exist: held by a
// descriptor, or by a thread of another process.
func AllNetns() []Netns {
	var all []Netns
	seen := map[uint32]bool{}
	patterns := []string{"/proc/[0-9]*/ns/net", "/proc/self/task/*/ns/net"}
	for _, dir := range netnsDirs {
		patterns = append(patterns, dir+"/*")
	}
	for _, p := range patterns {
		paths, _ := filepath.Glob(p)
		for _, path := range paths {
			ino, err := netnsFile(path)
			if err != nil || seen[ino] {
				continue // it ended, or is somebody else's
			}
			seen[ino] = true
			all = append(all, Netns{ino, path})
		}
	}
	return all
}

// Counters reads the protocol counters of the namespace.
func (n Netns) Counters() (Counters, error) {
	if dir, ok := strings.CutSuffix(n.path, "/ns/net"); ok {
		return ReadCounters(dir + "/net")
	}
	var c Counters
	err := n.Do(func() (err error) {
		c, err = ReadCounters("/proc/thread-self/net")
		return err
	})
	return c, err
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

// enterNetns moves the calling thread. To stay where it is takes no privilege.
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
