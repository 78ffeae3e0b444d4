// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"seine/internal/kern"
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live returns the live cases that are not in the self-test.
func Live() []trial.Case {
	lab.Register(crowdBody, crowd)
	lab.Register(takerBody, take)
	lab.Register(optionsBody, opting)
	lab.Register(waitingBody, waiting)
	lab.Register(comerBody, comer)
	return []trial.Case{
		{Name: "table", Hosts: lab.TwoHosts, Run: table},
		{Name: "without", Hosts: lab.TwoHosts, Run: without},
		{Name: "filtered", Hosts: lab.TwoHosts, Run: filtered},
		{Name: "protocol", Run: protocol},
		{Name: "shared", Run: shared},
		{Name: "options", Run: opts},
		{Name: "ages", Run: ages},
		{Name: "changes", Run: changes},
		{Name: "waiting", Run: trial.Undisturbed(waited)},
		{Name: "ss", Hosts: lab.TwoHosts, Run: besideSS},
	}
}

// told is the values of a socket in the kernel's tables in /proc. A row must have the same.
type told map[string]string

// table: the rows of a process are its sockets in /proc. They have the addresses, states and
// queues of the kernel's tables and the figures of TCP_INFO.
func table(x *trial.Trial) error {
	var keepers []*keeper
	for _, h := range lab.TwoHosts {
		k, err := start(x.World, h)
		if err != nil {
			return err
		}
		keepers = append(keepers, k)
	}
	if err := errors.Join(x.World.Quiet(), x.Attach()); err != nil {
		return err
	}
	rows, at, err := x.DetachTimed()
	if err != nil {
		return err
	}
	for _, k := range keepers {
		if err := k.compare(x, rows, at); err != nil {
			return err
		}
	}
	x.NoneLost()
	return nil
}

func (k *keeper) compare(x *trial.Trial, rows []*row.Row, at trial.Ended) error {
	want, _, err := tables(k.proc.PID)
	if err != nil {
		return err
	}
	n := len(want)
	for _, r := range rows {
		if r.Get("pid").N != uint64(k.proc.PID) {
			continue
		}
		inode := r.Get("inode").N
		w, ok := want[inode]
		if !ok {
			x.Errorf("a socket that the process does not have, or twice: %s", trial.Dump(r))
			continue
		}
		delete(want, inode)
		w["netns"], w["holders"] = fmt.Sprint(k.proc.Netns), "1"
		for id, value := range w {
			x.Want(r, id, value)
		}
		for e, sent := range map[*end]bool{&k.Client: true, &k.Server: false} {
			if e.Inode == inode {
				k.connected(x, r, e, sent, at)
			}
		}
	}
	for inode, w := range want {
		x.Errorf("no row of socket %d: %v", inode, w)
	}
	// Listeners, connections to one, both ends of a connection, UDP and raw, UNIX.
	if least := 3 + queued + 2 + 4 + 7; n < least {
		x.Errorf("/proc has %d sockets of %d, want %d at least", n, k.proc.PID, least)
	}
	return nil
}

// connected compares an end of the connection with TCP_INFO and the bytes that were sent.
func (k *keeper) connected(x *trial.Trial, r *row.Row, e *end, sent bool, at trial.Ended) {
	x.Want(r, "srtt_us", e.RTT)
	x.Want(r, "cwnd", e.Cwnd)
	x.Want(r, "retrans", e.Retrans)
	x.Want(r, "peer_pid", k.proc.PID)
	x.Want(r, "peer_comm", comm)
	x.Want(r, "cc", e.CC)
	moved, none, age, never := "rx_bytes", "tx_bytes", "last_recv_ms", "last_send_ms"
	if sent {
		moved, none, age, never = none, moved, never, age
	}
	x.Want(r, moved, read+unread)
	x.Want(r, none, 0)
	x.Want(r, never, "-")
	// A time in jiffies is rounded: allow for one at each end.
	got, jiffy := time.Duration(r.Get(age).N)*time.Millisecond, 2*kern.Jiffy()+time.Millisecond
	if least, most := time.Duration(at.From-k.After)-jiffy, time.Duration(at.To-k.Before)+jiffy; got < least || got > most {
		x.Errorf("%s is %v, want %v to %v, in %s", age, got, least, most, trial.Dump(r))
	}
}

