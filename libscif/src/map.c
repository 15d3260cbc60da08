// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Mapping the peer's windows, by direct verbs of the mic device. A mapping has a
 * part for each window, side by side.
 *
 * A part lives as long as the queue pair for copies on both sides, and the
 * region. So the owner is told of each and keeps them, also when the window is
 * unregistered and when the connection ends. It is told of the ends, too, some at a
 * time: it may be stopped, and then the others wait, and who unmaps does not. When
 * the connection has ended, a side that maps
 * nothing any more writes so to the other from time to time. If that fails, the
 * other's queue pair has gone, and its mappings with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "direct.h"
#include "rma.h"

struct part {
	struct micdv_window *window; /* NULL: it could not be mapped */
	uint64_t id;		     /* the peer's window */
};

struct mapping {
	struct mapping *next;
	struct scif_endpoint *ep;
	uint8_t *addr;
	size_t length;
	size_t mapped;	    /* by so many parts */
	bool ready;	    /* all parts are there: others may end it */
	unsigned int count; /* of which the peer knows */
	unsigned int told;  /* when it has ended: so many of these */
	struct part parts[];
};

static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

static void count_more(struct scif_endpoint *ep)
{
	if (!atomic_fetch_add(&ep->maps, 1))
		atomic_fetch_add(&scif_process.mapped, 1);
}

/* The last one takes along what is left of an endpoint that has ended. */
static void count_less(struct scif_endpoint *ep, int count)
{
	if (atomic_fetch_sub(&ep->maps, count) != count)
		return;
	atomic_fetch_sub(&scif_process.mapped, 1);
	if (scif_state(ep) < SCIF_DISCONNECTED)
		return;
	scif_link_break(&ep->link, true);
	if (scif_state(ep) == SCIF_CLOSED) {
		scif_table_remove(ep);
		return;
	}
	/* There are no more ticks for the windows that went. */
	scif_queue_poll(ep);
	scif_windows_settle(ep);
}

void scif_map_peer_more(struct scif_endpoint *ep)
{
	atomic_fetch_add(&ep->peer_maps, 1);
	count_more(ep);
}

void scif_map_peer_less(struct scif_endpoint *ep, int count)
{
	atomic_fetch_sub(&ep->peer_maps, count);
	count_less(ep, count);
}

static bool has_mapping(struct scif_endpoint *ep)
{
	struct mapping *mapping;

	pthread_mutex_lock(&mappings_lock);
	for (mapping = mappings; mapping; mapping = mapping->next)
		if (mapping->ep == ep)
			break;
	pthread_mutex_unlock(&mappings_lock);
	return mapping;
}

/* Tell the peer that this side maps nothing; false if it is not there. */
static bool tell_unmapped(struct scif_endpoint *ep)
{
	const uint32_t unmapped = 1;
	struct ibv_sge sge = { .length = sizeof(unmapped) };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = ep->link.peer_addr +
					    offsetof(struct scif_shared,
						     unmapped),
			     .rkey = ep->link.peer_rkey },
	};
	bool idle;

	if (!scif_queue_poll(ep))
		return false;
	scif_queue_lock(ep->rma);
	idle = ep->rma->posted == ep->rma->completed;
	pthread_mutex_unlock(&ep->rma->op_lock);
	return !idle || !scif_queue_post_value(ep, &wr, &unmapped);
}

/*
 * After the connection. The two sides do not wait for each other: one says that it has
 * unmapped all while the other's mappings, and with them the queue pairs, are there.
 */
void scif_map_tick(struct scif_endpoint *ep)
{
	int maps = atomic_load(&ep->peer_maps);

	if (!maps || scif_state(ep) < SCIF_DISCONNECTED)
		return;
	if (atomic_load(&ep->link.shared->unmapped) ||
	    (!has_mapping(ep) && !tell_unmapped(ep))) {
		scif_windows_unmapped(ep->rma);
		scif_map_peer_less(ep, maps);
	}
}

