// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Mapping the peer's windows, by direct verbs of the mic device.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "map.h"

/* While it is made. Each part has a span; none is allocated when others can see it. */
struct mapping {
	struct scif_span *place;
	struct scif_span *spans;
};

static int tell_mapped(struct scif_endpoint *ep, uint64_t id)
{
	struct scif_message message = { .type = SCIF_MAPPED }, reply;

	message.args[0] = id;
	return scif_call(ep, &message, &reply);
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
 * the queue pair. The span is of a part that counts, mapped or not.
 */
static int map_part(struct scif_span *span, const struct scif_piece *piece,
		    int prot, uint8_t *place)
{
	struct scif_part *part = span->part;
	struct scif_endpoint *ep = part->ep;
	int err = tell_mapped(ep, piece->window);

	if (err)
		return err;
	scif_part_count(part);
	part->id = piece->window;
	part->spans = 1;
	span->start = place;
	span->end = place + piece->length;
	part->window = ep->link.dev->direct->map(
		ep->link.rma_qp, piece->addr, piece->key, piece->length,
		prot & SCIF_PROT_WRITE ? PROT_READ | PROT_WRITE : PROT_READ,
		place);
	return part->window ? 0 : to_errno(errno);
}

/* A connection that ended before the parts counted takes them along. */
static int check_parts(struct scif_endpoint *ep, const struct scif_span *span)
{
	for (; span; span = span->next)
		if (!ep->link.dev->direct->is_valid(span->part->window))
			return ECONNRESET;
	return scif_check_connected(ep);
}

/* In the room there is for it. */
static int map_parts(struct scif_endpoint *ep, const struct mapping *mapping,
		     const struct scif_pieces *pieces, int prot)
{
	const struct scif_span *place = mapping->place;
	struct scif_span *span = mapping->spans;
	uint8_t *at = place->start;
	unsigned int i;
	int err = 0;

	for (i = 0; i < pieces->count && !err; i++) {
		err = map_part(span, &pieces->list[i], prot, at);
		at += pieces->list[i].length;
		span = span->next;
	}
	if (!err)
		err = check_parts(ep, mapping->spans);
	if (!err)
		madvise(place->start, place->end - place->start, MADV_DONTFORK);
	return err;
}

static struct scif_span *new_span(struct scif_endpoint *ep)
{
	struct scif_span *span = calloc(1, sizeof(*span));

	if (span)
		span->ep = ep;
	return span;
}

static struct scif_span *new_part(struct scif_endpoint *ep)
{
	struct scif_span *span = new_span(ep);

	if (!span)
		return NULL;
	span->part = calloc(1, sizeof(*span->part));
	if (!span->part) {
		free(span);
		return NULL;
	}
	span->part->ep = ep;
	return span;
}

/* Those that count have been unmapped, and end. */
static void free_parts(struct scif_span *span)
{
	struct scif_part *ended = NULL;
	struct scif_span *next;

	for (; span; span = next) {
		next = span->next;
		if (span->part->spans) {
			span->part->next = ended;
			ended = span->part;
		} else {
			free(span->part);
		}
		free(span);
	}
	scif_part_end(ended);
}

static bool alloc_mapping(struct mapping *mapping, struct scif_endpoint *ep,
			  unsigned int count)
{
	struct scif_span *span;

	mapping->spans = NULL;
	mapping->place = new_span(ep);
	if (!mapping->place)
		return false;
	while (count--) {
		span = new_part(ep);
		if (!span) {
			free_parts(mapping->spans);
			free(mapping->place);
			return false;
		}
		span->next = mapping->spans;
		mapping->spans = span;
	}
	return true;
}

static int map_pieces(struct scif_endpoint *ep,
		      const struct scif_pieces *pieces, size_t len, int prot,
		      int flags, void **addr)
{
	struct mapping mapping;
	int err;

	if (!alloc_mapping(&mapping, ep, pieces->count))
		return ENOMEM;
	err = scif_span_reserve(mapping.place, *addr, len,
				flags & SCIF_MAP_FIXED);
	if (err) {
		free(mapping.place);
		free_parts(mapping.spans);
		return err;
	}
	*addr = mapping.place->start;
	err = map_parts(ep, &mapping, pieces, prot);
	scif_span_replace(mapping.place, err ? NULL : mapping.spans);
	if (err)
		free_parts(mapping.spans);
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
	if (!err && !(ep->link.dev->direct && ep->link.dev->direct->release))
		err = EOPNOTSUPP;
	if (!err)
		err = map_pieces(ep, &pieces, len, prot, flags, addr);
	scif_pieces_free(&pieces);
	return err;
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
	size_t size = (len + SCIF_PAGE - 1) / SCIF_PAGE * SCIF_PAGE;
	int err;

	if (!len || size < len || (uintptr_t)addr % SCIF_PAGE)
		return scif_fail(EINVAL);
	/* what is there is something else */
	if (scif_process.forked)
		return 0;
	err = scif_span_unmap(addr, size);
	return err ? scif_fail(err) : 0;
}
