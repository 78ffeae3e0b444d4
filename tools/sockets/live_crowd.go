// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

const (
	crowdBody = "sockets-crowd"
	each      = 23 // sockets of most kinds
	halfOpen  = 5  // connections whose handshake is not complete
	waits     = 7  // connections in TIME_WAIT, and in FIN_WAIT2
)

// crowd opens sockets of all kinds. Many of them then belong to no process.
func crowd(c *lab.Child) error {
	if err := c.Await("go"); err != nil {
		return err
	}
	if err := errors.Join(tcpCrowd(lab.TCP4, "127.0.0.1"), tcpCrowd(lab.TCP6, "[::1]"), udpCrowd(), unixCrowd(), mptcpCrowd()); err != nil {
		return err
	}
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err := errors.Join(err, unix.Bind(l, &unix.SockaddrUnix{Name: sharing(os.Getpid())}), unix.Listen(l, takers)); err != nil {
		return err
	}
	if err := errors.Join(c.Report(true), c.Await("share"), give(l), c.Report(true)); err != nil {
		return err
	}
	return c.Await("end")
}

func tcpCrowd(n lab.Network, ip string) error {
	l, port, err := lab.Listen(n, ip+":0", 100)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("%s:%d", ip, port)
	pair := func() (client, server int, err error) {
		if client, err = lab.Connect(n, at); err != nil {
			return 0, 0, err
		}
		server, err = lab.Accept(l)
		return client, server, err
	}
	for i := range each {
		client, server, err := pair()
		if err == nil && i%2 == 1 {
			err = errors.Join(lab.SendAll(client, make([]byte, i)), lab.SendAll(server, make([]byte, 100*i)), acknowledged(client), acknowledged(server))
		}
		if err == nil && i%3 == 2 { // the other end stays in CLOSE_WAIT
			err = unix.Shutdown(client, unix.SHUT_WR)
		}
		if err != nil {
			return err
		}
	}
	for range waits {
		client, server, err := pair()
		if err := errors.Join(err, lab.Close(client), lab.RecvEnd(server), lab.Close(server)); err != nil {
			return err
		}
		client, server, err = pair()
		if err := errors.Join(err, lab.Close(client), lab.RecvEnd(server)); err != nil {
			return err
		}
	}
	return errors.Join(unsent(pair), unanswered(n, ip))
}

// unsent closes a socket that still has data to send, because the peer's window is closed.
func unsent(pair func() (int, int, error)) error {
	client, server, err := pair()
	if err := errors.Join(err, unix.SetsockoptInt(server, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096), unix.SetNonblock(client, true)); err != nil {
		return err
	}
	for sent := 0; ; {
		n, err := unix.Write(client, make([]byte, 16<<10))
		if errors.Is(err, unix.EAGAIN) {
			if sent == 0 {
				return errors.New("nothing was sent")
			}
			break
		}
		if err != nil {
			return err
		}
		sent += n
	}
	return lab.Close(client)
}

// unanswered makes connections that stay half open: some because the listener waits for their
// data, some because its backlog is full.
func unanswered(n lab.Network, ip string) error {
	l, port, err := lab.Listen(n, ip+":0", 50)
	if err := errors.Join(err, unix.SetsockoptInt(l, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 100)); err != nil {
		return err
	}
	for range halfOpen {
		if _, err := lab.Connect(n, fmt.Sprintf("%s:%d", ip, port)); err != nil {
			return err
		}
	}
	if _, port, err = lab.Listen(n, ip+":0", 0); err != nil { // its backlog has room for one
		return err
	}
	at := fmt.Sprintf("%s:%d", ip, port)
	if _, err := lab.Connect(n, at); err != nil {
		return err
	}
	for range halfOpen {
		if _, err := connecting(n, at); err != nil {
			return err
		}
	}
	return nil
}

// connecting connects a socket to a listener whose backlog is full.
func connecting(n lab.Network, at string) (fd int, err error) {
	sa, err := n.Sockaddr(at)
	if err != nil {
		return 0, err
	}
	fd, err = lab.Socket(n)
	if err := errors.Join(err, unix.SetNonblock(fd, true)); err != nil {
		return 0, err
	}
	if err := unix.Connect(fd, sa); !errors.Is(err, unix.EINPROGRESS) {
		return 0, fmt.Errorf("a connect to a listener without room: %w", err)
	}
	return fd, nil
}

