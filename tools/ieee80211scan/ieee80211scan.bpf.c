//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* ieee80211scan - Wi-Fi scans: the request and its process, the channels of a
 * software scan, the networks that are heard, and the end.
 */
#include "skb.h"
#include "span.h"
#include "who.h"
#include "wifi.h"

#define CHANNELS 160 /* of a request that are looked at; all of 2.4, 5 and 6 GHz are 101 */
#define ASKED 4	     /* SSIDs of a request that are kept */

enum what { SCAN_START, SCAN_CHANNEL, SCAN_FOUND, SCAN_END };

/* A name is bytes of any kind. */
struct scan_ssid {
	__u8 ssid[32];
	__u8 len;
};

struct scan_event {
	struct head head;
	__u64 scan;	/* when it began: rows of one scan have the same */
	__u64 duration; /* of the scan, or of the stay on a channel */
	char dev[16], phy[16];
	__u32 what;
	__u32 flags;	/* NL80211_SCAN_FLAG_* */
	__u32 channels; /* asked for */
	__u32 khz, band;
	__u32 beacons, networks;
	__s32 signal; /* hundredths of dBm; 0: not known */
	__s32 ret;    /* of a scan that was refused */
	__u8 software, aborted;
	__u8 bssid[6];
	__u32 ssids; /* asked for */
	struct scan_ssid asked[ASKED];
	struct scan_ssid ssid; /* found */
	__u8 pad[3];
	__u32 plan[CHANNELS]; /* kHz */
	__u32 text;	      /* for Go to word */
};
EVENT(struct scan_event);

/* Networks that have a row. Those of a scan form a chain, so that they can be
 * deleted when it ends.
 */
#define NETWORKS 1024 /* of one scan */
struct known_key {
	__u64 scan;
	__u8 bssid[6];
	__u16 more; /* 1: it is part of a chain; 0 in the map's keys */
};
SPAN(known, struct known_key, struct known_key);

/* A scan under way, by its request. */
struct scan {
	__u64 start;
	__u64 channel; /* that a software scan is on, since when */
	__u64 since;
	struct who who;
	char dev[16], phy[16];
	__u32 netns;
	__u32 flags, channels, ssids;
	__u32 beacons, networks;
	struct known_key latest; /* network; more: there is one */
	__u8 software, told;
	__u8 dbm; /* the driver gives strengths in dBm */
	__u8 pad[5];
};
SPAN(scans, __u64, struct scan);

/* The channels of the scans under way. Each belongs to one device, and a device
 * runs one scan at a time.
 */
struct heard {
	__u64 request;
	__u32 beacons, networks;
};
SPAN(heard, __u64, struct heard);

/* The threads inside of a driver's scan function. */
SPAN(asking, __u64, __u64);

/* Is the network new in this scan? Networks that do not fit into the map are
 * counted, and shown each time.
 */
static __always_inline bool is_new(struct scan *s, const struct known_key *k)
{
	struct known_key before = s->latest;
	int err; /* older kernels leave the upper half of the register alone */

	if (s->networks >= NETWORKS) {
		if (!bpf_map_lookup_elem(&known, k)) {
			lose(LOSS_SPAN);
			return true;
		}
		return false;
	}
	err = bpf_map_update_elem(&known, k, &before, BPF_NOEXIST);
	if (err == -17 /* EEXIST */)
		return false;
	if (err) {
		lose(LOSS_SPAN);
		return true;
	}
	s->latest = *k;
	s->latest.more = 1;
	return true;
}

static __noinline void forget(struct scan *s)
{
	struct known_key k = s->latest;

	for (int i = 0; i < NETWORKS && k.more; i++) {
		struct known_key *before, at = k;

		at.more = 0;
		before = bpf_map_lookup_elem(&known, &at);
		if (!before)
			break;
		k = *before;
		bpf_map_delete_elem(&known, &at);
	}
}

static __always_inline __u64 channel_at(struct cfg80211_scan_request *req, __u32 i)
{
	__u64 c = 0;

	bpf_probe_read_kernel(&c, sizeof(c), (void *)&req->channels + i * sizeof(c));
	return c;
}

