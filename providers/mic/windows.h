/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Windows: memory of peers, mapped into this process. <rdma/mic-abi.h> has the
 * contract with the kernel.
 */
#ifndef MIC_WINDOWS_H
#define MIC_WINDOWS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/mic-abi.h>

enum {
	/* Windows up to 64 KiB are mapped together: those of a class at once. */
	MIC_REGION_CLASS_MAX = 16,
	MIC_REGIONS = MIC_REGION_CLASS_MAX - MIC_WINDOW_CLASS_MIN + 1,
	/*
	 * Of the others each is a mapping, and a process may have 65530 if the system's
	 * administrator has not said otherwise (vm.max_map_count). Without one left it
	 * could not even create a thread, so queue pairs have no more than these.
	 */
	MIC_WINDOWS_ALONE = 8192,
};

/* The windows file of a context, and what is always mapped of it. */
struct mic_windows {
	atomic_uint refs;
	uint32_t owner; /* a child of fork() has none of the mappings */
	int fd;
	__u32 *states;
	atomic_uint alone;    /* windows that are mapped alone */
	pthread_mutex_t lock; /* mapping of @region */
	char *region[2][MIC_REGIONS];
};

/* A window, mapped. */
struct mic_window {
	char *addr; /* the byte at @start of the peer is here */
	uint64_t start;
	uint64_t length;
	_Atomic(__u32) *state;
	uint32_t slot;
	uint32_t access; /* what requests may do, and MIC_WINDOW_OWN */
	void *map;	 /* its own mapping, if it has one */
	size_t map_size;
};

/* Returns NULL and sets errno. */
struct mic_windows *mic_windows_open(int doorbell_fd);
struct mic_windows *mic_windows_get(struct mic_windows *windows);
void mic_windows_put(struct mic_windows *windows);

/* Both return 0 or an errno value. */
int mic_window_import(struct mic_windows *windows,
		      struct mic_window_import *req, struct mic_window *window);
int mic_window_map_alone(struct mic_windows *windows,
			 struct mic_window_import *req, int prot, void *place,
			 struct mic_window *window);
/* Before it is dropped, if its mapping is its own; or the caller has done so. */
void mic_window_unmap(const struct mic_windows *windows,
		      const struct mic_window *window);
void mic_window_drop(struct mic_windows *windows, struct mic_window *window);

/* Watching this process's own memory. Returns 0 or an errno value. */
int mic_windows_watch(struct mic_windows *windows, void *addr, size_t length,
		      uint32_t *slot);
void mic_windows_unwatch(struct mic_windows *windows, uint32_t slot);

static inline uint32_t mic_windows_state(const struct mic_windows *windows,
					 uint32_t slot)
{
	return atomic_load_explicit((_Atomic(__u32) *)&windows->states[slot],
				    memory_order_acquire);
}

static inline uint32_t mic_window_state(const struct mic_window *window)
{
	return atomic_load_explicit(window->state, memory_order_acquire);
}

/*
 * May @local and what requests call @remote be the same memory, at least in part? That
 * is known of this process's own only.
 */
static inline bool mic_window_overlaps(const struct mic_window *window,
				       uint64_t remote, uint64_t remote_length,
				       const char *local, uint64_t length)
{
	const uint64_t addr = (uintptr_t)local;

	if (!(window->access & MIC_WINDOW_OWN))
		return false;
	return window->access & MIC_WINDOW_RENAMED ||
	       (addr < remote + remote_length && remote < addr + length);
}

#endif /* MIC_WINDOWS_H */
