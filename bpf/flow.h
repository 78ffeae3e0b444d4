/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* flow.h - where the time of a TCP connection goes.
 *
 * An event means only "look now". What happened is the difference of sequence
 * numbers since the last look: write_seq (the application sent), copied_seq (it
 * received), the end of the data (they arrived). When it happened is read from the
 * socket: see tcptime.h. So an event that is lost, doubled, late or unexpected does
 * no harm: the next one repairs it.
 *
 * `mark` is the time up to which everything has been charged to one of the parts.
 * Each charge moves it by what it adds, so the parts always add up to mark - born.
 *
 * All functions but flow_arrived(), flow_sent() and those of MPTCP run under the socket's lock.
 */
#pragma once
#include "room.h"
#include "tcptime.h"

/* Go: part names, same order. */
enum flow_part {
	PART_CONNECT,	/* SYN to ESTABLISHED */
	PART_ACCEPT,	/* ESTABLISHED to accept(2) */
	PART_APP,	/* the server has read and not sent */
	PART_UNREAD,	/* data waits for the application */
	PART_PEER,	/* the client has sent and waits for the answer */
	PART_RECEIVING, /* between pieces of one message */
	PART_WINDOW,	/* sending: the peer's window is closed */
	PART_BUFFER,	/* sending: our buffer is too small */
	PART_LOSS,	/* sending: something was lost */
	PART_NETWORK,	/* sending: the rest */
	PART_IDLE,	/* between turns */
	PART_CLOSING,	/* after the FIN */
	PART_UNKNOWN,	/* cannot be known */
	PARTS,
};

enum flow_state {
	FLOW_OPENING = 1,
	FLOW_QUEUED,  /* not accepted yet */
	FLOW_MUTE,    /* reads are not seen: all time is unknown until the end */
	FLOW_DONE,    /* only the end can follow */
	FLOW_FOUND,   /* older than the tool, and silent since */
	FLOW_RESTING, /* from here on sequence numbers show what happens */
	FLOW_READ,    /* the last thing was a read */
	FLOW_SENT,    /* the last thing was a send */
};
enum flow_role { ROLE_UNKNOWN, ROLE_CLIENT, ROLE_SERVER }; /* Go: role */

struct flow {
	__u64 arrived;	   /* first data since all was read; 0: not seen. Softirq writes it */
	__u64 sending;	   /* when the send under way began; 0: not seen */
	__u64 piece;	   /* when it last made progress */
	__u64 blocked;	   /* how long it has waited for room in our buffer */
	__u64 born;
	__u64 mark;
	__u64 began;	   /* start of the current turn; 0: none */
	__u64 first;	   /* of this turn: from its first byte to the first of the answer; undefined after it */
	__u64 ended;	   /* the last send or read */
	__u64 lossy;	   /* time that losses took, not charged yet */
	__u64 lossy_since; /* start of a loss that is not repaired; 0: none */
	__u64 probed;	   /* of lossy: the time that probes alone waited */
	__u64 service;	   /* the histogram that counts its turns; 0: none */
	__u64 cookie;	   /* of the socket; 0: not known yet */
	__u64 part[PARTS];
	__u32 wrote, copied;	    /* write_seq and copied_seq at the last look */
	__u32 from;		    /* write_seq when this message began */
	__u32 busy, window, buffer; /* chronograph at the last look */
	__u32 window_left, buffer_left; /* of their growth before that: not charged yet, in LEFT_NS */
	__u32 rtt;		    /* of the handshake, microseconds; 0: not known */
	__u32 resent, dsacks;	    /* of this message: retransmissions; dsack_dups before the first */
	__u32 turns, overlaps, unasked;
	__u32 fast, tlp, rto, syn;  /* retransmitted segments, by cause */
	__u32 pid, program;	    /* the reader at the last look; a hash of its name and execs */
	__u32 opaque;		    /* see opaque() */
	__u8 state, role;
	__u8 left;   /* all data had left when the last send returned */
	__u8 full;   /* and our buffer was the limit then */
	__u8 small;  /* the message is short, and left at once */
	__u8 older;  /* the connection is older than the tool */
	__u8 fin;    /* a FIN was seen: idle time counts as closing */
	__u8 slow;   /* of resent: probes while earlier segments were in flight too */
	__u8 shared; /* the first of several MPTCP subflows: its numbers are useless */
	__u8 unseen; /* the last send had no event */
	__u8 free;   /* at the last progress of the send, all written data was allowed to leave */
};