static int tell_mapped(struct scif_endpoint *ep, uint64_t id)
{
	struct scif_message message = { .type = SCIF_MAPPED }, reply;

	message.args[0] = id;
	return scif_call(ep, &message, &reply);
}

/*
 * With the mappings' lock: of which parts the peer is told next. The last to end is the
 * first: the peer hears of several at once, and had to agree to each one.
 */
static void take_ended(struct scif_rma *rma, struct scif_message *message)
{
	struct mapping *ended;

	while (message->flags < SCIF_MESSAGE_ARGS && (ended = rma->unmapped)) {
		message->args[message->flags++] =
			ended->parts[ended->told++].id;
		if (ended->told < ended->count)
			continue;
		rma->unmapped = ended->next;
		free(ended);
	}
}

/* One message at a time: the peer may be stopped, and has room for few. */
static void tell_ended(struct scif_endpoint *ep)
{
	struct scif_message message = { .type = SCIF_UNMAPPED };
	struct scif_rma *rma = ep->rma;

	if (scif_state(ep) != SCIF_CONNECTED)
		return;
	pthread_mutex_lock(&mappings_lock);
	if (!rma->unmapping)
		take_ended(rma, &message);
	if (message.flags)
		rma->unmapping = true;
	pthread_mutex_unlock(&mappings_lock);
	if (message.flags && scif_link_send(&ep->link, &message))
		scif_lost(ep);
}

void scif_map_heard(struct scif_endpoint *ep)
{
	pthread_mutex_lock(&mappings_lock);
	ep->rma->unmapping = false;
	pthread_mutex_unlock(&mappings_lock);
	tell_ended(ep);
}

/* It has ended, and is in no list. The peer is told of it when that can hear it. */
static void let_go(struct mapping *mapping)
{
	struct scif_endpoint *ep = mapping->ep;

	if (mapping->count) {
		pthread_mutex_lock(&mappings_lock);
		mapping->next = ep->rma->unmapped;
		ep->rma->unmapped = mapping;
		pthread_mutex_unlock(&mappings_lock);
		tell_ended(ep);
	} else {
		free(mapping);
	}
	scif_put(ep);
}

void scif_map_close(struct scif_rma *rma)
{
	struct mapping *ended;

	while ((ended = rma->unmapped)) {
		rma->unmapped = ended->next;
		free(ended);
	}
}

static int to_errno(int error)
{
	switch (error) {
	case EPERM: /* Only writable windows would be readable, too. */
		return EACCES;
	case ERANGE:
		return ENXIO;
	case ENOSPC: /* as many windows as there can be */
		return ENOMEM;
	case ENOTCONN:
	case ENOENT:
	case EIO:
		return ECONNRESET;
	default:
		return error;
	}
}

/*
 * One part, at @place. It counts before it is there: a connection that ends then keeps
 * the queue pair. If it can't be mapped, unmap_parts() is for it, too.
 */
static int map_part(struct mapping *mapping, const struct scif_piece *piece,
		    int prot, uint8_t *place)
{
	struct part *part = &mapping->parts[mapping->count];
	struct scif_endpoint *ep = mapping->ep;
	int err = tell_mapped(ep, piece->window);

	if (err)
		return err;
	count_more(ep);
	mapping->count++;
	part->id = piece->window;
	part->window = ep->link.dev->direct->map(
		ep->link.rma_qp, piece->addr, piece->key, piece->length,
		prot & SCIF_PROT_WRITE ? PROT_READ | PROT_WRITE : PROT_READ,
		place);
	return part->window ? 0 : to_errno(errno);
}

/* A connection that ended before the parts counted takes them along. */
static int check_parts(const struct mapping *mapping)
{
	struct scif_endpoint *ep = mapping->ep;
	unsigned int i;

	for (i = 0; i < mapping->count; i++)
		if (!ep->link.dev->direct->is_valid(mapping->parts[i].window))
			return ECONNRESET;
	return scif_check_connected(ep);
}