static __always_inline struct scan_event *event_of(const struct scan *s, enum what what, __u64 now)
{
	struct scan_event *e = EVENT_NEW(struct scan_event);

	if (!e)
		return NULL;
	e->head.ts = now;
	e->head.netns = s->netns;
	e->head.who = s->who;
	e->what = what;
	e->scan = s->start;
	e->duration = NONE;
	__builtin_memcpy(e->dev, s->dev, 16);
	__builtin_memcpy(e->phy, s->phy, 16);
	e->flags = s->flags;
	e->channels = s->channels;
	e->ssids = s->ssids;
	e->software = s->software;
	return e;
}

static __always_inline void channel_put(struct scan_event *e, const struct ieee80211_channel *c)
{
	e->khz = channel_khz(c);
	e->band = BPF_CORE_READ(c, band);
}

/* The row of a scan's start comes when the driver has accepted it: only then it
 * is known who steps through the channels.
 */
static __noinline int tell_start(struct scan *s, struct cfg80211_scan_request *req)
{
	const struct cfg80211_ssid *name;
	struct scan_event *e;

	if (!s)
		return 0;
	s->told = true;
	e = event_of(s, SCAN_START, s->start);
	if (!e)
		return 0;
	name = BPF_CORE_READ(req, ssids);
#pragma unroll
	for (int i = 0; i < ASKED; i++) {
		if (i < s->ssids) {
			BPF_CORE_READ_INTO(&e->asked[i].ssid, name, ssid);
			e->asked[i].len = BPF_CORE_READ(name, ssid_len);
		}
		name = (void *)name + bpf_core_type_size(struct cfg80211_ssid);
	}
	for (__u32 i = 0; i < CHANNELS && i < s->channels; i++)
		e->plan[i] = channel_khz((void *)channel_at(req, i));
	return event_send(e);
}

/* The stay on a channel is over. */
static __always_inline void tell_channel(struct scan *s, __u64 now)
{
	__u64 channel = s->channel;
	struct scan_event *e;
	struct heard *h;

	s->channel = 0;
	if (!channel)
		return;
	e = event_of(s, SCAN_CHANNEL, now);
	if (!e)
		return;
	channel_put(e, (void *)channel);
	e->duration = now - s->since;
	h = bpf_map_lookup_elem(&heard, &channel);
	if (h) {
		e->beacons = h->beacons;
		e->networks = h->networks;
	}
	event_send(e);
}

static __noinline int finish(struct scan *s, struct cfg80211_scan_request *req, int ret, bool aborted)
{
	__u64 now = bpf_ktime_get_ns(), key = (__u64)req;
	struct scan_event *e;

	if (!s)
		return 0;
	if (!s->told)
		tell_start(s, req);
	tell_channel(s, now);
	e = event_of(s, SCAN_END, now);
	if (e) {
		e->duration = now - s->start;
		e->beacons = s->beacons;
		e->networks = s->networks;
		e->aborted = aborted;
		e->ret = ret;
		event_send(e);
	}
	for (__u32 i = 0; i < CHANNELS && i < s->channels; i++) {
		__u64 c = channel_at(req, i);

		bpf_map_delete_elem(&heard, &c);
	}
	forget(s);
	bpf_map_delete_elem(&scans, &key);
	return 0;
}

KTRACE(start, rdev_scan, struct wiphy *wiphy, void *arg)
{
	__u64 key, thread = bpf_get_current_pid_tgid();
	struct cfg80211_scan_request *req;
	struct net_device *dev;
	struct heard h = {};
	struct scan s = {};

	/* The verifier treats all pointers from module tracepoints as nullable. */
	if (!wiphy || !arg)
		return 0;
	req = scan_request(arg);
	h.request = key = (__u64)req;
	s.start = bpf_ktime_get_ns();
	s.netns = BPF_CORE_READ(wiphy, _net.net, ns.inum);
	dev = BPF_CORE_READ(req, wdev, netdev);
	if (dev)
		BPF_CORE_READ_STR_INTO(&s.dev, dev, name);
	who_current(&s.who);
	if (!netns_wanted(s.netns) || !dev_wanted(s.dev) || !who_wanted(&s.who))
		return 0;
	bpf_probe_read_kernel_str(s.phy, sizeof(s.phy), BPF_CORE_READ(wiphy, dev.kobj.name));
	s.dbm = BPF_CORE_READ(wiphy, signal_type) == CFG80211_SIGNAL_TYPE_MBM;
	s.flags = BPF_CORE_READ(req, flags);
	s.channels = BPF_CORE_READ(req, n_channels);
	s.ssids = BPF_CORE_READ(req, n_ssids);
	for (__u32 i = 0; i < CHANNELS && i < s.channels; i++) {
		__u64 c = channel_at(req, i);

		span_begin(&heard, &c, &h);
	}
	span_begin(&scans, &key, &s);
	span_begin(&asking, &thread, &key);
	return 0;
}

