/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A spin lock for queues that costs nothing where there is nobody to exclude:
 * the application promised so (thread domain, IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
 * or the process has one thread.
 */
#ifndef MIC_LOCK_H
#define MIC_LOCK_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define mic_one_thread() (__libc_single_threaded)
#else
#define mic_one_thread() (false)
#endif

/* How often to look at a taken lock before the owner is given the CPU. */
#define MIC_LOCK_SPINS 128

struct mic_lock {
	atomic_bool taken;
	bool unneeded;
};

static inline void mic_lock_init(struct mic_lock *lock, bool unneeded)
{
	atomic_init(&lock->taken, false);
	lock->unneeded = unneeded;
}

static inline void mic_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

static inline void mic_lock_contended(struct mic_lock *lock)
{
	unsigned int spins = 0;

	do {
		while (atomic_load_explicit(&lock->taken,
					    memory_order_relaxed)) {
			if (++spins % MIC_LOCK_SPINS)
				mic_cpu_relax();
			else
				sched_yield();
		}
	} while (atomic_exchange_explicit(&lock->taken, true,
					  memory_order_acquire));
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
		atomic_store_explicit(&lock->taken, true, memory_order_relaxed);
	else if (atomic_exchange_explicit(&lock->taken, true,
					  memory_order_acquire))
		mic_lock_contended(lock);
}

static inline void mic_unlock(struct mic_lock *lock)
{
	if (!lock->unneeded)
		atomic_store_explicit(&lock->taken, false,
				      memory_order_release);
}

#endif /* MIC_LOCK_H */
