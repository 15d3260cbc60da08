// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Locks that are taken by another thread. As a rule that is done with it in less than a
 * microsecond. But it may also be copying a gigabyte or wait in the kernel, and where a
 * real-time thread waits for it the other one may not run before that sleeps. So who
 * waits looks for a while and then sleeps.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lock.h"

enum {
	/* How often to look at a lock before another thread is given the CPU. */
	SPINS = 128,
	/* How often to do that: that is a tenth of a millisecond. */
	YIELDS = 16,
	SLEEP_NS = 1000000,
};

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

static bool is_free(struct mic_lock *lock)
{
	return atomic_load_explicit(&lock->state, memory_order_relaxed) ==
	       MIC_LOCK_FREE;
}

/* Does it become so, or the contrary, in a while? */
static bool becomes_free(struct mic_lock *lock, bool yes)
{
	unsigned int i;

	for (i = 1; i < SPINS * YIELDS; i++) {
		if (is_free(lock) == yes)
			return true;
		if (i % SPINS)
			cpu_relax();
		else
			sched_yield();
	}
	return false;
}

/* Sleep until it is. Returns true if this thread has it then. */
static bool sleep_until_free(struct mic_lock *lock)
{
	const struct timespec most = { .tv_nsec = SLEEP_NS };

	do {
		if (atomic_exchange_explicit(&lock->state, MIC_LOCK_AWAITED,
					     memory_order_acquire) ==
		    MIC_LOCK_FREE)
			return true;
	} while (syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE,
			 MIC_LOCK_AWAITED, &most, NULL, 0) &&
		 errno == ETIMEDOUT);
	return false;
}

void mic_lock_contended(struct mic_lock *lock)
{
	enum mic_lock_state as = MIC_LOCK_TAKEN;

	for (;;) {
		if (becomes_free(lock, true)) {
			if (mic_lock_try(lock, as))
				return;
			continue;
		}
		if (sleep_until_free(lock))
			return;
		/* there may be other sleepers */
		as = MIC_LOCK_AWAITED;
	}
}

/*
 * Who is woken needs a moment. If this thread had the lock again in that, as it often
 * wants, it would be taken each time that the other one looks.
 */
void mic_unlock_awaited(struct mic_lock *lock)
{
	atomic_store_explicit(&lock->state, MIC_LOCK_FREE,
			      memory_order_release);
	syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	becomes_free(lock, false);
}
