/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The steps that all requests have which this process executes: direct.c has any of
 * them, simple.c those that most programs post.
 */
#ifndef MIC_EXECUTE_H
#define MIC_EXECUTE_H

#include <stdatomic.h>

#include "inline.h"
#include "mic.h"
#include "windows.h"

enum { MIC_WORD_SIZE = 8 };

/*
 * What this process wrote before is there before this request is. That includes
 * what it executed (IBA table 79: a READ comes after the WRITEs before it), and
 * a CPU's loads may overtake its stores.
 */
static MIC_ALWAYS_INLINE void mic_execute_begin(bool read)
{
	if (read)
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_release);
}

/*
 * The same before an atomic instruction. Where a comparison that fails is but a load,
 * that may overtake stores, too.
 */
static MIC_ALWAYS_INLINE void mic_execute_begin_atomic(void)
{
#if defined(__x86_64__) || defined(__i386__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/*
 * Did the copy reach the peer's memory, all of it? The accesses come before
 * the look at the state: one that met the scratch page was a fault, and what
 * follows a fault sees what the kernel did in it.
 */
static MIC_ALWAYS_INLINE bool mic_execute_reached(
	const struct mic_window *window)
{
#if defined(__x86_64__) || defined(__i386__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
	return !(mic_window_state(window) & MIC_WINDOW_SCRATCH);
}

/* For rdma-statistic(8); the kernel only reads. */
static MIC_ALWAYS_INLINE void mic_execute_count(const struct mic_qp *qp,
						enum mic_direct_count what,
						uint64_t bytes)
{
	qp->sq.ctl->direct[what]++;
	qp->sq.ctl->direct[what + 1] += bytes;
}

#endif /* MIC_EXECUTE_H */
