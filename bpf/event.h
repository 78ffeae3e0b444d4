/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* event.h - the ring and the head of every event. */
#pragma once
#include "probe.h"

/* A process. All zero: unknown. Go: kern.Who. */
struct who {
	__u64 cgroup;
	__u32 pid, tid, uid;
	__u32 flags; /* WHO_* */
	char comm[16];	 /* of the process: its group leader's */
	char thread[16]; /* of the thread, where it is asked for */
};
#define WHO_IN_CGROUP 1 /* in the cgroup that --cgroup names */

/* What every event begins with. Go: kern.Head. */
struct head {
	__u64 ts;
	__u16 view; /* index of the view that shows it */
	__u16 tool; /* whose event it is: tool_id, set when it is sent */
	__u32 netns;
	struct who who;
};

/* The ring. Several tools may write to the same one: Go gives all of them the map of
 * the engine in place of this one, and the section .data.ring with it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

const volatile __u16 tool_id = 0; /* set by Go: the number of this tool in the ring */

/* Waking the reader costs more than the event itself. So it is woken only when this
 * many bytes wait, or when it rests; otherwise it comes by its own clock. Set by Go.
 */
const volatile __u64 wake_bytes = 0;

/* The reader was woken and has not emptied the ring since. Go sets it to 0 when the
 * ring is empty. So the reader is woken once, not by each event while the ring fills.
 * An event between these two moments does not wake it, but the next event does.
 */
volatile __u64 woken SEC(".data.ring") = 0;
__u64 wakes SEC(".data.ring") = 0; /* how often */

/* The reader has had nothing to read for a while. It does not come by its own clock, and
 * the next event wakes it. Set by Go.
 */
volatile __u64 resting SEC(".data.ring") = 0;

/* The most bytes that may wait in a shared ring for this tool. Events beyond that are
 * lost and counted, so that a flood of one tool's events leaves room for the other
 * tools. 0: the ring is not shared. Set by Go.
 */
const volatile __u64 ring_most = 0;
volatile __u64 ring_sent = 0;  /* bytes, since the start */
volatile __u64 ring_taken = 0; /* of these, bytes that have become rows. Set by Go */

#define EVENT_BYTES(type) (8 /* of the record's header */ + ((sizeof(type) + 7) & ~7ULL))

/* Is there room for another event? Processors that ask at the same time get the same
 * answer, so each of them may exceed the limit by one event.
 */
static __always_inline bool ring_room(__u64 bytes)
{
	return !ring_most || ring_sent - ring_taken + bytes <= ring_most;
}

static __always_inline void ring_count(__u64 bytes)
{
	if (ring_most)
		__sync_fetch_and_add(&ring_sent, bytes);
}

#define EVENT_NEW(type) EVENT_ZERO(type, sizeof(type))

/* An event of which only the first bytes are set to zero: the compiler can set 1024 at
 * most. Of the rest, only the bytes that were written may be read.
 */
#define EVENT_ZERO(type, bytes)                                                \
	({                                                                     \
		type *__e = NULL;                                              \
									       \
		if (ring_room(EVENT_BYTES(type)))                              \
			__e = bpf_ringbuf_reserve(&events, sizeof(type), 0);   \
		if (!__e) {                                                    \
			lose(LOSS_RING);                                       \
		} else {                                                       \
			__builtin_memset(__e, 0, bytes);                       \
			ring_count(EVENT_BYTES(type));                         \
		}                                                              \
		__e;                                                           \
	})

/* Send no event after all. */
#define EVENT_DROP(e)                                                          \
	do {                                                                   \
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);                      \
		ring_count(-EVENT_BYTES(*(e)));                                \
	} while (0)

static __always_inline int event_send(void *e)
{
	__u64 flags = BPF_RB_NO_WAKEUP;
	struct head *h = e; /* what every event begins with */

	h->tool = tool_id;
	if (!woken && (resting || bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >= wake_bytes)) {
		woken = 1;
		__sync_fetch_and_add(&wakes, 1);
		flags = BPF_RB_FORCE_WAKEUP;
	}
	bpf_ringbuf_submit(e, flags);
	return 0;
}

#define VIEW_NOTICE 0xffff /* of struct head: no row, a process to look at */

/* Have Go look at a process now. */
static __always_inline void notice(__u32 pid)
{
	struct head *h = EVENT_NEW(struct head);

	if (!h)
		return;
	h->view = VIEW_NOTICE;
	h->tool = tool_id;
	h->who.pid = pid;
	bpf_ringbuf_submit(h, BPF_RB_FORCE_WAKEUP);
}

/* Keeps a type in the object's BTF, where Go's layout check looks. */
#define KEEP_(type, line) const type *keep_##line __attribute__((unused))
#define KEEP__(type, line) KEEP_(type, line)
#define EVENT(type) KEEP__(type, __LINE__)
