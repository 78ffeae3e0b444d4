/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* latency.h - the filters --min and --max by latency. Go: tool.Latency. */
#pragma once
#include "kernel.h"

const volatile __u64 min_ns = 0, max_ns = 0;

static __always_inline bool latency_wanted(__u64 ns)
{
	return ns >= min_ns && (!max_ns || ns <= max_ns);
}
