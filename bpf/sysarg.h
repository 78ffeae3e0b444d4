/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* sysarg.h - the arguments of a system call at its exit, so that a tool that looks only at
 * calls that fail need not look at their entry.
 */
#pragma once
#include "syscall.h"

/* Set by Go: the running kernel (5.15 on) gives the registers with which a thread entered it. */
const volatile bool task_regs = false;

/* Argument n of the call that the current thread returns from. Only if task_regs is set. A call
 * leaves the registers of its arguments alone, except on arm64, where the result replaces the
 * first one. The kernel keeps a copy of it.
 */
static __always_inline unsigned long sys_exit_arg(int n)
{
	const struct pt_regs *regs;
	unsigned long v = 0;

	if (!task_regs)
		return 0;
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
#if defined(__TARGET_ARCH_arm64)
	if (!n) {
		bpf_probe_read_kernel(&v, sizeof(v), &regs->orig_x0);
		return v;
	}
#endif
	v = sys_arg(regs, n);
	return v;
}
