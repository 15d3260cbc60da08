// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Windows: registering and unregistering memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "rma.h"

/* Where the library puts windows when it may choose. */
#define FIRST_OFFSET (1ULL << 40)

enum { RELEASE_MS = 2000 };

static bool is_aligned(uint64_t value)
{
	return !(value & (SCIF_PAGE - 1));
}

int scif_lock_error(int error)
{
	struct rlimit limit;

	if (error != ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) ||
	    limit.rlim_cur == RLIM_INFINITY ||
	    scif_has_capability(CAP_IPC_LOCK))
		return error ? error : ENOMEM;
	return EAGAIN;
}

/* The first window that ends behind @offset. */
static unsigned int find(const struct scif_rma *rma, uint64_t offset)
{
	unsigned int low = 0, high = rma->count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (rma->windows[middle].offset + rma->windows[middle].length <=
		    offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool overlaps(const struct scif_window *window, uint64_t offset,
		     uint64_t length)
{
	return window->offset < offset + length &&
	       offset < window->offset + window->length;
}

/* Is there a window, or one that the peer still has mapped? */
static bool is_taken(const struct scif_rma *rma, uint64_t offset,
		     uint64_t length)
{
	const struct scif_closing *closing;
	unsigned int i = find(rma, offset);

	if (i < rma->count && overlaps(&rma->windows[i], offset, length))
		return true;
	for (closing = rma->closing; closing; closing = closing->next)
		if (closing->maps && overlaps(&closing->window, offset, length))
			return true;
	return false;
}

static uint64_t choose_offset(struct scif_rma *rma, uint64_t length)
{
	uint64_t offset = rma->next_offset;

	if (offset < FIRST_OFFSET || offset + length > INT64_MAX)
		offset = FIRST_OFFSET;
	while (is_taken(rma, offset, length))
		offset += SCIF_PAGE;
	rma->next_offset = offset + length;
	return offset;
}

static int insert(struct scif_rma *rma, const struct scif_window *window)
{
	unsigned int i = find(rma, window->offset), room;
	struct scif_window *more;

	if (rma->count == SCIF_MAX_WINDOWS)
		return ENOMEM;
	if (rma->count == rma->room) {
		room = rma->room ? rma->room * 2 : 16;
		more = realloc(rma->windows, room * sizeof(*more));
		if (!more)
			return ENOMEM;
		rma->windows = more;
		rma->room = room;
	}
	memmove(&rma->windows[i + 1], &rma->windows[i],
		(rma->count - i) * sizeof(*window));
	rma->windows[i] = *window;
	rma->count++;
	return 0;
}

void scif_windows_take_out(struct scif_rma *rma, unsigned int at,
			   unsigned int count)
{
	scif_queue_lock(rma);
	rma->changes++;
	pthread_mutex_unlock(&rma->op_lock);
	rma->count -= count;
	memmove(&rma->windows[at], &rma->windows[at + count],
		(rma->count - at) * sizeof(rma->windows[0]));
}

/* Remote rights are the window's; local ones what one's own copies need. */
static int access_of(int prot)
{
	int access = 0;

	if (prot & SCIF_PROT_READ)
		access |= IBV_ACCESS_REMOTE_READ;
	if (prot & SCIF_PROT_WRITE)
		access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
	return access;
}

static struct scif_region **bucket(struct scif_rma *rma, const void *addr)
{
	return &rma->regions[(uintptr_t)addr / SCIF_PAGE % SCIF_REGION_BUCKETS];
}

/*
 * With the windows' lock: the region of other windows on the same memory, with
 * a reference, or NULL. Not one of another endpoint: its peer would keep the
 * key when its own windows are gone.
 */
static struct scif_region *share_region(struct scif_rma *rma, const void *addr,
					size_t length, int access)
{
	struct scif_region *region;
	bool current = false;

	for (region = *bucket(rma, addr); region; region = region->next) {
		if (region->addr != addr || region->length != length ||
		    region->access != access)
			continue;
		scif_queue_lock(rma);
		current = scif_region_is_current(region);
		pthread_mutex_unlock(&rma->op_lock);
		if (current)
			break;
	}
	if (region)
		scif_region_get(region);
	return region;
}

void scif_window_put_region(struct scif_rma *rma, struct scif_region *region)
{
	struct scif_region **link = bucket(rma, region->addr);
	bool last;

	pthread_mutex_lock(&rma->lock);
	last = atomic_load(&region->refs) == 1;
	while (last && *link && *link != region)
		link = &(*link)->next;
	if (last && *link)
		*link = region->next;
	if (!last)
		scif_region_put(region);
	pthread_mutex_unlock(&rma->lock);
	if (last)
		scif_region_put(region);
}

/* With closing windows, unless the peer has them mapped, or copies' regions. */
static bool has_ending(struct scif_rma *rma)
{
	const struct scif_closing *closing;
	bool ends;

	/* Who has it may take windows away, and wait for the peer of that connection. */
	if (pthread_mutex_trylock(&rma->lock))
		return true;
	for (closing = rma->closing; closing && closing->maps;
	     closing = closing->next)
		;
	ends = closing;
	pthread_mutex_unlock(&rma->lock);
	scif_queue_lock(rma);
	ends = ends || rma->leftovers;
	pthread_mutex_unlock(&rma->op_lock);
	/* Who has taken them off the lists may be at it still. */
	return ends || atomic_load(&rma->ending);
}

/*
 * Is memory of any endpoint about to be unlocked? What can be, is. One that was closed
 * while something was mapped keeps the rest for long.
 */
static bool something_ends(void)
{
	struct scif_endpoint *ep;
	bool ends = false;
	int state;

	for (ep = scif_get_next(NULL); ep; ep = scif_get_next(ep)) {
		state = scif_state(ep);
		if (state != SCIF_CONNECTED && state != SCIF_DISCONNECTED)
			continue;
		ends = ends || has_ending(ep->rma);
		scif_queue_poll(ep);
		scif_windows_try_settle(ep);
	}
	return ends || atomic_load(&scif_process.leaving);
}

/* What is about to end keeps memory locked; wait for that. */
static struct scif_region *lock_memory(struct scif_endpoint *ep, void *addr,
				       size_t length, int access)
{
	unsigned int round = SCIF_SPIN_ROUNDS; /* a try takes long already */
	uint64_t until = scif_now_ms() + RELEASE_MS;
	struct scif_region *region;
	bool ends = true; /* nobody has looked */

	for (;;) {
		region = scif_region_new(&ep->link, addr, length, access, true);
		if (region || errno != ENOMEM || scif_now_ms() >= until)
			return region;
		if (scif_cache_empty(ep->link.dev))
			continue;
		errno = ENOMEM;
		if (!ends)
			return NULL;
		/* Before the next try: what ends after that may be what it lacks. */
		ends = something_ends();
		if (ends)
			scif_relax(round++);
	}
}

/* With the windows' lock. */
static int add_window(struct scif_endpoint *ep, struct scif_window *window,
		      bool fixed)
{
	struct scif_rma *rma = ep->rma;
	int err;

	if (!fixed)
		window->offset = choose_offset(rma, window->length);
	else if (is_taken(rma, window->offset, window->length))
		return EADDRINUSE;
	window->id = ++rma->last_id;
	err = insert(rma, window);
	if (err)
		return err;
	err = scif_directory_publish(ep);
	if (err)
		scif_windows_take_out(rma, find(rma, window->offset), 1);
	return err;
}

static int do_register(struct scif_endpoint *ep, void *addr, size_t length,
		       off_t *offset, int prot, bool fixed)
{
	struct scif_window window = {
		.offset = *offset, .length = length, .addr = addr, .prot = prot
	};
	const int access = access_of(prot);
	struct scif_rma *rma = ep->rma;
	bool taken, shared;
	int err;

	pthread_mutex_lock(&rma->lock);
	taken = fixed && is_taken(rma, *offset, length);
	if (!taken)
		window.region = share_region(rma, addr, length, access);
	pthread_mutex_unlock(&rma->lock);
	if (taken)
		return EADDRINUSE;
	shared = window.region;
	if (!shared)
		window.region = lock_memory(ep, addr, length, access);
	if (!window.region)
		return scif_lock_error(errno);
	pthread_mutex_lock(&rma->lock);
	if (!shared) {
		window.region->next = *bucket(rma, addr);
		*bucket(rma, addr) = window.region;
	}
	err = add_window(ep, &window, fixed);
	pthread_mutex_unlock(&rma->lock);
	if (err)
		scif_window_put_region(rma, window.region);
	*offset = window.offset;
	return err;
}

static bool is_valid(const void *addr, size_t len, off_t offset, int prot,
		     int flags)
{
	if (flags & ~SCIF_MAP_FIXED || !is_aligned((uintptr_t)addr) || !len ||
	    !is_aligned(len) || prot & ~(SCIF_PROT_READ | SCIF_PROT_WRITE))
		return false;
	return !(flags & SCIF_MAP_FIXED) ||
	       (offset >= 0 && is_aligned(offset) &&
		len <= INT64_MAX - (uint64_t)offset);
}

SCIF_EXPORT off_t scif_register(scif_epd_t epd, void *addr, size_t len,
				off_t offset, int prot, int flags)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err = EINVAL;

	if (!ep)
		return SCIF_REGISTER_FAILED;
	if (is_valid(addr, len, offset, prot, flags))
		err = scif_check_connected(ep);
	if (!err)
		err = do_register(ep, addr, len, &offset, prot,
				  flags & SCIF_MAP_FIXED);
	scif_put(ep);
	if (err)
		errno = err;
	return err ? SCIF_REGISTER_FAILED : offset;
}

/* How many windows the range has; 0: ENXIO, below 0: it cuts one. */
static int count_windows(const struct scif_rma *rma, uint64_t offset,
			 uint64_t length, unsigned int first)
{
	uint64_t end = offset + length, at = offset;
	const struct scif_window *window;
	bool hole = false;
	unsigned int i;

	for (i = first; i < rma->count; i++) {
		window = &rma->windows[i];
		if (window->offset >= end)
			break;
		if (window->offset < offset ||
		    window->offset + window->length > end)
			return -1;
		hole = hole || window->offset != at;
		at = window->offset + window->length;
	}
	return hole || at != end ? 0 : (int)(i - first);
}

/* With the windows' lock. */
static int remove_windows(struct scif_endpoint *ep, uint64_t offset,
			  uint64_t length)
{
	unsigned int first = find(ep->rma, offset);
	int count = count_windows(ep->rma, offset, length, first);

	if (count < 0)
		return EINVAL;
	return count ? scif_windows_end(ep, first, count) : ENXIO;
}

static int do_unregister(struct scif_endpoint *ep, off_t offset, size_t len)
{
	int err;

	if (!ep->rma)
		return ENOTCONN;
	pthread_mutex_lock(&ep->rma->lock);
	err = remove_windows(ep, offset, len);
	pthread_mutex_unlock(&ep->rma->lock);
	if (!err) {
		/* Then the program may unmap what they copy from and to. */
		scif_operations_wait(ep->rma);
		scif_queue_poll(ep);
		scif_windows_settle(ep);
	}
	return err;
}

SCIF_EXPORT int scif_unregister(scif_epd_t epd, off_t offset, size_t len)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err = EINVAL;

	if (!ep)
		return -1;
	if (offset >= 0 && is_aligned(offset) && len && is_aligned(len) &&
	    len <= INT64_MAX - (uint64_t)offset) {
		err = scif_check_connected(ep);
		if (!err || err == ECONNRESET)
			err = do_unregister(ep, offset, len);
	}
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}

