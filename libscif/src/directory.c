// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * The directory of windows: each side publishes its own and reads the peer's
 * by RDMA, when the peer has said by a number that it changed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rma.h"

enum { FIRST_ROOM = SCIF_PAGE / sizeof(struct scif_dir_entry) };

/* A directory that became too small; the peer may still be reading it. */
struct scif_old_dir {
	struct scif_old_dir *next;
	struct scif_dir_entry *dir;
	struct ibv_mr *mr;
	unsigned int room;
};

static size_t bytes_of(unsigned int entries)
{
	return entries * sizeof(struct scif_dir_entry);
}

/* Registered memory for at least @count entries; NULL with errno. */
static struct scif_dir_entry *allocate(struct scif_endpoint *ep,
				       unsigned int count, int access,
				       unsigned int *room, struct ibv_mr **mr)
{
	struct scif_dir_entry *dir;

	for (*room = FIRST_ROOM; *room < count; *room *= 2)
		;
	dir = mmap(NULL, bytes_of(*room), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (dir == MAP_FAILED)
		return NULL;
	*mr = scif_link_register(&ep->link, dir, bytes_of(*room), access);
	if (!*mr) {
		munmap(dir, bytes_of(*room));
		return NULL;
	}
	return dir;
}

static void release(struct scif_dir_entry *dir, struct ibv_mr *mr,
		    unsigned int room)
{
	if (!dir)
		return;
	ibv_dereg_mr(mr);
	munmap(dir, bytes_of(room));
}

static int grow(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;
	struct scif_old_dir *old = calloc(1, sizeof(*old));
	struct scif_dir_entry *dir;
	struct ibv_mr *mr;
	unsigned int room;

	dir = old ? allocate(ep, rma->count, IBV_ACCESS_REMOTE_READ, &room,
			     &mr) :
		    NULL;
	if (!dir) {
		free(old);
		return ENOMEM;
	}
	old->dir = rma->dir;
	old->mr = rma->dir_mr;
	old->room = rma->dir_room;
	old->next = rma->old_dirs;
	rma->old_dirs = old;
	rma->dir = dir;
	rma->dir_mr = mr;
	rma->dir_room = room;
	return 0;
}

static void fill_entry(struct scif_dir_entry *entry,
		       const struct scif_window *window)
{
	entry->offset = window->offset;
	entry->length = window->length;
	entry->addr = window->region->start;
	entry->id = window->id;
	entry->rkey = window->region->mr->rkey;
	entry->prot = window->prot;
}

/* With the windows' lock: tell the peer what there is. 0 or an errno. */
int scif_directory_publish(struct scif_endpoint *ep)
{
	struct scif_dir_head *head = &ep->link.shared->dir;
	struct scif_link *link = &ep->link;
	struct scif_rma *rma = ep->rma;
	uint32_t gen = atomic_load(&head->end) + 1;
	unsigned int i;
	int err;

	if (rma->count > rma->dir_room && grow(ep))
		return scif_lock_error(ENOMEM);
	/* 0 is what a peer without a directory knows. */
	gen += gen == 0;
	atomic_store(&head->begin, gen);
	atomic_thread_fence(memory_order_seq_cst);
	for (i = 0; i < rma->count; i++)
		fill_entry(&rma->dir[i], &rma->windows[i]);
	head->count = rma->count;
	head->addr = (uintptr_t)rma->dir;
	head->rkey = rma->dir_mr ? rma->dir_mr->rkey : 0;
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store(&head->end, gen);
	pthread_mutex_lock(&link->lock);
	link->local->dir_gen = gen;
	err = scif_link_write_words(link, &link->local->dir_gen,
				    offsetof(struct scif_shared, dir_gen),
				    sizeof(gen));
	pthread_mutex_unlock(&link->lock);
	if (err)
		scif_lost(ep);
	return err;
}

void scif_directory_close(struct scif_rma *rma)
{
	struct scif_old_dir *old;

	while ((old = rma->old_dirs)) {
		rma->old_dirs = old->next;
		release(old->dir, old->mr, old->room);
		free(old);
	}
	release(rma->dir, rma->dir_mr, rma->dir_room);
	release(rma->peer, rma->peer_mr, rma->peer_room);
}

static void fill_read(struct ibv_send_wr *wr, struct ibv_sge *sge, void *to,
		      struct ibv_mr *mr, uint32_t length, uint64_t from,
		      uint32_t rkey)
{
	sge->addr = (uintptr_t)to;
	sge->length = length;
	sge->lkey = mr->lkey;
	memset(wr, 0, sizeof(*wr));
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = from;
	wr->wr.rdma.rkey = rkey;
}

static int read_head(struct scif_endpoint *ep, struct scif_dir_head *to)
{
	struct scif_link *link = &ep->link;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	fill_read(&wr, &sge, to, link->local_mr, sizeof(*to),
		  link->peer_addr + offsetof(struct scif_shared, dir),
		  link->peer_rkey);
	return scif_link_write(link, &wr);
}

/* The entries, and the head once more. */
static int read_entries(struct scif_endpoint *ep,
			const struct scif_dir_head *head)
{
	struct scif_link *link = &ep->link;
	struct scif_rma *rma = ep->rma;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	int err;

	fill_read(&wr, &sge, rma->peer, rma->peer_mr, bytes_of(head->count),
		  head->addr, head->rkey);
	err = scif_link_write(link, &wr);
	return err ? err : read_head(ep, &link->local->dir_after);
}

static int make_room(struct scif_endpoint *ep, unsigned int count)
{
	struct scif_rma *rma = ep->rma;
	struct scif_dir_entry *dir;
	struct ibv_mr *mr;
	unsigned int room;

	if (count <= rma->peer_room)
		return 0;
	dir = allocate(ep, count, IBV_ACCESS_LOCAL_WRITE, &room, &mr);
	if (!dir)
		return ENOMEM;
	release(rma->peer, rma->peer_mr, rma->peer_room);
	rma->peer = dir;
	rma->peer_mr = mr;
	rma->peer_room = room;
	return 0;
}

/* In order and of whole pages: lookups and mappings rely on it. */
static bool is_sane(const struct scif_rma *rma)
{
	const struct scif_dir_entry *entry;
	uint64_t end = 0;
	unsigned int i;

	for (i = 0; i < rma->peer_count; i++) {
		entry = &rma->peer[i];
		if (entry->offset < end || !entry->length ||
		    entry->offset + entry->length < entry->offset ||
		    (entry->offset | entry->length | entry->addr) % SCIF_PAGE)
			return false;
		end = entry->offset + entry->length;
	}
	return true;
}

/* With the link's lock: one attempt. 0, EAGAIN, or an errno. */
static int read_once(struct scif_endpoint *ep)
{
	struct scif_local *local = ep->link.local;
	struct scif_dir_head head;
	int err;

	err = read_head(ep, &local->dir_before);
	if (err)
		return err;
	head = local->dir_before;
	if (atomic_load(&head.begin) != atomic_load(&head.end))
		return EAGAIN;
	if (head.count > SCIF_MAX_WINDOWS)
		return ECONNRESET;
	err = make_room(ep, head.count);
	if (!err && head.count)
		err = read_entries(ep, &head);
	else if (!err)
		local->dir_after = local->dir_before;
	if (err)
		return err;
	if (atomic_load(&local->dir_after.begin) != atomic_load(&head.end))
		return EAGAIN;
	ep->rma->peer_count = head.count;
	ep->rma->peer_gen = atomic_load(&head.end);
	return is_sane(ep->rma) ? 0 : ECONNRESET;
}

/* With the peer directory's lock. One that is published anew takes time anew. */
static int read_directory(struct scif_endpoint *ep)
{
	struct scif_link *link = &ep->link;
	struct scif_wait wait = { 0 };
	uint32_t last = 0, end;
	bool news;
	int err;

	do {
		pthread_mutex_lock(&link->lock);
		err = read_once(ep);
		end = atomic_load(&link->local->dir_before.end);
		pthread_mutex_unlock(&link->lock);
		news = end != last;
		last = end;
	} while (err == EAGAIN && scif_link_again(link, &wait, news));
	scif_link_waited(link, &wait);
	/* A directory that is about to change for ever isn't one. */
	if (err == EAGAIN || err == ECONNRESET) {
		ep->rma->peer_count = 0;
		scif_lost(ep);
		err = ECONNRESET;
	}
	return err == ENOMEM ? scif_lock_error(err) : err;
}

/* The first entry that ends behind @offset. */
static unsigned int find(const struct scif_rma *rma, uint64_t offset)
{
	unsigned int low = 0, high = rma->peer_count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (rma->peer[middle].offset + rma->peer[middle].length <=
		    offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int collect(struct scif_rma *rma, uint64_t offset, uint64_t length,
		   uint32_t prot, struct scif_pieces *pieces)
{
	unsigned int i = find(rma, offset);
	const struct scif_dir_entry *entry;
	bool denied = false;
	uint64_t skip, part;

	for (; length; i++) {
		entry = &rma->peer[i];
		if (i >= rma->peer_count || entry->offset > offset)
			return ENXIO;
		denied = denied || (entry->prot & prot) != prot;
		skip = offset - entry->offset;
		part = entry->length - skip;
		if (part > length)
			part = length;
		if (scif_pieces_add(pieces, entry->addr + skip, part,
				    entry->rkey, entry->id))
			return ENOMEM;
		offset += part;
		length -= part;
	}
	return denied ? EACCES : 0;
}

int scif_peer_pieces(struct scif_endpoint *ep, off_t offset, size_t length,
		     int prot, struct scif_pieces *pieces)
{
	struct scif_rma *rma = ep->rma;
	int err = 0;

	if (offset < 0 || length > INT64_MAX - (uint64_t)offset)
		return ENXIO;
	pthread_mutex_lock(&rma->peer_lock);
	if (atomic_load(&ep->link.shared->dir_gen) != rma->peer_gen)
		err = read_directory(ep);
	if (!err)
		err = collect(rma, offset, length, prot, pieces);
	pthread_mutex_unlock(&rma->peer_lock);
	return err;
}

bool scif_peer_window(struct scif_endpoint *ep, uint64_t offset,
		      struct scif_dir_entry *entry, uint32_t *gen)
{
	struct scif_rma *rma = ep->rma;
	unsigned int i;
	bool found;

	pthread_mutex_lock(&rma->peer_lock);
	i = find(rma, offset);
	found = i < rma->peer_count && rma->peer[i].offset <= offset;
	if (found)
		*entry = rma->peer[i];
	*gen = rma->peer_gen;
	pthread_mutex_unlock(&rma->peer_lock);
	return found;
}
