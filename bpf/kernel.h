/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* kernel.h - the few kernel types that we read, in place of a vmlinux.h.
 *
 * Only the fields in use are declared; CO-RE finds them in the running kernel
 * by name, so their order and distance here mean nothing. Bit fields must be
 * declared as bit fields. Fields that not every kernel has are in a struct
 * called <name>___<when>: check bpf_core_type_exists or _field_exists first.
 */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* A number that is not known. Go: kern.None. */
#define NONE (~0ULL)

enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_SK_STORAGE_GET_F_CREATE = 1 };
enum { BPF_F_USER_STACK = 1 << 8 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0 };

/* bpf_tracing.h needs the registers of a probed function; their layout is ABI. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx;
	unsigned long si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31], sp, pc, pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
	__u64 orig_x0;
};
#else
#error "kernel.h: registers of this architecture are not declared"
#endif

#define __VMLINUX_H__ 1 /* keeps bpf_tracing.h from naming kernel headers */
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_DCCP 33
#define IPPROTO_ICMPV6 58
#define IPPROTO_SCTP 132
#define IPPROTO_UDPLITE 136
#define IPPROTO_MPTCP 262

#define ETH_P_IP 0x0800
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86DD
#define ETH_P_8021AD 0x88A8

#define SOCK_RAW 3
#define MSG_PEEK 2
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_TYPE_MASK 0xf /* the rest are flags */
#define MSG_MORE 0x8000
#define MSG_ERRQUEUE 0x2000
#define SOCKFS_MAGIC 0x534F434B
#define ANON_INODE_FS_MAGIC 0x09041934
#define SOCK_DONE 1 /* bit of skc_flags */
#define RCV_SHUTDOWN 1 /* of sk_shutdown */
#define PF_KTHREAD 0x00200000

/* Errors as the kernel returns them. */
#define EINTR 4
#define EAGAIN 11
#define EADDRNOTAVAIL 99
#define ENETUNREACH 101
#define ENOBUFS 105
#define EISCONN 106
#define EALREADY 114
#define EINPROGRESS 115
#define ECANCELED 125
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

enum {
	TCP_ESTABLISHED = 1,
	TCP_SYN_SENT,
	TCP_SYN_RECV,
	TCP_FIN_WAIT1,
	TCP_FIN_WAIT2,
	TCP_TIME_WAIT,
	TCP_CLOSE,
	TCP_CLOSE_WAIT,
	TCP_LAST_ACK,
	TCP_LISTEN,
	TCP_CLOSING,
	TCP_NEW_SYN_RECV,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;
typedef struct {
	__s64 counter;
} atomic64_t;

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};
struct netns_ipv4 {
	__u8 sysctl_tcp_syncookies; /* an int until 5.12; its first byte will do */
};
struct net {
	struct ns_common ns;
	struct netns_ipv4 ipv4;
};
typedef struct {
	struct net *net;
} possible_net_t;

struct proto {
	char name[32];
};

struct sock_common {
	union {
		struct {
			__be32 skc_daddr;
			__be32 skc_rcv_saddr;
		};
	};
	union {
		struct {
			__be16 skc_dport;
			__u16 skc_num;
		};
	};
	unsigned short skc_family;
	volatile unsigned char skc_state;
	unsigned char skc_reuse : 4;
	unsigned char skc_reuseport : 1;
	unsigned char skc_ipv6only : 1;
	int skc_bound_dev_if;
	unsigned long skc_flags;
	possible_net_t skc_net;
	struct proto *skc_prot;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct sk_buff_head {
	__u32 qlen;
};
typedef struct {
	atomic_t refs;
} refcount_t;
struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_type;
	__u16 sk_protocol;
	int sk_err;
	int sk_sndbuf;
	int sk_wmem_queued;
	atomic_t sk_drops;
	struct socket *sk_socket;
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	refcount_t sk_wmem_alloc;
	int sk_rcvbuf;
	__u8 sk_shutdown;
	struct {
		int owned; /* by a system call: the lock is not softirq's */
	} sk_lock;
};

/* Since 6.18 busy sockets spread this count. */
struct numa_drop_counters___since618 {
	atomic_t drops0, drops1;
};
struct sock___since618 {
	struct numa_drop_counters___since618 *sk_drop_counters;
};

struct ipv6_pinfo {
	int mcast_oif;
};
struct inet_sock {
	struct sock sk;
	struct ipv6_pinfo *pinet6;
	__be16 inet_sport;
	int mc_index;
};
struct inet_sock___since66 {
	unsigned long inet_flags;
};
struct inet_sock___until65 {
	__u8 freebind : 1;
	__u8 transparent : 1;
	__u8 bind_address_no_port : 1;
};

struct tcp_congestion_ops {
	char name[16];
};

struct request_sock_queue {
	atomic_t qlen;
};
struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct request_sock_queue icsk_accept_queue;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
	__u8 icsk_pending;
	struct {
		__u8 pending; /* ACK_* of tcptime.h */
		__u32 lrcvtime; /* jiffies */
	} icsk_ack;
	const struct tcp_congestion_ops *icsk_ca_ops;
	void *icsk_ulp_data;
};