/* The driver accepted or refused the scan. This tracepoint also ends other
 * functions of drivers.
 */
KTRACE(answer, rdev_return_int, struct wiphy *wiphy, int ret)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u64 *found = bpf_map_lookup_elem(&asking, &thread);
	struct scan *s;
	__u64 key;

	if (!found)
		return 0;
	key = *found;
	bpf_map_delete_elem(&asking, &thread);
	s = bpf_map_lookup_elem(&scans, &key);
	if (!s)
		return 0;
	if (ret)
		return finish(s, (void *)key, ret, false);
	return s->told ? 0 : tell_start(s, (void *)key);
}

/* mac80211 steps through the channels itself. */
KTRACE(software, drv_sw_scan_start, struct ieee80211_local *local)
{
	struct scan *s;
	__u64 key;

	if (!local)
		return 0;
	key = (__u64)BPF_CORE_READ(local, scan_req);
	s = bpf_map_lookup_elem(&scans, &key);
	if (!s)
		return 0;
	s->software = true;
	if (BPF_CORE_READ(local, scanning) & SCAN_ONCHANNEL) {
		s->channel = channel_at((void *)key, 0);
		s->since = bpf_ktime_get_ns();
	}
	return 0;
}

/* The device is tuned. It is also configured for other reasons, so only a new
 * channel counts.
 */
KTRACE(step, drv_config, struct ieee80211_local *local)
{
	__u64 key, channel, now;
	struct scan *s;

	if (!local)
		return 0;
	key = (__u64)BPF_CORE_READ(local, scan_req);
	s = bpf_map_lookup_elem(&scans, &key);
	if (!s || BPF_CORE_READ(local, scanning) & SCAN_ONCHANNEL)
		return 0;
	channel = (__u64)BPF_CORE_READ(local, scan_chandef.chan);
	if (channel == s->channel)
		return 0;
	now = bpf_ktime_get_ns();
	tell_channel(s, now);
	s->channel = channel;
	s->since = now;
	return 0;
}

/* A beacon or probe response was received. */
KTRACE(found, cfg80211_return_bss, struct cfg80211_bss *bss)
{
	const struct cfg80211_bss_ies *ies;
	struct known_key k = {};
	struct scan_event *e;
	__u64 channel, request;
	__u8 head[2] = {};
	struct heard *h;
	struct scan *s;

	if (!bss)
		return 0;
	channel = (__u64)BPF_CORE_READ(bss, channel);
	h = bpf_map_lookup_elem(&heard, &channel);
	if (!h)
		return 0;
	request = h->request;
	s = bpf_map_lookup_elem(&scans, &request);
	if (!s)
		return 0;
	__sync_fetch_and_add(&h->beacons, 1);
	__sync_fetch_and_add(&s->beacons, 1);
	k.scan = s->start;
	BPF_CORE_READ_INTO(&k.bssid, bss, bssid);
	if (!is_new(s, &k))
		return 0;
	__sync_fetch_and_add(&h->networks, 1);
	__sync_fetch_and_add(&s->networks, 1);
	e = event_of(s, SCAN_FOUND, bpf_ktime_get_ns());
	if (!e)
		return 0;
	channel_put(e, (void *)channel);
	__builtin_memcpy(e->bssid, k.bssid, 6);
	if (s->dbm)
		e->signal = BPF_CORE_READ(bss, signal);
	/* The name is the first element: its number, 0, its length, itself. */
	ies = BPF_CORE_READ(bss, ies);
	if (ies && BPF_CORE_READ(ies, len) >= 2 && !bpf_probe_read_kernel(head, 2, (void *)&ies->data) && !head[0] &&
	    head[1] <= 32) {
		e->ssid.len = head[1];
		bpf_probe_read_kernel(e->ssid.ssid, head[1] & 63, (void *)&ies->data + 2);
	}
	return event_send(e);
}

KTRACE(done, cfg80211_scan_done, void *arg, const struct cfg80211_scan_info *info)
{
	struct scan *s;
	__u64 key;

	if (!arg || !info)
		return 0;
	key = (__u64)scan_request(arg);
	s = bpf_map_lookup_elem(&scans, &key);
	return s ? finish(s, (void *)key, 0, BPF_CORE_READ(info, aborted)) : 0;
}