func udpCrowd() error {
	for i := range each {
		n, ip := lab.UDP4, "127.0.0.1"
		if i%2 == 1 {
			n, ip = lab.UDP6, "[::1]"
		}
		if i%5 == 4 {
			n, ip = lab.UDP6, "[::]" // IPv4 too
		}
		udp, port, err := lab.Bind(n, ip+":0")
		if err == nil && i%7 == 3 {
			err = errors.Join(unix.BindToDevice(udp, "lo"), unix.SetsockoptInt(udp, unix.SOL_SOCKET, unix.SO_MARK, 100+i))
		}
		if err != nil {
			return err
		}
		fd, err := lab.Connect(n, fmt.Sprintf("%s:%d", strings.Replace(ip, "[::]", "[::1]", 1), port))
		for j := 0; j < i%4 && err == nil; j++ {
			err = lab.SendAll(fd, make([]byte, 10*i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mptcpCrowd opens a listener with one waiting connection, and a connection with unread data.
func mptcpCrowd() error {
	if lab.MPTCPSupported() != nil {
		return nil
	}
	l, port, err := lab.Listen(lab.MPTCP4, "127.0.0.1:0", 9)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("127.0.0.1:%d", port)
	client, err := lab.Connect(lab.MPTCP4, at)
	if err != nil {
		return err
	}
	if _, err := lab.Accept(l); err != nil {
		return err
	}
	if err := lab.SendAll(client, make([]byte, unread)); err != nil {
		return err
	}
	_, err = lab.Connect(lab.MPTCP4, at)
	return err
}

func unixCrowd() error {
	dir, err := os.MkdirTemp("", "seine-sockets")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // the sockets keep their names
	for i, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		for j := range each {
			fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			for n := range j % 3 {
				if err := lab.SendAll(fds[n%2], make([]byte, j)); err != nil {
					return err
				}
			}
		}
		for _, name := range []string{filepath.Join(dir, fmt.Sprint("of kind ", i)), fmt.Sprintf("@seine-%d-%d", os.Getpid(), i)} {
			name = strings.ReplaceAll(name, " ", "-")
			if err := unixServer(kind, name); err != nil {
				return err
			}
		}
	}
	return inFlight()
}

// unixServer opens a socket with connections that nobody accepts, or with unread datagrams.
func unixServer(kind int, name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err := errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: name})); err != nil {
		return err
	}
	if kind != unix.SOCK_DGRAM {
		if err := unix.Listen(fd, 9); err != nil {
			return err
		}
	}
	for i := range 3 {
		c, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err := errors.Join(err, unix.Connect(c, &unix.SockaddrUnix{Name: name}), lab.SendAll(c, make([]byte, 10+i))); err != nil {
			return err
		}
	}
	return nil
}

// inFlight sends the descriptors of a pair and of a UDP socket to another socket. Nobody
// receives them.
func inFlight() error {
	way, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	sent, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	udp, _, err := lab.Bind(lab.UDP4, "127.0.0.1:0")
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendmsg(way[0], []byte("x"), unix.UnixRights(sent[0], sent[1], udp), nil, 0), lab.Close(sent[0]), lab.Close(sent[1]), lab.Close(udp))
}

// crowds starts a crowd on each host.
func crowds(x *trial.Trial, hosts ...string) (procs []*lab.Proc, err error) {
	for _, h := range hosts {
		p, err := x.World.Start(h, comm, crowdBody, nil)
		if err != nil {
			return nil, err
		}
		procs = append(procs, p)
		if err := p.Call("go", new(bool)); err != nil {
			return nil, err
		}
		if _, err := share(x.World, h, p); err != nil {
			return nil, err
		}
	}
	for _, p := range procs {
		if err := settled(p.PID); err != nil {
			return nil, err
		}
	}
	return procs, nil
}

// snapshot starts crowds and reads the table once.
func snapshot(x *trial.Trial, hosts ...string) (procs []*lab.Proc, rows []*row.Row, err error) {
	if procs, err = crowds(x, hosts...); err != nil {
		return nil, nil, err
	}
	if err := x.Attach(); err != nil {
		return nil, nil, err
	}
	rows, err = x.Detach()
	return procs, rows, err
}

// settled returns when the kernel's tables have not changed for longer than a delayed
// acknowledgement takes. It cannot wait for a quiet network, because SYNs are retransmitted.
func settled(pid int) error {
	var last []string
	return lab.Until("sockets stay as they are", func() (bool, error) {
		time.Sleep(100 * time.Millisecond)
		has, lacks, err := tables(pid)
		if err != nil {
			return false, err
		}
		var now []string
		for _, t := range append(slices.Collect(maps.Values(has)), lacks...) {
			now = append(now, line(t.value))
		}
		slices.Sort(now)
		same := slices.Equal(now, last)
		last = now
		return same, nil
	})
}