struct minmax_sample {
	__u32 t, v;
};
struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u64 bytes_sent;
	__u64 bytes_retrans;
	__u32 segs_out;
	__u32 srtt_us;
	__u32 total_retrans;
	__u32 copied_seq;
	__u32 rcv_nxt;
	__u32 rcv_wnd;
	void *fastopen_req;
	__u32 write_seq;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 snd_wnd;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 sacked_out;
	__u32 lost_out;
	__u32 mss_cache;
	__u8 nonagle : 4;
	__u32 chrono_start; /* jiffies */
	__u32 chrono_stat[3];
	__u8 chrono_type : 2; /* a whole byte since 6.13 */
	__u32 lsndtime; /* jiffies */
	__u64 tcp_mstamp; /* microseconds, as those that follow */
	__u64 first_tx_mstamp;
	__u64 delivered_mstamp;
	struct minmax rtt_min;
	__u32 mdev_us;
	__u32 dsack_dups;
};

struct request_sock {
	struct sock_common __req_common;
	__u8 num_retrans;
};
struct tcp_request_sock {
	__u32 snt_isn;
};
struct inet_timewait_sock {
	struct sock_common __tw_common;
	unsigned char tw_substate;
};

struct net_device {
	char name[16];
	int ifindex;
	possible_net_t nd_net;
	struct netdev_queue *_tx;
};
struct sk_buff {
	struct sk_buff *next;
	struct net_device *dev;
	struct sock *sk;
	char cb[48];
	unsigned int len, data_len;
	int skb_iif;
	__be16 protocol;
	__u16 transport_header;
	__u16 network_header;
	unsigned int tail; /* from head, as end is */
	unsigned int end;
	unsigned char *head, *data;
	__u16 queue_mapping;
	__u8 fclone : 2;
	unsigned long _skb_refdst; /* a struct dst_entry, its lowest bit a flag */
};
struct dst_entry {
	struct net_device *dev;
};
struct kmem_cache {
	const char *name;
};
struct napi_struct {
	struct net_device *dev;
};
struct skb_shared_info {
	unsigned short gso_size;
	unsigned short gso_segs;
};

struct netdev_queue {
	struct net_device *dev;
	struct Qdisc *qdisc;
};
struct Qdisc_ops {
	char id[16];
};
struct qdisc_skb_head {
	__u32 qlen;
};
struct Qdisc {
	int (*enqueue)(void);
	unsigned int flags;
	const struct Qdisc_ops *ops;
	__u32 handle;
	__u32 parent;
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
};

/* The cb of packets in a queueing discipline: 20 bytes are the discipline's own. */
struct qdisc_skb_cb {
	unsigned char data[20];
};

/* The cb of TCP's packets. */
struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	union {
		struct {
			__u16 tcp_gso_segs;
		};
	};
	__u8 tcp_flags;
};
struct sock___drops { /* plain until 6.17 */
	atomic_t sk_drops;
};

/* Kernels without MPTCP do not have these. */
struct tcp_sock___mptcp {
	bool is_mptcp;
};
struct mptcp_subflow_context___mptcp {
	struct sock *conn;
};
struct mptcp_sock___mptcp {
	struct sock *first;
};

struct udp_sock {
	int forward_deficit;
};

struct unix_address {
	int len; /* of the struct sockaddr_un that follows */
};
struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
};

typedef enum { SS_FREE, SS_UNCONNECTED, SS_CONNECTING } socket_state;
struct socket {
	socket_state state;
	short type;
	struct file *file;
	struct sock *sk;
};

struct super_block {
	unsigned int s_dev;
	unsigned long s_magic;
};
struct inode {
	__u16 i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
};
struct qstr {
	const unsigned char *name;
};
struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};
struct vfsmount {
	struct dentry *mnt_root;
};
struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};
struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};
struct fs_struct {
	struct path root;
};
struct file {
	struct inode *f_inode;
	struct path f_path;
	void *private_data;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};

struct kernfs_node {
	__u64 id;
};
struct cgroup {
	int level;
	struct kernfs_node *kn;
};
struct cgroup___since61 {
	struct cgroup *ancestors[1];
};
struct cgroup___until60 {
	__u64 ancestor_ids[1];
};
struct css_set {
	struct cgroup *dfl_cgrp;
};
struct mnt_namespace {
	struct ns_common ns;
};
struct nsproxy {
	struct mnt_namespace *mnt_ns;
	struct net *net_ns;
};
struct linux_binprm {
	struct file *file;
};
typedef struct {
	__u32 val;
} kuid_t;
struct cred {
	kuid_t uid;
};
struct thread_info {
	unsigned long flags;
	__u32 status; /* x86 */
};
struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	int pid;
	int tgid;
	char comm[16];
	__u64 start_time;
	__u64 self_exec_id;
	void *stack;
	struct task_struct *group_leader;
	struct fs_struct *fs;
	struct files_struct *files;
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
	const struct cred *cred;
};

struct irqaction {
	const char *name;
};

struct msghdr {
	void *msg_name;
	unsigned int msg_flags;
};

struct io_kiocb {
	struct file *file;
	__u8 opcode;
};
struct io_socket___since519 { /* a request for a socket */
	int domain, type, protocol;
	__u32 file_slot; /* not 0: into the ring's own table */
};
struct io_uring_cqe {
	__u64 user_data;
	__s32 res;
};

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};
struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	void *map;
	void *key, *value;
};
struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};
struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
};
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

char LICENSE[] SEC("license") = "Dual BSD/GPL";
