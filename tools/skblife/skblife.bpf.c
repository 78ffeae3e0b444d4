//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* skblife - the lifetime of packet buffers, from allocation to free.
 *
 * By functions (fexit) the programs see every birth and every death. By tracepoints
 * a buffer is born when a function that makes buffers allocates its slab object, or
 * when it is first seen on reception, because NAPI has a cache of its own. It dies
 * when it is consumed or dropped, or when its slab object is freed.
 */
#include "count.h"
#include "hist.h"
#include "skb.h"
#include "who.h"

/* Go: kind, same order. */
enum life_kind { KIND_ALLOC, KIND_RECEIVE, KIND_CLONE, KIND_SEGMENT, KIND_MERGED, KIND_UNKNOWN, KINDS };

struct life_key {
	__u32 kind;
};
enum key_bits { KEY_kind };
KEEP_ENUM(enum key_bits);

/* A buffer is born as one kind and counts there. If its end was a merge into
 * another buffer, its lifetime counts in KIND_MERGED.
 */
struct life_value {
	struct hist hist;
	__u64 births;
	__u64 merged;
	__u64 unseen;  /* the end was not seen: the memory was allocated again */
	__u64 unknown; /* in KIND_UNKNOWN: the end was seen, but not the birth */
};
COUNT_MAP_OF(BPF_MAP_TYPE_ARRAY, spans, struct life_key, struct life_value, KINDS);

/* The kernel reuses the memory of buffers often. So an entry stays in the map when its
 * buffer ends: that costs less than to delete it and insert it again.
 */
struct life {
	__u64 born;
	__u32 tid; /* by functions: the thread that made it, or ended it if RELEASED */
	__u8 kind;
	__u8 state;
	__u8 merged; /* merged into another buffer: only the free follows */
	__u8 seen : 1;	/* seen on reception */
	__u8 inner : 1; /* another function that makes buffers may have called for it */
};
enum {
	LIVES,
	TOLD,	  /* consumed or dropped: the free of its slab object follows */
	RELEASED, /* by skb_release_head_state */
	GONE,
};

/* Set when the map has been full. From then on entries are deleted at the end. */
bool crowded = false;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__type(key, __u64);
	__type(value, struct life);
} lives SEC(".maps");

static __always_inline __u32 tid_here(void)
{
	return bpf_get_current_pid_tgid();
}

static __always_inline struct life_value *kind_at(__u32 kind)
{
	struct life_key k = { .kind = kind };

	return count_find(COUNTED(spans), &k);
}

static __always_inline void births_add(__u32 kind, __s64 n)
{
	struct life_value *v = kind_at(kind);

	if (v)
		__sync_fetch_and_add(&v->births, n);
}

/* Does this CPU run a softirq? Known only if a filter by process is set. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} softirqs SEC(".maps");

static __always_inline __u32 *softirq_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&softirqs, &zero);
}

KTRACE(enter, softirq_entry, unsigned int vec)
{
	__u32 *in = softirq_here();

	if (in)
		*in = true;
	return 0;
}

KTRACE(leave, softirq_exit, unsigned int vec)
{
	__u32 *in = softirq_here();

	if (in)
		*in = false;
	return 0;
}

/* A driver does not make buffers for a process. Nor does a softirq: it interrupts a task
 * that has nothing to do with it.
 */
static __always_inline bool maker_wanted(__u32 kind)
{
	struct who who = {};
	__u32 *softirq = softirq_here();

	return kind != KIND_RECEIVE && softirq && !*softirq && who_current(&who) && who_wanted(&who);
}

/* The network namespace of a buffer is that of its device if that is known, else that of
 * the current task.
 */
static __always_inline bool birth_wanted(__u32 kind, const struct net_device *dev)
{
	if (!filter_on)
		return true;
	if (filter_on & FILTER_WHO && !maker_wanted(kind))
		return false;
	return netns_wanted(dev ? BPF_CORE_READ(dev, nd_net.net, ns.inum) : task_netns());
}

static __always_inline void replaced(struct life *old)
{
	struct life_value *v;

	if (old->state != LIVES)
		return;
	v = kind_at(old->kind);
	if (v)
		__sync_fetch_and_add(&v->unseen, 1);
}

