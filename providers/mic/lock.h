/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A spin lock for queues that costs nothing where there is nobody to exclude:
 * the application promised so (thread domain, IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
 * or the process has one thread.
 */
#ifndef MIC_LOCK_H
#define MIC_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define mic_one_thread() (__libc_single_threaded)
#else
#define mic_one_thread() (false)
#endif

enum mic_lock_state {
	MIC_LOCK_FREE,
	MIC_LOCK_TAKEN,
	MIC_LOCK_AWAITED, /* taken, and somebody may sleep until it is not */
};

struct mic_lock {
	_Atomic(uint32_t) state;
	bool unneeded;
};

/* lock.c */
void mic_lock_contended(struct mic_lock *lock);
void mic_unlock_awaited(struct mic_lock *lock);

static inline void mic_lock_init(struct mic_lock *lock, bool unneeded)
{
	atomic_init(&lock->state, MIC_LOCK_FREE);
	lock->unneeded = unneeded;
}

/* @as: what it is then */
static inline bool mic_lock_try(struct mic_lock *lock, enum mic_lock_state as)
{
	uint32_t state = MIC_LOCK_FREE;

	return atomic_compare_exchange_strong_explicit(&lock->state, &state, as,
						       memory_order_acquire,
						       memory_order_relaxed);
}

/*
 * The lock is marked as taken even when there is one thread: the holder may
 * start a second one before it lets go (between ibv_start_poll() and
 * ibv_end_poll(), or ibv_wr_start() and ibv_wr_complete()).
 */
static inline void mic_lock(struct mic_lock *lock)
{
	if (lock->unneeded)
		return;
	if (mic_one_thread())
		atomic_store_explicit(&lock->state, MIC_LOCK_TAKEN,
				      memory_order_relaxed);
	else if (!mic_lock_try(lock, MIC_LOCK_TAKEN))
		mic_lock_contended(lock);
}

/* Returns false if somebody has it. */
static inline bool mic_lock_if_free(struct mic_lock *lock)
{
	return lock->unneeded || mic_lock_try(lock, MIC_LOCK_TAKEN);
}

/* Who has become a sleeper since the look is woken by its clock. */
static inline void mic_unlock(struct mic_lock *lock)
{
	if (lock->unneeded)
		return;
	if (atomic_load_explicit(&lock->state, memory_order_relaxed) ==
	    MIC_LOCK_AWAITED)
		mic_unlock_awaited(lock);
	else
		atomic_store_explicit(&lock->state, MIC_LOCK_FREE,
				      memory_order_release);
}

#endif /* MIC_LOCK_H */
