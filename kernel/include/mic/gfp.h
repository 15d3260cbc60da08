/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MIC_GFP_H
#define MIC_GFP_H

#include <linux/gfp.h>
#include <linux/sched.h>

/**
 * mic_gfp - how to allocate what is charged to a process
 *
 * Kernel threads work for all. One that had to wait for memory which another process's
 * control group is short of would be slowed down with that group.
 *
 * Return: GFP_KERNEL, or GFP_NOWAIT without a warning.
 */
static inline gfp_t mic_gfp(void)
{
	return current->flags & PF_KTHREAD ? GFP_NOWAIT | __GFP_NOWARN :
					     GFP_KERNEL;
}

#endif /* MIC_GFP_H */
