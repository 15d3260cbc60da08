// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Endpoints by descriptor. The descriptor's inode says if a number still means
 * the endpoint it meant, whatever the application closed and opened; it also
 * finds the endpoint behind a number made by dup().
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"
#include "slots.h"

enum { BUCKETS = 1024, WARM_COPIES = 16 };

/*
 * While there is a descriptor of which the table does not know: a child would keep it. A
 * signal may come then, and who handles it fork.
 */
static pthread_mutex_t birth_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct scif_endpoint *buckets[BUCKETS];
_Atomic(struct scif_slot *) scif_chunks[SCIF_CHUNKS];
atomic_uint scif_doubts;
static int slot_count;
static struct scif_endpoint *unused;

static struct scif_endpoint *find(uint64_t inode)
{
	struct scif_endpoint *ep;

	for (ep = buckets[inode % BUCKETS]; ep; ep = ep->next)
		if (ep->inode == inode)
			return ep;
	return NULL;
}

static void set_slot(struct scif_slot *slot, struct scif_endpoint *ep)
{
	atomic_store(&slot->ep, ep);
	atomic_store(&slot->sure, ep);
}

static int remember(scif_epd_t epd, struct scif_endpoint *ep)
{
	struct scif_slot *chunk;

	if (epd >= SCIF_CHUNK * SCIF_CHUNKS)
		return ENOMEM;
	if (!scif_slot_of(epd)) {
		chunk = calloc(SCIF_CHUNK, sizeof(*chunk));
		if (!chunk)
			return ENOMEM;
		atomic_store_explicit(&scif_chunks[epd / SCIF_CHUNK], chunk,
				      memory_order_release);
	}
	set_slot(scif_slot_of(epd), ep);
	if (epd >= slot_count)
		slot_count = epd + 1;
	return 0;
}

/*
 * The memory of an endpoint never becomes anything else: so scif_get() may try
 * to take a reference to one that is freed meanwhile.
 */
struct scif_endpoint *scif_table_make(void)
{
	const size_t kept = offsetof(struct scif_endpoint, next);
	struct scif_endpoint *ep;

	pthread_mutex_lock(&table_lock);
	ep = unused;
	if (ep)
		unused = ep->next;
	pthread_mutex_unlock(&table_lock);
	if (!ep)
		return calloc(1, sizeof(*ep));
	memset((char *)ep + kept, 0, sizeof(*ep) - kept);
	atomic_store(&ep->sending, false);
	atomic_store(&ep->receiving, false);
	return ep;
}

void scif_table_free(struct scif_endpoint *ep)
{
	pthread_mutex_lock(&table_lock);
	ep->next = unused;
	unused = ep;
	pthread_mutex_unlock(&table_lock);
}

bool scif_try_get(struct scif_endpoint *ep)
{
	int refs = atomic_load(&ep->refs);

	while (refs > 0)
		if (atomic_compare_exchange_weak(&ep->refs, &refs, refs + 1))
			return true;
	return false;
}

void scif_put(struct scif_endpoint *ep)
{
	if (atomic_fetch_sub(&ep->refs, 1) == 1)
		scif_endpoint_free(ep);
}

struct scif_endpoint *scif_get_by_inode(uint64_t inode)
{
	struct scif_endpoint *ep;

	pthread_mutex_lock(&table_lock);
	ep = find(inode);
	if (ep)
		atomic_fetch_add(&ep->refs, 1);
	pthread_mutex_unlock(&table_lock);
	return ep;
}

/* Another thread may close it between the two looks: then look again. */
static struct scif_endpoint *look(scif_epd_t epd)
{
	struct scif_endpoint *ep = NULL;
	struct stat status;
	uint64_t unknown = 0;

	while (!ep) {
		if (fstat(epd, &status))
			return NULL;
		if (!S_ISSOCK(status.st_mode) || status.st_ino == unknown) {
			errno = ENOTTY;
			return NULL;
		}
		unknown = status.st_ino;
		pthread_mutex_lock(&table_lock);
		ep = find(status.st_ino);
		if (ep) {
			remember(epd, ep);
			atomic_fetch_add(&ep->refs, 1);
		}
		pthread_mutex_unlock(&table_lock);
	}
	return ep;
}

/* Then there are ticks, which doubt what is known. */
static bool is_busy(struct scif_endpoint *ep)
{
	return atomic_load_explicit(&ep->hot, memory_order_relaxed) ||
	       atomic_load_explicit(&ep->warm, memory_order_relaxed);
}

/*
 * A system call for each lookup, except while an endpoint is hot or warm: then
 * the descriptor was looked at a moment ago.
 */
struct scif_endpoint *scif_get(scif_epd_t epd)
{
	struct scif_endpoint *ep = scif_known(epd);

	if (ep && scif_try_get(ep)) {
		/* Still that one, with the reference? */
		if (scif_known(epd) == ep && is_busy(ep))
			return ep;
		scif_put(ep);
	}
	return look(epd);
}

static void warm(struct scif_endpoint *ep)
{
	if (atomic_load_explicit(&ep->warm, memory_order_relaxed)) {
		atomic_store_explicit(&ep->copied, true, memory_order_relaxed);
		return;
	}
	if (atomic_fetch_add(&ep->copies, 1) < WARM_COPIES)
		return;
	scif_table_doubt();
	if (atomic_exchange(&ep->warm, true))
		return;
	scif_process_tick();
	/* Whoever closed it meanwhile may have looked too early. */
	if (scif_state(ep) == SCIF_CLOSED)
		scif_chill(ep);
}