/* Does f belong to an earlier socket at the address of sk? See owner_stale(). */
static __always_inline bool flow_stale(const struct flow *f, const struct sock *sk)
{
	return f->cookie && f->cookie != sock_cookie(sk);
}

/* A short message: it leaves at once and does not block. */
#define FLOW_SMALL 4096

/* The tool counts a turn in a histogram: how long it took, and its first byte. */
static int turn_count(struct flow *f, __u64 took);

/* The verifier walks the rest of a program once for each known value of a number.
 * A value that is read back from a map is unknown, so it walks only once. Only for what runs
 * under the socket's lock.
 */
static __always_inline __u32 opaque(struct flow *f, __u32 n)
{
	*(volatile __u32 *)&f->opaque = n;
	return *(volatile __u32 *)&f->opaque;
}

static __always_inline __u64 opaque_time(struct flow *f, __u64 t)
{
	return (__u64)opaque(f, t >> 32) << 32 | opaque(f, t);
}

static __always_inline void flow_charge(struct flow *f, const enum flow_part part, __u64 until)
{
	if (until <= f->mark)
		return;
	f->part[part] += until - f->mark;
	f->mark = until;
}

/* Charge no more than n. */
static __always_inline void flow_charge_most(struct flow *f, const enum flow_part part, __u64 until, __u64 n)
{
	flow_charge(f, part, f->mark + n < until ? f->mark + n : until);
}

/* The turn is over. For a copy that is only looked at, nothing is counted. */
static __always_inline void turn_end(struct flow *f, __u64 end, const bool copy)
{
	__u64 took = end > f->began ? end - f->began : 0;

	if (!f->began)
		return;
	f->began = 0;
	f->turns++;
	if (!copy && f->service)
		turn_count(f, took);
}

static __always_inline void turn_begin(struct flow *f, __u64 at)
{
	f->began = at;
	f->first = 0;
}

/* The round trip of the path, without delayed ACKs and without the peer's own time.
 * srtt includes both, and after five minutes rtt_min does too.
 */
static __always_inline __u64 flow_rtt(const struct flow *f, const struct sock *sk)
{
	__u32 rtt = tcp_rtt_least(sk), smooth;

	if (f->rtt && f->rtt < rtt)
		rtt = f->rtt;
	if (f->wrote - f->from > 2 * TCP(sk, mss_cache)) {
		/* The ACKs of its first segments measured the queues on the path. */
		smooth = (TCP(sk, srtt_us) >> 3) + TCP(sk, mdev_us);
		if (smooth > rtt)
			rtt = smooth;
	}
	return rtt == ~0U ? 0 : rtt * 1000ULL;
}

static __always_inline void flow_look_chrono(struct flow *f, const struct chrono *c)
{
	f->busy = c->busy;
	f->window = c->window;
	f->buffer = c->buffer;
	f->window_left = f->buffer_left = 0;
}

/* The chronograph has grown by this many jiffies: charge them, and what an earlier charge
 * had no time for. Returns what this one has no time for. Sends may follow each other
 * faster than jiffies, so it counts in microseconds, nearly: in 32 bits for more than an hour.
 */
#define LEFT_NS 1024
static __always_inline __u32 flow_charge_ticks(struct flow *f, const enum flow_part part, __u64 end, __u32 ticks, __u32 left)
{
	__u64 n = ticks * tick_ns + (__u64)left * LEFT_NS, before = f->mark;

	flow_charge_most(f, part, end, n);
	n = (n - (f->mark - before)) / LEFT_NS;
	return n < ~0U ? n : ~0U;
}