/* The memory is in use again, for a buffer that the filters leave out. */
static __noinline int forget(__u64 skb)
{
	struct life *l = bpf_map_lookup_elem(&lives, &skb);

	if (!l)
		return 0;
	replaced(l);
	l->state = GONE;
	return 0;
}

static __always_inline int born(__u64 skb, struct life l)
{
	struct life *old = bpf_map_lookup_elem(&lives, &skb);

	if (old) {
		replaced(old);
		*old = l;
	} else if (bpf_map_update_elem(&lives, &skb, &l, BPF_ANY)) {
		crowded = true;
		lose(LOSS_SPAN);
		return 0;
	}
	births_add(l.kind, 1);
	return 0;
}

/* The result of death: no entry, a second report of the same end, or a new end. */
enum { DEATH_UNKNOWN, DEATH_AGAIN, DEATH_NEW };

/* Set the state. At the last state, delete the entry if the map has been full. */
static __always_inline void life_end(struct life *l, __u64 skb, __u8 state)
{
	l->state = state;
	if (state == RELEASED)
		l->tid = tid_here();
	if (crowded && state >= RELEASED)
		bpf_map_delete_elem(&lives, &skb);
}

static __noinline int death(__u64 skb, bool merged, __u8 state)
{
	struct life *l = bpf_map_lookup_elem(&lives, &skb);
	__u64 born;
	__u32 kind;
	struct life_value *v;

	if (!l || l->state >= RELEASED)
		return DEATH_UNKNOWN;
	if (l->state == TOLD) {
		life_end(l, skb, state);
		return DEATH_AGAIN;
	}
	kind = l->kind;
	born = l->born;
	merged |= l->merged;
	life_end(l, skb, state);
	if (merged) {
		v = kind_at(kind);
		if (v)
			__sync_fetch_and_add(&v->merged, 1);
		kind = KIND_MERGED;
	}
	v = kind_at(kind);
	if (v)
		hist_put(&v->hist, bpf_ktime_get_ns() - born);
	return DEATH_NEW;
}

/* With a filter, the tool cannot know whether the buffer would have passed it. */
static __always_inline void unknown(void)
{
	struct life_value *v;

	if (filter_on)
		return;
	v = kind_at(KIND_UNKNOWN);
	if (v)
		__sync_fetch_and_add(&v->unknown, 1);
}

/* By functions. */
static __noinline int made(__u64 skb, __u32 kind, bool inner, const struct net_device *dev)
{
	if (!skb)
		return 0;
	if (!birth_wanted(kind, dev))
		return forget(skb);
	return born(skb, (struct life){ .born = bpf_ktime_get_ns(), .tid = tid_here(), .kind = kind, .inner = inner });
}

/* Functions for drivers may call __alloc_skb, whose program has then counted an alloc. Only this
 * thread has the buffer yet. So an entry of this thread is that one: it is taken back.
 */
static __noinline int made_for(__u64 skb, const struct net_device *dev)
{
	struct life *l = bpf_map_lookup_elem(&lives, &skb);

	if (l && l->inner && l->state == LIVES && l->tid == tid_here()) {
		births_add(l->kind, -1);
		l->state = GONE;
	}
	return made(skb, KIND_RECEIVE, false, dev);
}

#define SKB_ALLOC_RX 2

SEC("fexit/__alloc_skb") int life__fexit__alloc(__u64 *ctx)
{
	return made(ctx[4], ctx[2] & SKB_ALLOC_RX ? KIND_RECEIVE : KIND_ALLOC, true, NULL);
}

SEC("fexit/build_skb") int life__fexit__build(__u64 *ctx)
{
	return made(ctx[2], KIND_RECEIVE, false, NULL);
}

SEC("fexit/__netdev_alloc_skb") int life__fexit__netdev(__u64 *ctx)
{
	return made_for(ctx[3], (void *)ctx[0]);
}

/* Since 5.12. */
SEC("fexit/napi_build_skb") int life__fexit__nbuild(__u64 *ctx)
{
	return made(ctx[2], KIND_RECEIVE, false, NULL);
}