// tables reads the tables in /proc/PID/net. It returns the sockets of the process by inode, and
// the other sockets of its network namespace.
func tables(pid int) (has map[uint64]told, without []told, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		return nil, nil, err
	}
	own := map[uint64]string{} // the lowest descriptor
	numbers := make([]int, 0, len(fds))
	for _, f := range fds {
		if n, err := strconv.Atoi(f.Name()); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		var inode uint64
		to, err := os.Readlink(fmt.Sprint(dir, "fd/", n))
		if _, scan := fmt.Sscanf(to, "socket:[%d]", &inode); err == nil && scan == nil && own[inode] == "" {
			own[inode] = fmt.Sprint(n)
		}
	}
	has = map[uint64]told{}
	for name, parse := range map[string]func([]string, string) (uint64, told, error){
		"tcp": inet, "tcp6": inet, "udp": inet, "udp6": inet, "raw": inet, "unix": unixSocket,
	} {
		b, err := os.ReadFile(dir + "net/" + name)
		if err != nil {
			return nil, nil, err
		}
		for i, line := range slices.Collect(strings.Lines(string(b))) {
			if i == 0 {
				continue
			}
			inode, t, err := parse(strings.Fields(line), strings.TrimSuffix(name, "6"))
			if err != nil {
				return nil, nil, fmt.Errorf("/proc/net/%s: %q: %w", name, line, err)
			}
			t["inode"] = fmt.Sprint(inode)
			if fd := own[inode]; fd != "" {
				t["fd"] = fd
				has[inode] = t
			} else {
				without = append(without, t)
			}
		}
	}
	return has, without, nil
}

// inet parses a line of the tables of IP sockets.
func inet(f []string, proto string) (inode uint64, t told, err error) {
	states := map[string]string{"01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT", "07": "CLOSE", "08": "CLOSE_WAIT", "0A": "LISTEN"}
	t = told{"proto": proto, "state": states[f[3]]}
	var tx, rx uint64
	if _, err := fmt.Sscanf(f[4], "%X:%X", &tx, &rx); err != nil {
		return 0, nil, err
	}
	if t["state"] == "LISTEN" {
		t["backlog"] = fmt.Sprint(rx)
	} else {
		t["rx_queue_bytes"], t["tx_queue_bytes"] = fmt.Sprint(rx), fmt.Sprint(tx)
	}
	for i, id := range []string{"laddr", "raddr"} {
		at, err := addrPort(f[1+i])
		if err != nil {
			return 0, nil, err
		}
		t[id], t[id[:1]+"port"] = at.Addr().String(), fmt.Sprint(at.Port())
		if id == "raddr" && at.Port() == 0 {
			t[id], t["rport"] = "-", "-"
		}
	}
	switch proto {
	case "raw": // the table has the protocol in place of the port
		t["proto"], t["lport"], t["type"] = "icmp", "0", "raw"
	case "udp":
		t["type"] = "dgram"
	}
	if proto != "tcp" && t["state"] == "CLOSE" {
		t["state"] = "UNCONN"
	}
	inode, err = strconv.ParseUint(f[9], 10, 64)
	return inode, t, err
}

// addrPort parses an address as the kernel prints it: 32-bit words in the machine's byte order.
func addrPort(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	var b []byte
	for ; len(host) >= 8; host = host[8:] {
		w, err := strconv.ParseUint(host[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, err
		}
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	p, err := strconv.ParseUint(port, 16, 16)
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("not an address: %s", s)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)), err
}

// unixSocket parses a line of the table of UNIX sockets.
func unixSocket(f []string, _ string) (inode uint64, t told, err error) {
	t = told{"proto": "unix", "laddr": "-", "raddr": "-", "type": map[string]string{"0001": "stream", "0002": "dgram", "0005": "seqpacket"}[f[4]]}
	switch {
	case f[3] == "00010000":
		t["state"], t["backlog_max"] = "LISTEN", "5"
	case f[5] == "01": // pairs of datagram sockets have this too before 5.15
		t["state"] = "UNCONN"
	default:
		t["state"] = "ESTABLISHED"
	}
	if len(f) > 7 {
		t["laddr"] = f[7]
	}
	inode, err = strconv.ParseUint(f[6], 10, 64)
	return inode, t, err
}

// filtered: a filter leaves out rows, but the rows that are left still name their peers.
func filtered(x *trial.Trial) error { return known(x, 0) }

// protocol: with --proto only sockets of that protocol have rows, and all of them do.
func protocol(x *trial.Trial) error {
	k, err := start(x.World, "")
	if err != nil {
		return err
	}
	if err := errors.Join(x.World.Quiet(), x.Attach("--proto=udp")); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	has, _, err := tables(k.proc.PID)
	if err != nil {
		return err
	}
	maps.DeleteFunc(has, func(_ uint64, t told) bool { return t["proto"] != "udp" })
	if len(has) != 3 {
		return fmt.Errorf("the process has %d sockets of UDP, want 3", len(has))
	}
	for _, r := range rows {
		x.Want(r, "proto", "udp")
		if r.Get("pid").N == uint64(k.proc.PID) {
			delete(has, r.Get("inode").N)
		}
	}
	for inode, t := range has {
		x.Errorf("socket %d has no row: %v", inode, t)
	}
	x.NoneLost()
	return nil
}