/* The time up to end was spent sending: charge it to the parts. */
static __always_inline void charge_sending(struct flow *f, const struct chrono *c, __u64 end)
{
	if (f->lossy_since && end > f->lossy_since) {
		f->lossy += end - f->lossy_since;
		f->lossy_since = end;
	}
	if (end <= f->mark)
		return;
	f->window_left = flow_charge_ticks(f, PART_WINDOW, end, c->window - f->window, f->window_left);
	f->buffer_left = flow_charge_ticks(f, PART_BUFFER, end, c->buffer - f->buffer, f->buffer_left);
	f->window = c->window;
	f->buffer = c->buffer;
	flow_charge_most(f, PART_BUFFER, end, f->blocked);
	f->blocked = 0;
	flow_charge_most(f, PART_LOSS, end, f->lossy);
	f->lossy = f->probed = 0;
	if (f->full)
		flow_charge(f, PART_BUFFER, end);
	else
		flow_charge(f, PART_NETWORK, end);
}

/* Were the retransmitted segments not lost at all? Then the loss took no time. */
static __always_inline void flow_needless(struct flow *f, const struct sock *sk)
{
	if (!f->resent)
		return;
	if (TCP(sk, dsack_dups) - f->dsacks >= f->resent) {
		/* The peer had all data: only the ACKs were lost. */
		f->lossy = f->lossy_since = f->probed = 0;
		f->resent = 0;
	} else if (f->resent == f->slow) {
		/* The earlier segments arrived without help: the path was slow. The peer's
		 * DSACK comes after its answer.
		 */
		f->lossy = f->lossy > f->probed ? f->lossy - f->probed : 0;
		f->probed = 0;
	}
}

/* When the peer had received all sent data, at most until. The time of the ACK does not
 * count: a delayed ACK comes with the answer, and the peer's time would count as sending.
 */
static __always_inline __u64 flow_delivered(struct flow *f, const struct sock *sk, __u64 until)
{
	bool acked_all = !seq_after(f->wrote, TCP(sk, snd_una));
	__u64 acked = TCP(sk, delivered_mstamp) * 1000;
	__u64 end, rtt = flow_rtt(f, sk);

	flow_needless(f, sk);
	if (f->left && !f->resent) {
		/* A new flight from idle resets both stamps: they may be the FIN's. */
		end = f->ended + rtt;
		if (acked_all && acked > f->ended && acked < end)
			end = acked;
	} else if (!acked_all) {
		end = until;
	} else {
		end = TCP(sk, first_tx_mstamp) * 1000 + rtt;
		if (end > acked)
			end = acked;
	}
	return end < until ? end : until;
}

/* After a send, until data came or this look: sending, then the peer's time (client)
 * or idle time (server).
 */
static __always_inline void flow_settle_sent(struct flow *f, const struct sock *sk, __u64 until, const bool copy)
{
	struct chrono c;

	chrono_read(&c, sk);
	f->full = 0;
	charge_sending(f, &c, flow_delivered(f, sk, until));
	flow_look_chrono(f, &c);
	if (f->role == ROLE_CLIENT) {
		flow_charge(f, f->fin ? PART_CLOSING : PART_PEER, until);
		return;
	}
	turn_end(f, f->mark, copy);
	flow_charge(f, f->fin ? PART_CLOSING : PART_IDLE, until);
}

/* TCP_NODELAY, of tcp_sock.nonagle */
#define NAGLE_OFF 1

/* How many jiffies did short data wait before its last segment left? Nagle's
 * algorithm holds a piece back until the one before it is acknowledged. `busy` runs
 * from the first piece to the last ACK. It is exact to a jiffy at each end: less than
 * three jiffies may be 0. A short message that was sent before, without an
 * answer, is taken for such a piece.
 */