func (t told) value(id string) string { return t[id] }

// without: the rows without a process are the sockets that the kernel's tables list and no
// process has open.
func without(x *trial.Trial) error {
	procs, rows, err := snapshot(x, lab.TwoHosts...)
	if err != nil {
		return err
	}
	for _, p := range procs {
		_, tables, err := tables(p.PID)
		if err != nil {
			return err
		}
		var want, got []string
		for _, t := range tables {
			if t["inode"] == "0" && t["proto"] == "unix" {
				continue // unix_diag leaves out connections that are not accepted, and so does ss
			}
			want = append(want, line(t.value))
		}
		for _, r := range rows {
			if r.Get("netns").N == uint64(p.Netns) && r.Get("pid").Kind == row.Null {
				got = append(got, line(func(id string) string { return trial.Value(r.Get(id)) }))
				if trial.Value(r.Get("proto")) == "unix" {
					x.Want(r, "waiting_ms", "-") // it is for TCP only
				}
			}
		}
		same(x, fmt.Sprint(p.PID), got, want)
		// Of both families: TIME_WAIT, FIN_WAIT2, one that still sends, half open, and one
		// that nobody accepts. Besides them: the three sockets in flight.
		if least := 2*(2*waits+1+halfOpen+1) + 3; len(want) < least {
			x.Errorf("the kernel's tables have %d sockets without a process, want %d at least", len(want), least)
		}
	}
	x.NoneLost()
	return nil
}

// line is the values of a socket that the kernel's tables have too, as text.
func line(value func(id string) string) string {
	ids := []string{"proto", "state", "laddr", "lport", "raddr", "rport", "rx_queue_bytes", "tx_queue_bytes"}
	if value("proto") == "unix" {
		ids = []string{"proto", "state", "type", "laddr"}
	}
	for i, id := range ids {
		ids[i] = value(id)
	}
	return strings.Join(ids, " ")
}

// same compares two lists of lines.
func same(x *trial.Trial, name string, got, want []string) {
	slices.Sort(got)
	slices.Sort(want)
	for i, j := 0, 0; i < len(got) || j < len(want); {
		switch {
		case j == len(want) || i < len(got) && got[i] < want[j]:
			x.Errorf("%s: only our rows have %s", name, got[i])
			i++
		case i == len(got) || want[j] < got[i]:
			x.Errorf("%s: no row for %s", name, want[j])
			j++
		default:
			i, j = i+1, j+1
		}
	}
}

// besideSS: the rows are the lines of ss, field by field.
func besideSS(x *trial.Trial) error {
	path, err := exec.LookPath("ss")
	if err != nil {
		return trial.Skip("no ss here")
	}
	procs, err := crowds(x, lab.TwoHosts...)
	if err != nil {
		return err
	}
	ss := func(host string) (lines []string, err error) {
		return lines, x.World.Do(host, func() error {
			out, err := exec.Command(path, "-H", "-tuxMnape").CombinedOutput()
			if err != nil {
				return fmt.Errorf("ss: %w: %s", err, out)
			}
			lines = slices.Collect(strings.Lines(string(out)))
			return nil
		})
	}
	for _, h := range lab.TwoHosts { // the kernel makes the cookies when ss asks for them
		if _, err := ss(h); err != nil {
			return err
		}
	}
	if err := x.Attach(); err != nil {
		return err
	}
	rows, err := x.Detach()
	if err != nil {
		return err
	}
	total := map[string]int{}
	for i, p := range procs {
		lines, err := ss(lab.TwoHosts[i])
		if err != nil {
			return err
		}
		var want, got []string
		for _, line := range lines {
			if strings.HasPrefix(line, "mptcp ") && strings.Contains(line, " ino:0 ") {
				continue // MPTCP connections that are not accepted: see README, "What it misses"
			}
			l, err := ssLine(line)
			if err != nil {
				return fmt.Errorf("ss: %q: %w", line, err)
			}
			want = append(want, l)
			total[strings.Fields(line)[0]]++
		}
		for _, r := range rows {
			if r.Get("netns").N == uint64(p.Netns) && slices.Contains([]string{"tcp", "udp", "unix", "mptcp"}, trial.Value(r.Get("proto"))) {
				got = append(got, rowLine(r))
			}
		}
		same(x, fmt.Sprint(p.PID), got, want)
	}
	least := map[string]int{"tcp": 200, "udp": 90, "u_str": 100, "u_dgr": 100, "u_seq": 100}
	if lab.MPTCPSupported() == nil {
		least["mptcp"] = 2 * 4
	}
	for kind, n := range least {
		if total[kind] < n {
			x.Errorf("ss shows %d sockets of %s, want %d at least", total[kind], kind, n)
		}
	}
	x.NoneLost()
	return nil
}

