/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* wifi.h - the few types of cfg80211 and mac80211 that we read. Both are
 * usually modules: CO-RE finds them in the modules' own BTF, from 5.11
 * on.
 */
#pragma once
#include "kernel.h"

enum cfg80211_signal_type { CFG80211_SIGNAL_TYPE_MBM = 1 };
enum nl80211_band { NL80211_BAND_2GHZ }; /* the others: band of words.go */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kobject {
	const char *name;
};
struct device {
	struct kobject kobj;
};
struct wiphy {
	struct device dev;
	possible_net_t _net;
	enum cfg80211_signal_type signal_type;
};
struct wireless_dev {
	struct net_device *netdev;
};
struct ieee80211_channel {
	enum nl80211_band band;
	__u32 center_freq;
	__u16 freq_offset; /* kHz to add */
};
struct cfg80211_ssid {
	__u8 ssid[32];
	__u8 ssid_len;
};
struct cfg80211_scan_request {
	struct cfg80211_ssid *ssids;
	int n_ssids;
	__u32 n_channels;
	__u32 flags;
	struct wireless_dev *wdev;
	struct ieee80211_channel *channels[1]; /* n_channels of them */
};
struct cfg80211_scan_request_int___since617 {
	struct cfg80211_scan_request req;
};
struct cfg80211_scan_info {
	bool aborted;
};
struct cfg80211_bss_ies {
	int len;
	__u8 data[1];
};
struct cfg80211_bss {
	struct ieee80211_channel *channel;
	const struct cfg80211_bss_ies *ies;
	__s32 signal;
	__u8 bssid[6];
};

struct cfg80211_chan_def {
	struct ieee80211_channel *chan;
};
struct ieee80211_local {
	unsigned long scanning; /* SCAN_* */
	struct cfg80211_scan_request *scan_req;
	struct cfg80211_chan_def scan_chandef; /* chan NULL: on its own channel */
};

#pragma clang attribute pop

/* Bit of scanning: only the current channel of the device. */
#define SCAN_ONCHANNEL (1 << 2)

/* Tracepoints of cfg80211 pass the request itself, or since 6.17 a struct
 * around it that drivers do not see.
 */
static __always_inline struct cfg80211_scan_request *scan_request(void *arg)
{
	struct cfg80211_scan_request_int___since617 *outer = arg;

	return bpf_core_type_exists(struct cfg80211_scan_request_int___since617) ? &outer->req : arg;
}

static __always_inline __u32 channel_khz(const struct ieee80211_channel *c)
{
	return BPF_CORE_READ(c, center_freq) * 1000 + BPF_CORE_READ(c, freq_offset);
}