static __noinline __u32 flow_held(const struct flow *f, const struct sock *sk)
{
	const struct tcp_sock *tp = (void *)sk;
	__u32 busy = TCP(sk, chrono_stat[0]) + f->window + f->buffer - f->busy;
	__u64 under_way; /* its last segment */

	if ((__s32)busy < 3)
		return 0;
	under_way = (TCP(sk, delivered_mstamp) - TCP(sk, first_tx_mstamp)) * 1000 / tick_ns;
	if (busy < under_way + 3 || BPF_CORE_READ_BITFIELD_PROBED(tp, nonagle) & NAGLE_OFF)
		return 0;
	return busy - under_way;
}

/* After a send, until the next one begins: sending, then the application's time. */
static __always_inline void flow_pause(struct flow *f, const struct sock *sk, const struct chrono *c, __u64 began)
{
	__u64 end;
	bool late;

	flow_needless(f, sk);
	late = f->resent || !f->left;
	if ((f->full || late) && seq_after(f->wrote, TCP(sk, snd_una))) {
		end = began; /* busy all along */
	} else if (late) {
		f->resent = 0;
		end = f->mark + (__u64)(c->busy - f->busy) * tick_ns; /* the chronograph says how long it took */
		if (end < f->ended)
			end = f->ended;
	} else {
		end = f->ended + flow_rtt(f, sk); /* all data had left when the last call returned */
	}
	charge_sending(f, c, end < began ? end : began);
	flow_charge(f, PART_APP, began);
}

/* Data was sent without an event. The stamps of the socket say when. again: it is
 * being retransmitted now.
 */
static __noinline int flow_sent_unseen(struct flow *f, const struct sock *sk, __u64 until, bool again, bool copy)
{
	/* The first stamp is that of the last delivered segment. From idle, both are those
	 * of the first segment, and the second keeps it until the first ACK.
	 */
	__u64 acked = TCP(sk, delivered_mstamp) * 1000;
	__u64 at = again ? acked : TCP(sk, first_tx_mstamp) * 1000;
	__u32 wrote = TCP(sk, write_seq);
	bool big = wrote - f->wrote > FLOW_SMALL;
	__u32 held = big || again ? 0 : flow_held(f, sk);
	struct chrono c;

	at -= held * tick_ns;
	if (big) {
		/* busy runs from the first segment to the last ACK. */
		chrono_read(&c, sk);
		if (c.busy - f->busy > 1) {
			__u64 first = (again ? until : acked) - (__u64)(c.busy - f->busy) * tick_ns;

			if (first < at)
				at = first;
		}
	}
	if (at < f->mark)
		at = f->mark;
	if (at > until)
		at = until;
	if (f->state == FLOW_SENT) {
		chrono_read(&c, sk);
		flow_pause(f, sk, &c, at);
		f->busy = c.busy; /* window and buffer may be still to be charged */
	} else if (f->state == FLOW_FOUND) {
		flow_charge(f, PART_UNKNOWN, at);
	} else if (f->role == ROLE_SERVER) {
		flow_charge(f, PART_APP, at);
	} else {
		turn_end(f, f->ended, copy);
		flow_charge(f, PART_IDLE, at);
	}
	if (f->role == ROLE_CLIENT && f->state != FLOW_SENT)
		turn_begin(f, at);
	f->from = f->wrote;
	f->resent = 0;
	f->wrote = wrote;
	f->left = f->small = !big && !held;
	f->full = 0;
	f->ended = at;
	f->unseen = 1;
	f->state = FLOW_SENT;
	return 0;
}

/* Has it sent data without an event? After such a send there may be another one. If not
 * all data had left by then, both count as one.
 */
static __always_inline bool flow_has_sent(const struct flow *f, const struct sock *sk)
{
	bool more = f->state != FLOW_SENT || (f->unseen && f->left);

	return f->state >= FLOW_FOUND && more && seq_after(TCP(sk, write_seq), f->wrote);
}

/* When the unread data came. `at` is the time that the socket gives. */
static __always_inline __u64 flow_came_at(const struct flow *f, const struct sock *sk, __u64 at, __u64 now)
{
	__u64 came = f->arrived ? f->arrived : at, sent;

	/* The middle of a jiffy may lie before the request of that jiffy was sent, and the
	 * count lags behind the clock if the hypervisor took the processor away. So the
	 * counts decide which was first.
	 */
	if (!f->arrived && flow_has_sent(f, sk)) {
		sent = TCP(sk, first_tx_mstamp) * 1000;
		if (came < sent && (sent - came < tick_ns || tcp_came_after_send(sk)))
			came = sent;
	}
	if (came < f->mark)
		came = f->mark;
	return came < now ? came : now;
}