/* Since 6.3. */
SEC("fexit/slab_build_skb") int life__fexit__slab(__u64 *ctx)
{
	return made(ctx[1], KIND_RECEIVE, false, NULL);
}

SEC("fexit/napi_alloc_skb") int life__fexit__napi(__u64 *ctx)
{
	return made_for(ctx[2], BPF_CORE_READ((struct napi_struct *)ctx[0], dev));
}

/* Until 6.9. */
SEC("fexit/__napi_alloc_skb") int life__fexit__napi3(__u64 *ctx)
{
	return made_for(ctx[3], BPF_CORE_READ((struct napi_struct *)ctx[0], dev));
}

/* A clone shares the data of the original and has its age. */
static __noinline int cloned(__u64 skb, __u64 from)
{
	struct life *l = bpf_map_lookup_elem(&lives, &from);
	__u64 when;

	if (!skb)
		return 0;
	if (l && l->state != LIVES)
		l = NULL;
	if (!l && filter_on)
		return forget(skb);
	when = l ? l->born : bpf_ktime_get_ns();
	return born(skb, (struct life){ .born = when, .kind = KIND_CLONE });
}

SEC("fexit/skb_clone") int life__fexit__clone(__u64 *ctx)
{
	return cloned(ctx[2], ctx[0]);
}

/* skb_morph frees the old data and makes a clone of another buffer. */
SEC("fexit/skb_morph") int life__fexit__morph(__u64 *ctx)
{
	return cloned(ctx[0], ctx[1]);
}

#define SEGMENTS 64 /* at most this many segments of a buffer are visited */

SEC("fexit/skb_segment") int life__fexit__segment(__u64 *ctx)
{
	__u64 head = ctx[0], skb = ctx[2];
	struct life *l = bpf_map_lookup_elem(&lives, &head);
	__u64 when;

	if (!l || l->state != LIVES || skb > -4096ULL)
		return 0;
	when = l->born;
	for (int i = 0; i < SEGMENTS && skb; i++) {
		struct life *seg = bpf_map_lookup_elem(&lives, &skb);

		if (seg && seg->state == LIVES && seg->kind != KIND_SEGMENT) {
			births_add(seg->kind, -1);
			births_add(KIND_SEGMENT, 1);
			seg->kind = KIND_SEGMENT;
			seg->born = when;
		}
		skb = (__u64)BPF_CORE_READ((struct sk_buff *)skb, next);
	}
	return 0;
}

static __always_inline int mark_merged(__u64 skb)
{
	struct life *l = bpf_map_lookup_elem(&lives, &skb);

	if (l && l->state == LIVES)
		l->merged = true;
	return 0;
}

SEC("fexit/skb_gro_receive") int life__fexit__gro(__u64 *ctx)
{
	return (int)ctx[2] ? 0 : mark_merged(ctx[1]);
}

SEC("fexit/skb_try_coalesce") int life__fexit__coalesce(__u64 *ctx)
{
	return (__u8)ctx[4] ? mark_merged(ctx[1]) : 0;
}

/* UDP calls the next two functions one after the other for the same buffer. No other
 * thread has the buffer in between.
 */
static __noinline int released(__u64 skb)
{
	struct life mark = { .state = RELEASED, .tid = tid_here() }, *l;

	if (death(skb, false, RELEASED) != DEATH_UNKNOWN || filter_on)
		return 0;
	unknown();
	l = bpf_map_lookup_elem(&lives, &skb);
	if (l)
		*l = mark;
	else if (!crowded && bpf_map_update_elem(&lives, &skb, &mark, BPF_ANY))
		crowded = true;
	return 0;
}

SEC("fentry/skb_release_head_state") int life__fexit__release(__u64 *ctx)
{
	return released(ctx[0]);
}

/* If the map has been full, a missing entry may mean that the buffer was released before
 * or that its birth was refused. Both were counted already.
 */