// ssLine converts a line of ss to the form of rowLine: kind, state, queues, ends, processes, and
// inode, cookie, mark and device where present.
func ssLine(line string) (string, error) {
	f := strings.Fields(line)
	state := strings.NewReplacer("ESTAB", "ESTABLISHED", "WAIT-", "WAIT", "-", "_").Replace(f[1])
	kinds := map[string]string{"u_str": "unix stream", "u_dgr": "unix dgram", "u_seq": "unix seqpacket", "tcp": "tcp stream", "udp": "udp dgram", "mptcp": "mptcp stream"}
	out := []string{kinds[f[0]], state, f[2], f[3]}
	rest := f[4:]
	dev, ofIP := "*", !strings.HasPrefix(f[0], "u_")
	if !ofIP {
		out = append(out, rest[0], zero(rest[1]), zero(rest[3])) // ss does not show the peer's name
		rest = rest[4:]
	} else {
		for i, end := range rest[:2] {
			colon := strings.LastIndex(end, ":")
			host, port := end[:colon], end[colon+1:]
			host, on, _ := strings.Cut(host, "%")
			if i == 0 && on == "lo" {
				dev = "1"
			}
			if host = strings.Trim(host, "[]"); host == "*" {
				host = "::"
			}
			a, err := netip.ParseAddr(host)
			if err != nil {
				return "", err
			}
			if out = append(out, a.Unmap().String(), port); port == "*" {
				out[len(out)-2] = "*"
			}
		}
		rest = rest[2:]
	}
	told := map[string]string{}
	for _, word := range rest {
		name, value, _ := strings.Cut(word, ":")
		told[name] = value
	}
	users, err := ssUsers(told["users"])
	if err != nil {
		return "", err
	}
	if out = append(out, users); ofIP {
		var sock, mark uint64
		fmt.Sscanf(told["sk"], "%x", &sock)
		fmt.Sscanf(told["fwmark"], "0x%x", &mark)
		out = append(out, zero(told["ino"]), fmt.Sprint(sock), zero(fmt.Sprint(mark)), dev)
	}
	return strings.Join(out, " "), nil
}

// ssUsers converts the processes of a line of ss to the form of usersLine.
func ssUsers(s string) (string, error) {
	if s == "" {
		return "*", nil
	}
	named, fd := map[int]string{}, 1<<30
	for _, user := range strings.Split(strings.Trim(s, "()"), "),(") {
		var p, d int
		name, numbers, _ := strings.Cut(user, ",")
		if _, err := fmt.Sscanf(numbers, "pid=%d,fd=%d", &p, &d); err != nil {
			return "", err
		}
		named[p], fd = strings.Trim(name, `"`), min(fd, d)
	}
	return usersLine(named, 0, fmt.Sprint(fd)), nil
}

// usersLine is the processes that have a socket open. A single process has its lowest descriptor
// too. If a row does not name all processes, the line has the number of the others.
func usersLine(named map[int]string, more int, fd string) string {
	var all []string
	for pid, comm := range named {
		all = append(all, fmt.Sprintf("%s/%d", comm, pid))
	}
	slices.Sort(all)
	switch n := len(named) + more; {
	case n == 1:
		return all[0] + " " + fd
	case n > 1+len(also{}):
		return fmt.Sprint(n)
	}
	return strings.Join(all, ",")
}

func zero(s string) string {
	if s == "0" || s == "" {
		return "*"
	}
	return s
}

// rowLine is a row in the form of ssLine.
func rowLine(r *row.Row) string {
	v := func(id string) string {
		if s := trial.Value(r.Get(id)); s != "-" {
			return s
		}
		return "*"
	}
	out := []string{v("proto"), v("type"), v("state")}
	if v("state") == "LISTEN" {
		out = append(out, v("backlog"), v("backlog_max"))
	} else {
		out = append(out, v("rx_queue_bytes"), v("tx_queue_bytes"))
	}
	if v("proto") == "unix" {
		out = append(out, v("laddr"), v("inode"), v("peer_inode"))
	} else {
		out = append(out, v("laddr"), v("lport"), v("raddr"), v("rport"))
	}
	users := "*"
	if named, more := holders(r); len(named) > 0 {
		users = usersLine(named, more, v("fd"))
	}
	if out = append(out, users); v("proto") != "unix" {
		out = append(out, v("inode"), v("sock"), v("mark"), v("ifindex"))
	}
	return strings.Join(out, " ")
}