static __always_inline __u64 flow_came(const struct flow *f, const struct sock *sk, __u64 now)
{
	return flow_came_at(f, sk, f->arrived ? 0 : tcp_arrival(sk, now), now);
}

/* Is there data that the application has not read? */
static __always_inline bool flow_unread(const struct flow *f, const struct sock *sk)
{
	return f->state >= FLOW_FOUND && seq_after(tcp_data_end(sk), TCP(sk, copied_seq));
}

/* Charge all time up to now by what is known now. For a copy it is a guess that the
 * next event may correct.
 */
static __always_inline void flow_settle(struct flow *f, const struct sock *sk, bool unread, __u64 now, const bool copy)
{
	__u64 until = unread ? flow_came(f, sk, now) : now;

	if (!copy)
		until = opaque_time(f, until);
	if (flow_has_sent(f, sk))
		flow_sent_unseen(f, sk, until, false, copy);
	if (!copy)
		until = opaque_time(f, until);
	switch (f->state) {
	case FLOW_OPENING:
		flow_charge(f, PART_CONNECT, until);
		break;
	case FLOW_QUEUED:
		flow_charge(f, PART_ACCEPT, until);
		break;
	case FLOW_DONE:
		flow_charge(f, PART_CLOSING, until);
		break;
	case FLOW_RESTING:
		flow_charge(f, f->fin ? PART_CLOSING : PART_IDLE, until);
		break;
	case FLOW_READ:
		flow_charge(f, f->role == ROLE_SERVER ? PART_APP : unread ? PART_RECEIVING : PART_IDLE, until);
		break;
	case FLOW_SENT:
		flow_settle_sent(f, sk, until, copy);
		break;
	default:
		flow_charge(f, PART_UNKNOWN, until);
	}
	flow_charge(f, PART_UNREAD, now); /* if they are */
}

/* Data came from the peer while ours was in flight. An answer carries the ACK of its
 * request, and a request that of the last answer. Other data is neither.
 */
static __always_inline bool flow_overlaps(const struct flow *f, const struct sock *sk)
{
	return seq_after(f->wrote, TCP(sk, snd_una));
}

/* The application has taken data. */
static __always_inline int flow_read(struct flow *f, const struct sock *sk, __u64 now)
{
	__u32 end = tcp_data_end(sk), copied = TCP(sk, copied_seq);
	bool both = false;
	__u64 came, rtt;

	if (seq_after(copied, end))
		copied = end;
	if (!seq_after(copied, f->copied))
		return 0; /* it peeked, or this is the end */
	came = flow_came_at(f, sk, f->arrived ? 0 : tcp_arrival_read(sk, now), now);
	if (flow_has_sent(f, sk)) {
		both = f->arrived && f->arrived <= f->ended; /* it sent before it had read all */
		flow_sent_unseen(f, sk, came, false, false);
	}
	switch (f->state) {
	case FLOW_SENT:
		if (both || flow_overlaps(f, sk))
			f->overlaps++;
		if (f->role == ROLE_CLIENT && f->began && !f->first && came > f->began)
			f->first = came - f->began;
		if (f->small && !f->resent && came - f->mark < tick_ns) {
			/* short, sent at once, answered soon: the chronograph adds nothing */
			rtt = flow_rtt(f, sk);
			flow_charge_most(f, PART_NETWORK, came, rtt);
			if (f->role == ROLE_SERVER) {
				turn_end(f, f->mark, false);
				flow_charge(f, PART_IDLE, came);
			} else {
				flow_charge(f, PART_PEER, came);
			}
			f->busy = TCP(sk, chrono_stat[0]) + f->window + f->buffer;
		} else {
			flow_settle_sent(f, sk, came, false);
		}
		break;
	case FLOW_READ:
		flow_charge(f, PART_RECEIVING, came);
		break;
	case FLOW_FOUND:
		flow_charge(f, PART_UNKNOWN, came);
		break;
	case FLOW_QUEUED:
		flow_charge(f, PART_ACCEPT, came);
		break;
	default:
		if (f->role == ROLE_CLIENT)
			f->unasked++;
		flow_charge(f, PART_IDLE, came);
	}
	if (f->role == ROLE_SERVER && !f->began)
		turn_begin(f, came);
	flow_charge(f, PART_UNREAD, now);
	f->copied = copied;
	f->state = FLOW_READ;
	f->ended = now;
	f->arrived = copied == end ? 0 : now;
	return 0;
}