SEC("fentry/__consume_stateless_skb") int life__fexit__stateless(__u64 *ctx)
{
	__u64 skb = ctx[0];
	struct life *l = bpf_map_lookup_elem(&lives, &skb);

	if (l && l->state == RELEASED && l->tid == tid_here())
		l->state = GONE;
	else if (death(skb, false, GONE) == DEATH_UNKNOWN && !crowded)
		unknown();
	return 0;
}

/* GRO has moved the data to another buffer. */
SEC("fentry/napi_skb_free_stolen_head") int life__fexit__stolen(__u64 *ctx)
{
	if (!death(ctx[0], true, GONE))
		unknown();
	return 0;
}

/* By tracepoints. */
#define CODE(func) const volatile __u64 code_##func[2] = {}
#define IN_CODE(func, at) ((at) - code_##func[0] < code_##func[1] - code_##func[0])
CODE(__alloc_skb);
CODE(skb_clone);
CODE(build_skb);
CODE(__build_skb);
CODE(napi_build_skb);
CODE(__napi_build_skb);
CODE(slab_build_skb);
CODE(napi_alloc_skb);
CODE(__napi_alloc_skb);
CODE(__netdev_alloc_skb);

/* The slab caches that buffers were seen to come from: that of single buffers, and that
 * of fast clones, which other objects of the same size may share. Before 6.1 the
 * tracepoint of frees does not have the cache.
 */
const volatile __u32 args_kmem_cache_alloc_node = 0;
#define NAMELESS (args_kmem_cache_alloc_node > 0)
__u64 caches[2] = {};

static __noinline int learn(__u64 cache)
{
	char name[16] = {};

	if (cache == caches[0] || cache == caches[1])
		return 0;
	bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ((struct kmem_cache *)cache, name));
	if (*(__u64 *)name == *(const __u64 *)"skbuff_h") /* skbuff_head_cache */
		caches[0] = cache;
	else
		caches[1] = cache;
	return 0;
}

/* All of these functions are in one source file, so their code is close together. */
#define NEAR (256 << 10)

static __always_inline int allocated(__u64 site, __u64 skb, __u64 cache)
{
	__u32 kind;

	if (site - code___alloc_skb[0] + NEAR > 2 * NEAR)
		return 0;
	if (IN_CODE(__alloc_skb, site))
		kind = KIND_ALLOC;
	else if (IN_CODE(skb_clone, site))
		kind = KIND_CLONE;
	else if (IN_CODE(build_skb, site) || IN_CODE(__build_skb, site) || IN_CODE(napi_build_skb, site) ||
		 IN_CODE(__napi_build_skb, site) || IN_CODE(slab_build_skb, site) || IN_CODE(napi_alloc_skb, site) ||
		 IN_CODE(__napi_alloc_skb, site) || IN_CODE(__netdev_alloc_skb, site))
		kind = KIND_RECEIVE;
	else
		return 0;
	if (!NAMELESS)
		learn(cache);
	if (!skb)
		return 0;
	if (!birth_wanted(kind, NULL))
		return forget(skb);
	return born(skb, (struct life){ .born = bpf_ktime_get_ns(), .kind = kind });
}

SEC("raw_tp/kmem_cache_alloc") int life__raw__alloc(__u64 *ctx)
{
	return allocated(ctx[0], ctx[1], ctx[2]);
}

/* Until 6.0. */
SEC("raw_tp/kmem_cache_alloc_node") int life__raw__node(__u64 *ctx)
{
	return allocated(ctx[0], ctx[1], 0);
}

/* Both halves of a fast clone are in one slab object. The second half has no
 * allocation of its own.
 */
#define FCLONE_CLONE 2

static __always_inline bool is_second(const struct sk_buff *skb)
{
	return BPF_CORE_READ_BITFIELD_PROBED(skb, fclone) == FCLONE_CLONE;
}

