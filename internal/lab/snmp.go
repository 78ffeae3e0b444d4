// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Counters are a host's protocol counters by name, such as "TcpActiveOpens",
// "TcpExtListenDrops", "MPTcpExtMPCapableSYNRX" or "Udp6InDatagrams": what the
// kernel counted, to compare with what a workload or a tool says.
type Counters map[string]int64

// Counters reads /proc/net/snmp, netstat and snmp6 of a host.
func (w *World) Counters(host string) (Counters, error) {
	c := Counters{}
	err := w.Do(host, func() error {
		for file, read := range map[string]func(Counters, *bufio.Scanner) error{
			"snmp": Counters.pairs, "netstat": Counters.pairs, "snmp6": Counters.lines,
		} {
			f, err := os.Open("/proc/thread-self/net/" + file)
			if errors.Is(err, fs.ErrNotExist) {
				continue // no IPv6
			}
			if err != nil {
				return err
			}
			defer f.Close()
			sc := bufio.NewScanner(f)
			if err := errors.Join(read(c, sc), sc.Err()); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lab: counters: %w", err)
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
