// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"golang.org/x/sys/unix"
)

// constant gives the value of an expression of numbers, enumerators and header
// constants.
func constant(x Expr, s *Script) (int64, bool) {
	switch x := x.(type) {
	case *Int:
		return x.V, true
	case *Ident:
		if v, ok := s.enums[x.Name]; ok {
			return v, true
		}
		v, ok := headers[x.Name]
		return v, ok
	case *Unary:
		v, ok := constant(x.X, s)
		switch x.Op {
		case "-":
			return -v, ok
		case "~":
			return ^v, ok
		case "!":
			return b2i(v == 0), ok
		}
	case *Cast:
		v, ok := constant(x.X, s)
		n, known := intNames[x.To.Name]
		if !ok || !known || x.To.Stars > 0 {
			return 0, false
		}
		return truncate(v, n.size, n.signed), true
	case *Binary:
		a, ok1 := constant(x.X, s)
		b, ok2 := constant(x.Y, s)
		if !ok1 || !ok2 {
			return 0, false
		}
		return fold(x.Op, a, b, true)
	}
	return 0, false
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// truncate keeps size bytes of v and widens them again by the sign.
func truncate(v int64, size int, signed bool) int64 {
	if size >= 8 {
		return v
	}
	shift := 64 - 8*size
	if signed {
		return v << shift >> shift
	}
	return int64(uint64(v) << shift >> shift)
}

// fold computes what the emitted instructions compute: 64 bits, shifts by the
// low six bits, x/0 is 0 and x%0 is x, as BPF has it.
func fold(op string, a, b int64, signed bool) (int64, bool) {
	ua, ub := uint64(a), uint64(b)
	switch op {
	case "+":
		return a + b, true
	case "-":
		return a - b, true
	case "*":
		return a * b, true
	case "/":
		switch {
		case b == 0:
			return 0, true
		case signed && b == -1:
			return -a, true
		case signed:
			return a / b, true
		}
		return int64(ua / ub), true
	case "%":
		switch {
		case b == 0:
			return a, true
		case signed && b == -1:
			return 0, true
		case signed:
			return a % b, true
		}
		return int64(ua % ub), true
	case "&":
		return a & b, true
	case "|":
		return a | b, true
	case "^":
		return a ^ b, true
	case "<<":
		return a << (ub & 63), true
	case ">>":
		if signed {
			return a >> (ub & 63), true
		}
		return int64(ua >> (ub & 63)), true
	case "==":
		return b2i(a == b), true
	case "!=":
		return b2i(a != b), true
	case "&&":
		return b2i(a != 0 && b != 0), true
	case "||":
		return b2i(a != 0 || b != 0), true
	}
	if signed {
		switch op {
		case "<":
			return b2i(a < b), true
		case "<=":
			return b2i(a <= b), true
		case ">":
			return b2i(a > b), true
		case ">=":
			return b2i(a >= b), true
		}
	}
	switch op {
	case "<":
		return b2i(ua < ub), true
	case "<=":
		return b2i(ua <= ub), true
	case ">":
		return b2i(ua > ub), true
	case ">=":
		return b2i(ua >= ub), true
	}
	return 0, false
}

// headers are the constants that scripts take from headers: macros, of which BTF
// knows nothing, and enumerators that are too common to search the BTF for.
var headers = map[string]int64{
	"NULL": 0, "HZ": 250, "PAGE_SIZE": 4096, "TASK_COMM_LEN": 16,
	"INT_MAX": 1<<31 - 1, "UINT_MAX": 1<<32 - 1, "LONG_MAX": 1<<63 - 1,

	"AF_UNSPEC": unix.AF_UNSPEC, "AF_UNIX": unix.AF_UNIX, "AF_LOCAL": unix.AF_UNIX, "AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6,
	"AF_NETLINK": unix.AF_NETLINK, "AF_PACKET": unix.AF_PACKET, "AF_VSOCK": unix.AF_VSOCK, "AF_XDP": unix.AF_XDP, "AF_ALG": unix.AF_ALG,
	"AF_BLUETOOTH": unix.AF_BLUETOOTH, "AF_CAN": unix.AF_CAN, "AF_KEY": unix.AF_KEY,
	"PF_UNSPEC": unix.AF_UNSPEC, "PF_UNIX": unix.AF_UNIX, "PF_INET": unix.AF_INET, "PF_INET6": unix.AF_INET6, "PF_PACKET": unix.AF_PACKET,

	"SOCK_STREAM": unix.SOCK_STREAM, "SOCK_DGRAM": unix.SOCK_DGRAM, "SOCK_RAW": unix.SOCK_RAW, "SOCK_SEQPACKET": unix.SOCK_SEQPACKET,
	"SOCK_PACKET": unix.SOCK_PACKET, "SOCK_NONBLOCK": unix.SOCK_NONBLOCK, "SOCK_CLOEXEC": unix.SOCK_CLOEXEC,
	"SOL_SOCKET": unix.SOL_SOCKET, "SOL_TCP": unix.SOL_TCP, "SOL_IP": unix.SOL_IP, "MSG_PEEK": unix.MSG_PEEK, "MSG_DONTWAIT": unix.MSG_DONTWAIT,
	"SHUT_RD": unix.SHUT_RD, "SHUT_WR": unix.SHUT_WR, "SHUT_RDWR": unix.SHUT_RDWR,

	"IPPROTO_IP": unix.IPPROTO_IP, "IPPROTO_ICMP": unix.IPPROTO_ICMP, "IPPROTO_IGMP": unix.IPPROTO_IGMP, "IPPROTO_TCP": unix.IPPROTO_TCP,
	"IPPROTO_UDP": unix.IPPROTO_UDP, "IPPROTO_IPV6": unix.IPPROTO_IPV6, "IPPROTO_GRE": unix.IPPROTO_GRE, "IPPROTO_ESP": unix.IPPROTO_ESP,
	"IPPROTO_AH": unix.IPPROTO_AH, "IPPROTO_ICMPV6": unix.IPPROTO_ICMPV6, "IPPROTO_SCTP": unix.IPPROTO_SCTP,
	"IPPROTO_RAW": unix.IPPROTO_RAW, "IPPROTO_MPTCP": 262, "IPPROTO_UDPLITE": unix.IPPROTO_UDPLITE,

	"ETH_P_IP": unix.ETH_P_IP, "ETH_P_IPV6": unix.ETH_P_IPV6, "ETH_P_ARP": unix.ETH_P_ARP, "ETH_P_8021Q": unix.ETH_P_8021Q, "ETH_P_ALL": unix.ETH_P_ALL,
	"ICMP_ECHO": 8, "ICMP_ECHOREPLY": 0, "ICMP_DEST_UNREACH": 3, "ICMPV6_ECHO_REQUEST": 128, "ICMPV6_ECHO_REPLY": 129,
	"INET_ECN_NOT_ECT": 0, "INET_ECN_ECT_1": 1, "INET_ECN_ECT_0": 2, "INET_ECN_CE": 3, "INET_ECN_MASK": 3,

	"TCP_ESTABLISHED": 1, "TCP_SYN_SENT": 2, "TCP_SYN_RECV": 3, "TCP_FIN_WAIT1": 4, "TCP_FIN_WAIT2": 5, "TCP_TIME_WAIT": 6, "TCP_CLOSE": 7,
	"TCP_CLOSE_WAIT": 8, "TCP_LAST_ACK": 9, "TCP_LISTEN": 10, "TCP_CLOSING": 11, "TCP_NEW_SYN_RECV": 12,
	"TCP_NAGLE_OFF": 1, "TCP_NAGLE_CORK": 2, "TCP_NAGLE_PUSH": 4,
	"TCPHDR_FIN": 1, "TCPHDR_SYN": 2, "TCPHDR_RST": 4, "TCPHDR_PSH": 8, "TCPHDR_ACK": 16, "TCPHDR_URG": 32, "TCPHDR_ECE": 64, "TCPHDR_CWR": 128,
	"SK_MEM_SEND": 0, "SK_MEM_RECV": 1, "SOCKFS_MAGIC": unix.SOCKFS_MAGIC,

	"S_IFMT": unix.S_IFMT, "S_IFSOCK": unix.S_IFSOCK, "S_IFLNK": unix.S_IFLNK, "S_IFREG": unix.S_IFREG, "S_IFBLK": unix.S_IFBLK,
	"S_IFDIR": unix.S_IFDIR, "S_IFCHR": unix.S_IFCHR, "S_IFIFO": unix.S_IFIFO,
	"O_RDONLY": unix.O_RDONLY, "O_WRONLY": unix.O_WRONLY, "O_RDWR": unix.O_RDWR, "O_CREAT": unix.O_CREAT, "O_APPEND": unix.O_APPEND,
	"O_TRUNC": unix.O_TRUNC, "O_NONBLOCK": unix.O_NONBLOCK, "O_CLOEXEC": unix.O_CLOEXEC, "AT_FDCWD": unix.AT_FDCWD,
	"CLONE_THREAD": unix.CLONE_THREAD, "CLONE_NEWNET": unix.CLONE_NEWNET,
	"SCM_RIGHTS":   unix.SCM_RIGHTS,
	"TASK_RUNNING": 0, "TASK_INTERRUPTIBLE": 1, "TASK_UNINTERRUPTIBLE": 2, "PF_KTHREAD": 0x200000,
	"CLONE_VM": unix.CLONE_VM, "CLONE_FS": unix.CLONE_FS, "CLONE_FILES": unix.CLONE_FILES, "CLONE_NEWNS": unix.CLONE_NEWNS, "CLONE_NEWPID": unix.CLONE_NEWPID,
	"PROT_READ": unix.PROT_READ, "PROT_WRITE": unix.PROT_WRITE, "PROT_EXEC": unix.PROT_EXEC,
	"MAP_SHARED": unix.MAP_SHARED, "MAP_PRIVATE": unix.MAP_PRIVATE, "MAP_FIXED": unix.MAP_FIXED, "MAP_ANONYMOUS": unix.MAP_ANONYMOUS,
	"FMODE_READ": 1, "FMODE_WRITE": 2, "DNAME_INLINE_LEN": 40, "MAX_ERRNO": 4095, "IFNAMSIZ": unix.IFNAMSIZ,
	"POLLIN": unix.POLLIN, "POLLOUT": unix.POLLOUT, "POLLERR": unix.POLLERR, "POLLHUP": unix.POLLHUP,
	"EPOLLIN": unix.EPOLLIN, "EPOLLOUT": unix.EPOLLOUT, "EPOLLERR": unix.EPOLLERR, "EPOLLHUP": unix.EPOLLHUP,
	"SO_REUSEADDR": unix.SO_REUSEADDR, "SO_REUSEPORT": unix.SO_REUSEPORT, "SO_SNDBUF": unix.SO_SNDBUF, "SO_RCVBUF": unix.SO_RCVBUF,
	"SO_KEEPALIVE": unix.SO_KEEPALIVE, "SO_LINGER": unix.SO_LINGER, "TCP_NODELAY": unix.TCP_NODELAY, "TCP_CORK": unix.TCP_CORK,
	"NET_XMIT_SUCCESS": 0, "NET_XMIT_DROP": 1, "NET_XMIT_CN": 2, "NSEC_PER_SEC": 1e9, "NSEC_PER_MSEC": 1e6, "NSEC_PER_USEC": 1e3,
}

func init() {
	// errno: the kernel's numbers on this machine.
	for i := unix.Errno(1); i < 200; i++ {
		if name := unix.ErrnoName(i); name != "" {
			headers[name] = int64(i)
		}
	}
	headers["EWOULDBLOCK"] = int64(unix.EWOULDBLOCK)
	// Only the kernel has these.
	headers["ERESTARTSYS"], headers["ENOTSUPP"] = 512, 524
	for i := unix.Signal(1); i < 32; i++ {
		if name := unix.SignalName(i); name != "" {
			headers[name] = int64(i)
		}
	}
}