static int unmap_parts(struct mapping *mapping)
{
	struct scif_endpoint *ep = mapping->ep;
	struct micdv_window *window;
	unsigned int i;
	int err = 0, one;

	for (i = 0; i < mapping->count; i++) {
		window = mapping->parts[i].window;
		one = window ? ep->link.dev->direct->unmap(window) : 0;
		err = err ? err : one;
		count_less(ep, 1);
	}
	return err;
}

/* In the room there is for it. */
static int map_parts(struct mapping *mapping, const struct scif_pieces *pieces,
		     int prot)
{
	uint8_t *at = mapping->addr;
	unsigned int i;
	int err = 0;

	for (i = 0; i < pieces->count && !err; i++) {
		err = map_part(mapping, &pieces->list[i], prot, at);
		if (!err)
			at += pieces->list[i].length;
	}
	mapping->mapped = at - mapping->addr;
	if (!err)
		err = check_parts(mapping);
	if (!err)
		madvise(mapping->addr, mapping->length, MADV_DONTFORK);
	return err;
}

static bool is_in(const struct mapping *mapping, const uint8_t *addr,
		  size_t len)
{
	return mapping->addr >= addr && mapping->length <= len &&
	       (size_t)(mapping->addr - addr) <= len - mapping->length;
}

static bool overlaps(const struct mapping *mapping, const uint8_t *addr,
		     size_t len)
{
	return mapping->addr < addr + len &&
	       addr < mapping->addr + mapping->length;
}

/*
 * Mappings that are replaced as a whole, out of the list. One that would be
 * replaced in part, or is still being made, is in the way: EINVAL.
 */
static int take_replaced(const uint8_t *addr, size_t len,
			 struct mapping **replaced)
{
	struct mapping **link, *mapping;
	int err = 0;

	pthread_mutex_lock(&mappings_lock);
	for (mapping = mappings; mapping; mapping = mapping->next)
		if (overlaps(mapping, addr, len) &&
		    (!mapping->ready || !is_in(mapping, addr, len)))
			err = EINVAL;
	for (link = &mappings; !err && (mapping = *link);) {
		if (!is_in(mapping, addr, len)) {
			link = &mapping->next;
			continue;
		}
		*link = mapping->next;
		mapping->next = *replaced;
		*replaced = mapping;
	}
	pthread_mutex_unlock(&mappings_lock);
	return err;
}

static int end_mapping(struct mapping *mapping)
{
	int err = unmap_parts(mapping);

	let_go(mapping);
	return err;
}

/* The place stays taken, without access; ENOMEM if another thread was faster. */
static int end_in_place(struct mapping *mapping)
{
	uint8_t *addr = mapping->addr;
	size_t length = mapping->length;
	void *kept;

	end_mapping(mapping);
	kept = mmap(addr, length, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			    MAP_FIXED_NOREPLACE,
		    -1, 0);
	if (kept == addr)
		return 0;
	if (kept != MAP_FAILED)
		munmap(kept, length); /* before Linux 4.17 */
	return ENOMEM;
}

/* Room for it, that nobody else takes. */
static int find_place(void *addr, size_t len, int flags, uint8_t **place)
{
	struct mapping *replaced = NULL, *mapping;
	const int fixed = flags & SCIF_MAP_FIXED ? MAP_FIXED : 0;
	int err = 0, one;

	if (fixed)
		err = take_replaced(addr, len, &replaced);
	while ((mapping = replaced)) {
		replaced = mapping->next;
		one = end_in_place(mapping);
		err = err ? err : one;
	}
	if (err)
		return err;
	*place = mmap(addr, len, PROT_NONE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1,
		      0);
	return *place == MAP_FAILED ? errno : 0;
}

