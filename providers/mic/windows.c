// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Windows: memory of peers, mapped into this process.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "process.h"
#include "windows.h"

static_assert(
	sizeof(off_t) == 8 && sizeof(size_t) == 8,
	"all windows of a class are mapped at once, at offsets of 64 bits");

#define STATES_SIZE (MIC_WINDOW_SLOTS * sizeof(__u32))

static struct mic_windows *init_windows(int fd)
{
	struct mic_windows *windows;
	void *states;

	states = mmap(NULL, STATES_SIZE, PROT_READ, MAP_SHARED, fd,
		      MIC_WINDOW_STATES);
	if (states == MAP_FAILED)
		return NULL;
	windows = calloc(1, sizeof(*windows));
	if (!windows) {
		munmap(states, STATES_SIZE);
		errno = ENOMEM;
		return NULL;
	}
	atomic_init(&windows->refs, 1);
	pthread_mutex_init(&windows->lock, NULL);
	windows->owner = mic_process();
	windows->fd = fd;
	windows->states = states;
	return windows;
}

struct mic_windows *mic_windows_open(int doorbell_fd)
{
	struct mic_windows *windows;
	int fd, err;

	fd = ioctl(doorbell_fd, MIC_IOC_WINDOWS, 0);
	if (fd < 0)
		return NULL;
	windows = init_windows(fd);
	if (!windows) {
		err = errno;
		close(fd);
		errno = err;
	}
	return windows;
}

struct mic_windows *mic_windows_get(struct mic_windows *windows)
{
	atomic_fetch_add(&windows->refs, 1);
	return windows;
}

static size_t region_size(unsigned int index)
{
	return (size_t)MIC_WINDOW_SLOTS << (MIC_WINDOW_CLASS_MIN + index);
}

/* What a child has where its parent has the mapping is something else. */
static void unmap(const struct mic_windows *windows, void *addr, size_t size)
{
	if (addr && windows->owner == mic_process())
		munmap(addr, size);
}

void mic_windows_put(struct mic_windows *windows)
{
	unsigned int i;

	if (!windows || atomic_fetch_sub(&windows->refs, 1) != 1)
		return;
	for (i = 0; i < MIC_REGIONS; i++) {
		unmap(windows, windows->region[0][i], region_size(i));
		unmap(windows, windows->region[1][i], region_size(i));
	}
	unmap(windows, windows->states, STATES_SIZE);
	close(windows->fd);
	pthread_mutex_destroy(&windows->lock);
	free(windows);
}

/* At @place, in place of what is there, or anywhere if it is NULL. */
static void *map_file(const struct mic_windows *windows, uint64_t offset,
		      size_t size, int prot, void *place)
{
	void *addr = mmap(place, size, prot,
			  MAP_SHARED | MAP_NORESERVE | (place ? MAP_FIXED : 0),
			  windows->fd, (off_t)offset);

	return addr == MAP_FAILED ? NULL : addr;
}

/* All windows of a class, or NULL where there is no room for so much. */
static char *get_region(struct mic_windows *windows, bool writable,
			unsigned int class)
{
	unsigned int index = class - MIC_WINDOW_CLASS_MIN;
	char **region = &windows->region[writable][index];

	pthread_mutex_lock(&windows->lock);
	if (!*region)
		*region = map_file(
			windows,
			(uint64_t) class << MIC_WINDOW_CLASS_SHIFT |
				(writable ? MIC_WINDOW_WRITABLE : 0),
			region_size(index),
			writable ? PROT_READ | PROT_WRITE : PROT_READ, NULL);
	pthread_mutex_unlock(&windows->lock);
	return *region;
}

/* Returns 0 or an errno value. */
static int map_alone(struct mic_windows *windows, uint64_t offset, int prot,
		     char *place, struct mic_window *window)
{
	const uint64_t mask = sysconf(_SC_PAGESIZE) - 1;
	uint64_t in_page = offset & mask;

	if (place && ((uintptr_t)place & mask) != in_page)
		return EINVAL;
	window->map_size = (in_page + window->length + mask) & ~mask;
	window->map = map_file(windows, offset - in_page, window->map_size,
			       prot, place ? place - in_page : NULL);
	if (!window->map)
		return errno;
	atomic_fetch_add(&windows->alone, 1);
	window->addr = (char *)window->map + in_page;
	return 0;
}

static int map_window(struct mic_windows *windows, uint64_t offset,
		      struct mic_window *window)
{
	const bool writable = offset & MIC_WINDOW_WRITABLE;
	unsigned int class;
	char *region;

	class = (offset & ~MIC_WINDOW_WRITABLE) >> MIC_WINDOW_CLASS_SHIFT;
	if (class >= MIC_WINDOW_CLASS_MIN && class <= MIC_REGION_CLASS_MAX) {
		region = get_region(windows, writable, class);
		if (region) {
			window->addr = region +
				       (offset &
					((1ULL << MIC_WINDOW_CLASS_SHIFT) - 1));
			return 0;
		}
	}
	if (atomic_load(&windows->alone) >= MIC_WINDOWS_ALONE)
		return ENOMEM;
	return map_alone(windows, offset,
			 writable ? PROT_READ | PROT_WRITE : PROT_READ, NULL,
			 window);
}

static int ask(struct mic_windows *windows, struct mic_window_import *req,
	       struct mic_window *window)
{
	if (ioctl(windows->fd, MIC_IOC_IMPORT, req))
		return errno;
	window->start = req->addr;
	window->length = req->length;
	window->access = req->access;
	window->slot = req->slot;
	window->state = (_Atomic(__u32) *)&windows->states[req->slot];
	window->map = NULL;
	window->map_size = 0;
	return 0;
}

static int finish(struct mic_windows *windows, struct mic_window *window,
		  int err)
{
	if (err) {
		ioctl(windows->fd, MIC_IOC_DROP, (unsigned long)window->slot);
		window->access = 0; /* the slot is somebody else's now */
	}
	return err;
}

/* A window for the requests of a queue pair. */
int mic_window_import(struct mic_windows *windows,
		      struct mic_window_import *req, struct mic_window *window)
{
	int err = ask(windows, req, window);

	if (err)
		return err;
	return finish(windows, window,
		      map_window(windows, req->offset, window));
}

/* A window with a mapping of its own, at @place if that is not NULL. */
int mic_window_map_alone(struct mic_windows *windows,
			 struct mic_window_import *req, int prot, void *place,
			 struct mic_window *window)
{
	int err = ask(windows, req, window);

	if (err)
		return err;
	return finish(windows, window,
		      map_alone(windows, req->offset, prot, place, window));
}

void mic_window_unmap(const struct mic_windows *windows,
		      const struct mic_window *window)
{
	unmap(windows, window->map, window->map_size);
}

void mic_window_drop(struct mic_windows *windows, struct mic_window *window)
{
	if (window->map)
		atomic_fetch_sub(&windows->alone, 1);
	ioctl(windows->fd, MIC_IOC_DROP, (unsigned long)window->slot);
}

int mic_windows_watch(struct mic_windows *windows, void *addr, size_t length,
		      uint32_t *slot)
{
	struct mic_memory_watch req = { .addr = (uintptr_t)addr,
					.length = length };

	if (ioctl(windows->fd, MIC_IOC_WATCH, &req))
		return errno == ENOTTY ? EOPNOTSUPP : errno;
	*slot = req.slot;
	return 0;
}

void mic_windows_unwatch(struct mic_windows *windows, uint32_t slot)
{
	ioctl(windows->fd, MIC_IOC_UNWATCH, (unsigned long)slot);
}