/* The buffer is consumed or dropped. The free of its slab object follows, or NAPI keeps it. */
static __noinline int told(const struct sk_buff *skb)
{
	__u64 key = (__u64)skb;
	struct life mark = { .state = TOLD }, *l;
	struct life_value *v;

	if (is_second(skb)) {
		key -= bpf_core_type_size(struct sk_buff);
		l = bpf_map_lookup_elem(&lives, &key);
		if (!l || l->state != LIVES) {
			unknown();
			return 0;
		}
		v = kind_at(KIND_CLONE);
		if (!v)
			return 0;
		__sync_fetch_and_add(&v->births, 1);
		hist_put(&v->hist, bpf_ktime_get_ns() - l->born);
		return 0;
	}
	if (death(key, false, TOLD) == DEATH_UNKNOWN && !filter_on) {
		unknown();
		bpf_map_update_elem(&lives, &key, &mark, BPF_ANY);
	}
	return 0;
}

SEC("raw_tp/consume_skb") int life__raw__consume(__u64 *ctx)
{
	return told((void *)ctx[0]);
}

SEC("raw_tp/kfree_skb") int life__raw__drop(__u64 *ctx)
{
	return told((void *)ctx[0]);
}

/* The buffer that GRO processes on this CPU. GRO runs in softirq, so it is not interrupted
 * by another run of GRO.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} gros SEC(".maps");

static __always_inline __u64 *gro_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&gros, &zero);
}

static __always_inline int slab_freed(__u64 skb, bool sure)
{
	__u64 *gro = gro_here();

	if (death(skb, gro && *gro == skb, GONE) == DEATH_UNKNOWN && sure)
		unknown();
	return 0;
}

SEC("raw_tp/kmem_cache_free") int life__raw__free(__u64 *ctx)
{
	if (ctx[2] != caches[0] && ctx[2] != caches[1])
		return 0;
	return slab_freed(ctx[1], ctx[2] == caches[0]);
}

/* Until 6.0: any object. */
SEC("raw_tp/kmem_cache_free") int life__raw__any(__u64 *ctx)
{
	return slab_freed(ctx[1], false);
}

/* No tracepoint shows the birth of buffers from NAPI's own cache. Buffers that arrive by
 * netif_rx are not from it. A buffer without a transport header comes from a driver, not
 * from a local sender.
 */
static __noinline int sighted(const struct sk_buff *skb)
{
	__u64 key = (__u64)skb;
	struct life *l = bpf_map_lookup_elem(&lives, &key);

	if (l && l->state == LIVES) {
		if (l->kind == KIND_RECEIVE && !l->seen) {
			l->seen = true;
			return 0;
		}
		if (BPF_CORE_READ(skb, transport_header) != 0xffff)
			return 0;
	}
	if (is_second(skb))
		return 0;
	if (!birth_wanted(KIND_RECEIVE, BPF_CORE_READ(skb, dev)))
		return forget(key);
	return born(key, (struct life){ .born = bpf_ktime_get_ns(), .kind = KIND_RECEIVE, .seen = true });
}

static __always_inline int gro_begin(const struct sk_buff *skb)
{
	__u64 *gro = gro_here();

	sighted(skb);
	if (gro)
		*gro = (__u64)skb;
	return 0;
}

#define GRO_MERGED_FREE 1

static __always_inline int gro_end(int result)
{
	__u64 *gro = gro_here();

	if (!gro)
		return 0;
	if (result == GRO_MERGED_FREE)
		death(*gro, true, GONE);
	*gro = 0;
	return 0;
}

SEC("raw_tp/napi_gro_receive_entry") int life__raw__gro(__u64 *ctx)
{
	return gro_begin((void *)ctx[0]);
}

SEC("raw_tp/napi_gro_receive_exit") int life__raw__gro_end(__u64 *ctx)
{
	return gro_end(ctx[0]);
}

SEC("raw_tp/napi_gro_frags_entry") int life__raw__frags(__u64 *ctx)
{
	return gro_begin((void *)ctx[0]);
}

SEC("raw_tp/napi_gro_frags_exit") int life__raw__frags_end(__u64 *ctx)
{
	return gro_end(ctx[0]);
}

SEC("raw_tp/netif_receive_skb_entry") int life__raw__receive(__u64 *ctx)
{
	return sighted((void *)ctx[0]);
}

SEC("raw_tp/netif_receive_skb_list_entry") int life__raw__list(__u64 *ctx)
{
	return sighted((void *)ctx[0]);
}