/* Data was read without an event, as by sockmap: the time is not known. */
static __noinline int flow_read_unseen(struct flow *f, const struct sock *sk, __u64 now)
{
	if (f->state == FLOW_SENT)
		flow_settle_sent(f, sk, f->mark, false);
	flow_charge(f, PART_UNKNOWN, now);
	if (f->role == ROLE_SERVER && !f->began)
		turn_begin(f, now);
	f->copied = TCP(sk, copied_seq);
	f->state = FLOW_READ;
	f->ended = now;
	f->arrived = 0;
	return 0;
}

/* When the send that has just returned began. It may have blocked. From idle,
 * first_tx_mstamp is that of its first segment and moves on with ACKs. busy says how
 * long it lasts.
 */
static __always_inline __u64 flow_send_began(const struct flow *f, const struct sock *sk, const struct chrono *c, __u64 now)
{
	__u64 began = now, at = TCP(sk, first_tx_mstamp) * 1000;
	__u32 busy = c->busy - f->busy;

	if (at > f->mark && at < began)
		began = at;
	if (busy > 1 && f->state != FLOW_SENT) {
		at = now - (busy - 1) * tick_ns;
		if (at < began)
			began = at;
	}
	return began;
}

/* The current send has waited since its last progress. It waited for room in our buffer
 * if all earlier data was allowed to leave and has left. The kernel's own chronograph
 * hardly ever says so.
 */
static __always_inline void flow_waited(struct flow *f, const struct sock *sk, __u64 now)
{
	if (f->free && now - f->piece > tick_ns / 4 && TCP(sk, snd_nxt) == TCP(sk, write_seq))
		f->blocked += now - f->piece;
}

/* A send starts, or continues with its next piece. */
static __always_inline void flow_piece(struct flow *f, const struct sock *sk)
{
	__u64 now = bpf_ktime_get_ns();

	if (!f->sending)
		f->sending = now;
	else
		flow_waited(f, sk, now);
	f->piece = now;
	f->free = TCP(sk, write_seq) - TCP(sk, snd_una) < TCP(sk, snd_cwnd) * TCP(sk, mss_cache);
}

/* At the end of a send: nearly all data has left, the window allows more, and the buffer
 * has no room for it.
 */
static __always_inline bool flow_buffer_full(const struct sock *sk, __u32 wrote)
{
	if ((wrote - TCP(sk, snd_nxt)) * 4 > wrote - TCP(sk, snd_una))
		return false;

	__u32 out = TCP(sk, packets_out) - TCP(sk, sacked_out) - TCP(sk, lost_out) + TCP(sk, retrans_out);

	return out && out < TCP(sk, snd_cwnd) && FIELD(sk, struct sock, sk_wmem_queued) * 3 > FIELD(sk, struct sock, sk_sndbuf) * 2;
}