/* While its addresses are nobody else's. False if somebody has taken it. */
static bool forget_mapping(struct mapping *mapping)
{
	struct mapping **link;
	bool found;

	pthread_mutex_lock(&mappings_lock);
	for (link = &mappings; *link && *link != mapping; link = &(*link)->next)
		;
	found = *link;
	if (found)
		*link = mapping->next;
	pthread_mutex_unlock(&mappings_lock);
	return found;
}

static struct mapping *take_mapping(void *addr, size_t len)
{
	struct mapping **link, *mapping;

	pthread_mutex_lock(&mappings_lock);
	for (link = &mappings; (mapping = *link); link = &mapping->next) {
		if (mapping->ready && mapping->addr == addr &&
		    mapping->length == len) {
			*link = mapping->next;
			break;
		}
	}
	pthread_mutex_unlock(&mappings_lock);
	return mapping;
}

static int map_pieces(struct scif_endpoint *ep,
		      const struct scif_pieces *pieces, size_t len, int prot,
		      int flags, void **addr)
{
	struct mapping *mapping;
	int err;

	mapping = calloc(1, sizeof(*mapping) +
				    pieces->count * sizeof(mapping->parts[0]));
	if (!mapping)
		return ENOMEM;
	mapping->ep = ep;
	mapping->length = len;
	err = find_place(*addr, len, flags, &mapping->addr);
	if (err) {
		free(mapping);
		return err;
	}
	*addr = mapping->addr;
	/* Before the first part, for the ticks. */
	atomic_fetch_add(&ep->refs, 1);
	pthread_mutex_lock(&mappings_lock);
	mapping->next = mappings;
	mappings = mapping;
	pthread_mutex_unlock(&mappings_lock);
	err = map_parts(mapping, pieces, prot);
	pthread_mutex_lock(&mappings_lock);
	mapping->ready = !err;
	pthread_mutex_unlock(&mappings_lock);
	if (err && forget_mapping(mapping)) {
		unmap_parts(mapping);
		munmap(mapping->addr + mapping->mapped, len - mapping->mapped);
		let_go(mapping);
	}
	return err;
}

/*
 * No operation: it would wait for the peer's process, and what waits for it would, too.
 * Windows are named by their ids: the peer counts this one, or says that it has gone.
 */
static int do_map(struct scif_endpoint *ep, size_t len, int prot, int flags,
		  off_t offset, void **addr)
{
	struct scif_pieces pieces;
	int err;

	scif_pieces_init(&pieces);
	err = scif_peer_pieces(ep, offset, len, prot, &pieces);
	if (!err && !ep->link.dev->direct)
		err = EOPNOTSUPP;
	if (!err)
		err = map_pieces(ep, &pieces, len, prot, flags, addr);
	scif_pieces_free(&pieces);
	return err;
}

void scif_map_abandon(void)
{
	pthread_mutex_init(&mappings_lock, NULL);
	mappings = NULL;
}

SCIF_EXPORT void *scif_mmap(void *addr, size_t len, int prot, int flags,
			    scif_epd_t epd, off_t offset)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err = 0;

	if (!ep)
		return SCIF_MMAP_FAILED;
	if (flags & ~SCIF_MAP_FIXED || !len || len % SCIF_PAGE ||
	    offset % SCIF_PAGE || !prot ||
	    prot & ~(SCIF_PROT_READ | SCIF_PROT_WRITE) ||
	    (flags & SCIF_MAP_FIXED && (uintptr_t)addr % SCIF_PAGE))
		err = EINVAL;
	if (!err)
		err = scif_check_connected(ep);
	if (!err)
		err = do_map(ep, len, prot, flags, offset, &addr);
	scif_put(ep);
	if (err)
		errno = err;
	return err ? SCIF_MMAP_FAILED : addr;
}

SCIF_EXPORT int scif_munmap(void *addr, size_t len)
{
	SCIF_NO_CANCEL;
	struct mapping *mapping = take_mapping(addr, len);
	int err;

	if (!mapping)
		return scif_fail(EINVAL);
	err = end_mapping(mapping);
	return err ? scif_fail(err) : 0;
}