void scif_chill(struct scif_endpoint *ep)
{
	if (!atomic_exchange(&ep->warm, false))
		return;
	scif_process_untick();
	atomic_store(&ep->copies, 0);
}

struct scif_endpoint *scif_get_to_copy(scif_epd_t epd)
{
	struct scif_endpoint *ep = scif_get(epd);

	if (ep)
		warm(ep);
	return ep;
}

/* One that has left the table tells no next: its bucket begins again. */
struct scif_endpoint *scif_get_next(struct scif_endpoint *ep)
{
	struct scif_endpoint *next;
	uint64_t bucket;

	pthread_mutex_lock(&table_lock);
	next = ep ? ep->next : NULL;
	bucket = ep ? ep->inode % BUCKETS + ep->linked : 0;
	while (!next && bucket < BUCKETS)
		next = buckets[bucket++];
	if (next)
		atomic_fetch_add(&next->refs, 1);
	pthread_mutex_unlock(&table_lock);
	if (ep)
		scif_put(ep);
	return next;
}

void scif_table_begin(void)
{
	pthread_mutex_lock(&birth_lock);
}

void scif_table_end(void)
{
	pthread_mutex_unlock(&birth_lock);
}

int scif_table_add(struct scif_endpoint *ep, scif_epd_t epd)
{
	struct scif_endpoint **bucket = &buckets[ep->inode % BUCKETS];
	int err;

	pthread_mutex_lock(&table_lock);
	err = remember(epd, ep);
	if (!err) {
		ep->next = *bucket;
		*bucket = ep;
		ep->linked = true;
		atomic_fetch_add(&ep->refs, 1);
	}
	pthread_mutex_unlock(&table_lock);
	return err;
}

void scif_table_remove(struct scif_endpoint *ep)
{
	struct scif_endpoint **link = &buckets[ep->inode % BUCKETS];
	bool linked;
	int i;

	pthread_mutex_lock(&table_lock);
	linked = ep->linked;
	ep->linked = false;
	while (linked && *link != ep)
		link = &(*link)->next;
	if (linked) {
		*link = ep->next;
		ep->leaves = true;
		atomic_fetch_add(&scif_process.leaving, 1);
	}
	ep->next = NULL;
	for (i = 0; linked && i < slot_count; i++)
		if (scif_slot_of(i) && atomic_load(&scif_slot_of(i)->ep) == ep)
			set_slot(scif_slot_of(i), NULL);
	pthread_mutex_unlock(&table_lock);
	if (linked)
		scif_put(ep);
}

void scif_table_doubt(void)
{
	int i;

	atomic_fetch_add(&scif_doubts, 1);
	pthread_mutex_lock(&table_lock);
	for (i = 0; i < slot_count; i++)
		if (scif_slot_of(i))
			atomic_store(&scif_slot_of(i)->sure, false);
	pthread_mutex_unlock(&table_lock);
}

/* A file that is nobody's, also where there is no /dev. */
static int open_nothing(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	return fd < 0 ? eventfd(0, EFD_CLOEXEC) : fd;
}

/* The next of the process's numbers that is a socket, and that one's inode, or -1. */
static int next_socket(DIR *numbers, uint64_t *inode)
{
	struct dirent *entry;
	struct stat status;
	int fd;

	while ((entry = readdir(numbers))) {
		fd = atoi(entry->d_name);
		if (fstat(fd, &status) || !S_ISSOCK(status.st_mode))
			continue;
		*inode = status.st_ino;
		return fd;
	}
	return -1;
}

bool scif_table_has_number(const struct scif_endpoint *ep)
{
	DIR *numbers = opendir("/proc/self/fd");
	uint64_t inode = 0;
	int fd = 0;

	if (!numbers)
		return true;
	while (fd >= 0 && inode != ep->inode)
		fd = next_socket(numbers, &inode);
	closedir(numbers);
	return fd >= 0;
}

/* Numbers that no call has been given yet, as those that dup() has made. */
static void abandon_unknown(int nothing)
{
	DIR *numbers = opendir("/proc/self/fd");
	uint64_t inode;
	int fd;

	if (!numbers)
		return;
	while ((fd = next_socket(numbers, &inode)) >= 0)
		if (find(inode))
			dup3(nothing, fd, O_CLOEXEC);
	closedir(numbers);
}

/*
 * The numbers stay taken, so that nobody closes a stranger's descriptor. Those that
 * are strangers' already, because the endpoint outlives its descriptor, are theirs.
 */
void scif_table_abandon(void)
{
	struct scif_endpoint *ep;
	int i, nothing;

	pthread_mutex_init(&birth_lock, NULL);
	pthread_mutex_init(&table_lock, NULL);
	for (i = 0; i < BUCKETS; i++)
		for (ep = buckets[i]; ep; ep = ep->next)
			if (ep->steer.fd >= 0)
				close(ep->steer.fd);
	/* Now there is a number for it, if all that a process may have were taken. */
	nothing = open_nothing();
	for (i = 0; i < slot_count; i++) {
		if (!scif_slot_of(i))
			continue;
		ep = atomic_load(&scif_slot_of(i)->ep);
		if (ep && nothing >= 0 && scif_is_own(ep, i))
			dup3(nothing, i, O_CLOEXEC);
		set_slot(scif_slot_of(i), NULL);
	}
	if (nothing >= 0)
		abandon_unknown(nothing);
	close(nothing);
	memset(buckets, 0, sizeof(buckets));
}
