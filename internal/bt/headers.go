// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"maps"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// callNames are the system calls of this machine by their numbers.
var callNames = sync.OnceValue(func() map[int64]string {
	m := map[int64]string{}
	for name, n := range callHeaders() {
		m[n] = name
	}
	return m
})

// headers are the constants that scripts take from headers: macros, of which BTF
// knows nothing, and enumerators that are too common to search the BTF for. Most
// scripts need few of them or none, so that they are gathered when first asked for.
var headers = sync.OnceValue(func() map[string]int64 {
	m := map[string]int64{
		"NULL": 0, "HZ": 250, "PAGE_SIZE": 4096, "TASK_COMM_LEN": 16, "INT_MAX": 1<<31 - 1, "UINT_MAX": 1<<32 - 1, "LONG_MAX": 1<<63 - 1, "PF_UNSPEC": unix.AF_UNSPEC,
		"PF_UNIX": unix.AF_UNIX, "PF_INET": unix.AF_INET, "PF_INET6": unix.AF_INET6, "PF_PACKET": unix.AF_PACKET, "ICMP_ECHO": 8, "ICMP_ECHOREPLY": 0, "ICMP_DEST_UNREACH": 3,
		"ICMPV6_ECHO_REQUEST": 128, "ICMPV6_ECHO_REPLY": 129, "INET_ECN_NOT_ECT": 0, "INET_ECN_ECT_1": 1, "INET_ECN_ECT_0": 2, "INET_ECN_CE": 3, "INET_ECN_MASK": 3,
		"TCP_ESTABLISHED": 1, "TCP_SYN_SENT": 2, "TCP_SYN_RECV": 3, "TCP_FIN_WAIT1": 4, "TCP_FIN_WAIT2": 5, "TCP_TIME_WAIT": 6, "TCP_CLOSE": 7, "TCP_CLOSE_WAIT": 8,
		"TCP_LAST_ACK": 9, "TCP_LISTEN": 10, "TCP_CLOSING": 11, "TCP_NEW_SYN_RECV": 12, "TCP_NAGLE_OFF": 1, "TCP_NAGLE_CORK": 2, "TCP_NAGLE_PUSH": 4, "TCPHDR_FIN": 1,
		"TCPHDR_SYN": 2, "TCPHDR_RST": 4, "TCPHDR_PSH": 8, "TCPHDR_ACK": 16, "TCPHDR_URG": 32, "TCPHDR_ECE": 64, "TCPHDR_CWR": 128, "SK_MEM_SEND": 0, "SK_MEM_RECV": 1,
		"TASK_RUNNING": 0, "TASK_INTERRUPTIBLE": 1, "TASK_UNINTERRUPTIBLE": 2, "PF_KTHREAD": 0x200000, "FMODE_READ": 1, "FMODE_WRITE": 2, "DNAME_INLINE_LEN": 40,
		"MAX_ERRNO": 4095, "NET_XMIT_SUCCESS": 0, "NET_XMIT_DROP": 1, "NET_XMIT_CN": 2, "NSEC_PER_SEC": 1e9, "NSEC_PER_MSEC": 1e6, "NSEC_PER_USEC": 1e3,
		"O_LARGEFILE": 0o100000, "PATH_MAX": 4096, "NAME_MAX": 255, "PIPE_BUF": 4096, "ARG_MAX": 131072, "UIO_MAXIOV": 1024, "IOV_MAX": 1024, "XATTR_NAME_MAX": 255,
		"HOST_NAME_MAX": 64, "CHAR_BIT": 8, "SCHAR_MAX": 127, "UCHAR_MAX": 255, "SHRT_MAX": 1<<15 - 1, "SHRT_MIN": -1 << 15, "USHRT_MAX": 1<<16 - 1, "INT_MIN": -1 << 31,
		"LONG_MIN": -1 << 63, "LLONG_MAX": 1<<63 - 1, "LLONG_MIN": -1 << 63, "ULONG_MAX": -1, "ULLONG_MAX": -1, "U8_MAX": 255, "U16_MAX": 1<<16 - 1, "U32_MAX": 1<<32 - 1, "U64_MAX": -1,
		"S8_MAX": 127, "S16_MAX": 1<<15 - 1, "S32_MAX": 1<<31 - 1, "S64_MAX": 1<<63 - 1, "REQ_OP_BITS": 8, "REQ_OP_MASK": 255, "PF_IDLE": 2, "PF_EXITING": 4, "PF_WQ_WORKER": 0x20,
		"PF_FORKNOEXEC": 0x40, "PF_SUPERPRIV": 0x100, "PF_DUMPCORE": 0x200, "PF_SIGNALED": 0x400, "PF_MEMALLOC": 0x800, "PF_RANDOMIZE": 0x400000, "FUTEX_WAIT": 0,
		"FUTEX_WAKE": 1, "FUTEX_FD": 2, "FUTEX_REQUEUE": 3, "FUTEX_CMP_REQUEUE": 4, "FUTEX_WAKE_OP": 5, "FUTEX_LOCK_PI": 6, "FUTEX_UNLOCK_PI": 7, "FUTEX_TRYLOCK_PI": 8,
		"FUTEX_WAIT_BITSET": 9, "FUTEX_WAKE_BITSET": 10, "FUTEX_WAIT_REQUEUE_PI": 11, "FUTEX_CMP_REQUEUE_PI": 12, "FUTEX_LOCK_PI2": 13, "FUTEX_PRIVATE_FLAG": 128,
		"FUTEX_CLOCK_REALTIME": 256, "FUTEX_CMD_MASK": ^0x180, "FUTEX_WAIT_PRIVATE": 128, "FUTEX_WAKE_PRIVATE": 129, "FUTEX_REQUEUE_PRIVATE": 131,
		"FUTEX_CMP_REQUEUE_PRIVATE": 132, "FUTEX_WAKE_OP_PRIVATE": 133, "FUTEX_LOCK_PI_PRIVATE": 134, "FUTEX_UNLOCK_PI_PRIVATE": 135, "FUTEX_TRYLOCK_PI_PRIVATE": 136,
		"FUTEX_WAIT_BITSET_PRIVATE": 137, "FUTEX_WAKE_BITSET_PRIVATE": 138, "FUTEX_WAIT_REQUEUE_PI_PRIVATE": 139, "FUTEX_CMP_REQUEUE_PI_PRIVATE": 140,
		"FUTEX_LOCK_PI2_PRIVATE": 141, "FUTEX_WAITERS": 0x80000000, "FUTEX_OWNER_DIED": 0x40000000, "FUTEX_TID_MASK": 0x3fffffff, "FUTEX_BITSET_MATCH_ANY": 0xffffffff,
		"ERESTARTSYS": 512, "ERESTARTNOINTR": 513, "ERESTARTNOHAND": 514, "ENOIOCTLCMD": 515, "ERESTART_RESTARTBLOCK": 516, "EPROBE_DEFER": 517, "EOPENSTALE": 518,
		"ENOPARAM": 519, "EBADHANDLE": 521, "ENOTSYNC": 522, "EBADCOOKIE": 523, "ENOTSUPP": 524, "ETOOSMALL": 525, "ESERVERFAULT": 526, "EBADTYPE": 527, "EJUKEBOX": 528,
		"EIOCBQUEUED": 529, "ERECALLCONFLICT": 530, "EWOULDBLOCK": int64(unix.EWOULDBLOCK), "EOPNOTSUPP": int64(unix.EOPNOTSUPP), "EDEADLOCK": int64(unix.EDEADLOCK),
		"SIGIOT": int64(unix.SIGIOT), "SIGPOLL": int64(unix.SIGPOLL), "SIGCLD": int64(unix.SIGCHLD),
	}
	maps.Copy(m, uapiHeaders())
	for name, n := range callHeaders() {
		m["__NR_"+name] = n
	}
	// errno: the kernel's numbers on this machine.
	for i := unix.Errno(1); i < 200; i++ {
		if name := unix.ErrnoName(i); name != "" {
			m[name] = int64(i)
		}
	}
	for i := unix.Signal(1); i < 32; i++ {
		if name := unix.SignalName(i); name != "" {
			m[name] = int64(i)
		}
	}
	for name, n := range m { // families go by two names
		if rest, ok := strings.CutPrefix(name, "AF_"); ok {
			m["PF_"+rest] = n
		}
	}
	return m
})