/* The application has sent, and the call returns. */
static __always_inline int flow_sent(struct flow *f, const struct sock *sk, __u64 now)
{
	__u32 wrote = TCP(sk, write_seq), copied = TCP(sk, copied_seq), data = tcp_data_end(sk);
	__u64 began = f->sending, blocked;
	struct chrono c = {};
	bool full, wants;

	f->sending = 0;
	if (!seq_after(wrote, f->wrote))
		return 0;
	wants = sock_lacks_room(sk);
	if (began && wants)
		flow_waited(f, sk, now); /* a signal ended it, or it does not block */
	blocked = f->blocked;
	f->blocked = 0; /* it waited in this call, so not before it began */
	if (f->state == FLOW_QUEUED)
		flow_charge(f, PART_ACCEPT, now);
	if (seq_after(copied, f->copied) && copied == data)
		flow_read_unseen(f, sk, now);
	f->small = f->state != FLOW_SENT && wrote - f->wrote < FLOW_SMALL && TCP(sk, snd_nxt) == wrote;
	if (!f->small)
		chrono_read(&c, sk);
	if (!began)
		began = f->small ? now : flow_send_began(f, sk, &c, now);
	if (began < f->mark)
		began = f->mark;
	if (f->state == FLOW_SENT) {
		flow_pause(f, sk, &c, began);
	} else {
		if (f->arrived && f->arrived < began && seq_after(data, copied)) {
			/* It sends before it has read all: both directions overlap. */
			f->overlaps++;
			flow_charge(f, PART_UNREAD, began);
		} else if (f->state == FLOW_FOUND) {
			flow_charge(f, PART_UNKNOWN, began);
		} else if (f->role == ROLE_SERVER) {
			flow_charge(f, PART_APP, began);
		} else {
			turn_end(f, f->ended, false);
			flow_charge(f, PART_IDLE, began);
		}
		f->from = f->wrote;
		f->resent = 0;
	}
	if (f->role == ROLE_CLIENT && !f->began)
		turn_begin(f, began);
	f->wrote = wrote;
	f->blocked = blocked;
	if (f->small) {
		f->left = 1;
		f->full = 0;
	} else {
		/* The growth of window and buffer since its start is not charged yet. */
		f->busy = c.busy;
		f->left = TCP(sk, snd_nxt) == wrote;
		full = flow_buffer_full(sk, wrote);
		/* The pieces show how long the call itself waited. */
		f->full = full && !f->piece;
		if (f->blocked || (f->full && now - began > 2 * tick_ns))
			charge_sending(f, &c, now);
		/* The call did not wait. The application does, until there is room. */
		f->full |= full && wants;
	}
	f->unseen = 0;
	f->state = FLOW_SENT;
	f->ended = now;
	return 0;
}

/* Data came. Runs in softirq, also for FINs, and before the owner is known. */
static __always_inline void flow_arrived(struct flow *f)
{
	if (f->state >= FLOW_QUEUED && !f->arrived)
		f->arrived = bpf_ktime_get_ns();
}

#define CA_RECOVERY 3 /* of icsk_ca_state */
#define CA_LOSS 4
#define PENDING_TLP 5 /* of icsk_pending */

/* A probe retransmits the last segment. If more than this are in flight, earlier ones
 * have no ACK either, and not because a delayed ACK waits for one more segment.
 */
#define FLOW_ACKED_LATE 2

/* A segment is retransmitted. The loss counts from the last progress on. */
static __always_inline void flow_resent(struct flow *f, const struct sock *sk)
{
	const struct inet_connection_sock *icsk = (void *)sk;
	__u64 now = bpf_ktime_get_ns(), since;
	__u8 ca;

	if (f->state == FLOW_OPENING) {
		f->syn++;
		return;
	}
	if (flow_has_sent(f, sk))
		flow_sent_unseen(f, sk, now, true, false);
	if (!f->resent++) {
		f->dsacks = TCP(sk, dsack_dups);
		f->slow = 0;
	}
	ca = BPF_CORE_READ_BITFIELD_PROBED(icsk, icsk_ca_state);
	if (ca == CA_LOSS)
		f->rto++;
	else if (ca < CA_RECOVERY && FIELD(sk, struct inet_connection_sock, icsk_pending) == PENDING_TLP) {
		f->tlp++;
		f->slow += TCP(sk, packets_out) - TCP(sk, sacked_out) > FLOW_ACKED_LATE;
	} else
		f->fast++;
	if (f->lossy_since)
		return;
	since = TCP(sk, delivered_mstamp) * 1000;
	if (since < f->mark)
		since = f->mark;
	if (ca >= CA_RECOVERY)
		f->lossy_since = since;
	else if (now > since) {
		/* a probe: no state shows its end, so only its wait counts */
		f->lossy += now - since;
		f->probed += now - since;
	}
}

