//go:build ignore
/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* owners - the table of owners that the tools of an engine share. See
 * owner.h.
 */
#define OWNER_OPTIONS (OWNER_ALL | OWNER_LISTENERS | OWNER_TIMES | OWNER_TABLE)
#include "owner.h"
