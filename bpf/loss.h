/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* loss.h - the counts of losses. */
#pragma once
#include "kernel.h"

/* What can go missing. Go: tool.LossRing and so on, same order. */
enum loss {
	LOSS_RING,	/* an event did not fit into the ring */
	LOSS_MAP,	/* a key did not fit into a map of counts or histograms */
	LOSS_SPAN,	/* the beginning of something did not fit into a map */
	LOSS_STACK,	/* a stack could not be kept */
	LOSS_OWNER_FULL, /* a socket's owner did not fit into the map owners */
	LOSS_OWNER,	/* a row's socket has no known owner */
	LOSS_READ,	/* memory of the process could not be read */
	LOSS_BATCH,	/* messages of one call, beyond those that are looked at */
	LOSS_SAME,	/* requests of io_uring that cannot be told apart */
	LOSS_KINDS,
};
__u64 losses[LOSS_KINDS] = {};

static __always_inline void lose(enum loss l)
{
	__sync_fetch_and_add(&losses[l], 1);
}