/* All lost segments have arrived. */
static __always_inline void flow_recovered(struct flow *f)
{
	__u64 now;

	if (!f->lossy_since)
		return;
	now = bpf_ktime_get_ns();
	if (now > f->lossy_since)
		f->lossy += now - f->lossy_since;
	f->lossy_since = 0;
}

/* The connection is established. */
static __always_inline void flow_established(struct flow *f, const struct sock *sk, __u64 now)
{
	struct chrono c;
	__u32 rtt = tcp_rtt_least(sk);

	flow_charge(f, PART_CONNECT, now);
	f->cookie = sock_cookie(sk);
	f->wrote = TCP(sk, write_seq);
	f->copied = TCP(sk, rcv_nxt);
	f->rtt = rtt == ~0U ? 0 : rtt;
	chrono_read(&c, sk);
	flow_look_chrono(f, &c);
	f->state = f->role == ROLE_CLIENT ? FLOW_RESTING : FLOW_QUEUED;
}

enum flow_end { END_FIN, END_PEERS_FIN, END_CLOSE };

/* A FIN, or the end. Our own FIN is about to be sent, and will reset the stamps.
 */
static __always_inline void flow_leave(struct flow *f, const struct sock *sk, enum flow_end how, __u64 now)
{
	bool unread = opaque(f, flow_unread(f, sk)), sent = opaque(f, flow_has_sent(f, sk));

	how = opaque(f, how);
	if (how != END_CLOSE) {
		bool half = how == END_FIN && !(FIELD(sk, struct sock, sk_shutdown) & RCV_SHUTDOWN);
		bool busy = (sent || f->state == FLOW_SENT) && seq_after(TCP(sk, write_seq), TCP(sk, snd_una));

		if (f->state < FLOW_FOUND)
			return;
		/* The last request has no answer yet. */
		if (how == END_PEERS_FIN && (unread || (f->role == ROLE_SERVER && f->state == FLOW_READ && !sent)))
			return;
		/* Half closed, and the answer has not come yet. Or the FIN waits behind data. */
		if (half || busy) {
			if (sent)
				flow_sent_unseen(f, sk, now, false, false);
			f->fin |= !half;
			return;
		}
	}
	if (f->role == ROLE_CLIENT && f->state == FLOW_READ && !unread && !sent)
		turn_end(f, f->ended, false);
	flow_settle(f, sk, opaque(f, unread), now, false);
	how = opaque(f, how);
	if (how != END_CLOSE) {
		f->fin = 1;
		if (how == END_FIN || f->role == ROLE_CLIENT)
			f->state = FLOW_DONE;
	} else if (f->role == ROLE_CLIENT && opaque(f, unread)) {
		/* An answer that came with the end may still be read. close(2) drops unread
		 * data, such as the last message of TLS: that does not end a turn.
		 */
		if (FIELD(sk, struct sock, sk_receive_queue.qlen))
			turn_end(f, now, false);
		else if (f->state == FLOW_READ)
			turn_end(f, f->ended, false);
	}
}

/* A connection that is older than the tool. Its state is unknown until its next event.
 * A listener's child has the listener's backlog.
 */
static __always_inline void flow_found(struct flow *f, const struct sock *sk, __u64 now)
{
	struct chrono c;

	f->born = f->mark = now;
	f->cookie = sock_cookie(sk);
	f->older = 1;
	f->role = FIELD(sk, struct sock, sk_max_ack_backlog) ? ROLE_SERVER : ROLE_CLIENT;
	f->wrote = TCP(sk, write_seq);
	f->copied = TCP(sk, copied_seq);
	chrono_read(&c, sk);
	flow_look_chrono(f, &c);
	f->state = FLOW_FOUND;
}