int scif_own_pieces(struct scif_rma *rma, off_t offset, size_t length, int prot,
		    struct scif_pieces *pieces)
{
	const struct scif_window *window;
	uint64_t at = offset, skip, part;
	unsigned int i;
	bool denied = false;
	int err = 0;

	if (offset < 0 || length > INT64_MAX - at)
		return ENXIO;
	pthread_mutex_lock(&rma->lock);
	for (i = find(rma, at); length && !err; i++) {
		window = &rma->windows[i];
		if (i >= rma->count || window->offset > at) {
			err = ENXIO;
			break;
		}
		denied = denied || (window->prot & prot) != prot;
		skip = at - window->offset;
		part = window->length - skip;
		if (part > length)
			part = length;
		err = scif_pieces_add(pieces, window->region->start + skip,
				      part, window->region->mr->lkey,
				      window->id);
		if (!err)
			pieces->list[pieces->count - 1].region = window->region;
		at += part;
		length -= part;
	}
	pthread_mutex_unlock(&rma->lock);
	return err ? err : denied ? EACCES : 0;
}

bool scif_own_window(struct scif_rma *rma, uint64_t offset,
		     struct scif_window *window, uint64_t *changes)
{
	unsigned int i;
	bool found;

	pthread_mutex_lock(&rma->lock);
	i = find(rma, offset);
	found = i < rma->count && rma->windows[i].offset <= offset;
	if (found)
		*window = rma->windows[i];
	*changes = rma->changes;
	pthread_mutex_unlock(&rma->lock);
	return found;
}

int scif_window_mapped(struct scif_endpoint *ep, uint64_t id, bool mapped)
{
	struct scif_rma *rma = ep->rma;
	struct scif_closing *closing;
	unsigned int *maps = NULL, i;

	pthread_mutex_lock(&rma->lock);
	for (i = 0; i < rma->count; i++)
		if (rma->windows[i].id == id)
			maps = &rma->windows[i].maps;
	/* A closing window can lose mappings, not get any. */
	for (closing = rma->closing; closing && !mapped;
	     closing = closing->next)
		if (closing->window.id == id)
			maps = &closing->maps;
	if (maps && !mapped && !*maps)
		maps = NULL;
	else if (maps)
		*maps += mapped ? 1 : -1;
	pthread_mutex_unlock(&rma->lock);
	return maps ? 0 : ENXIO;
}

void scif_windows_close(struct scif_rma *rma)
{
	struct scif_closing *closing;
	unsigned int i;

	for (i = 0; i < rma->count; i++)
		scif_window_put_region(rma, rma->windows[i].region);
	free(rma->windows);
	while ((closing = rma->closing)) {
		rma->closing = closing->next;
		scif_window_put_region(rma, closing->window.region);
		free(closing);
	}
}
