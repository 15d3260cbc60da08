// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Copies: between windows, and between memory and windows.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rma.h"

enum {
	ALL_FLAGS = SCIF_RMA_USECPU | SCIF_RMA_USECACHE | SCIF_RMA_SYNC |
		    SCIF_RMA_ORDERED,
	BOUNCE = 128 << 10
};

/* A range of the peer's, and of one's own. */
struct ranges {
	struct scif_pieces own;
	struct scif_pieces peer;
};

static int finish(struct scif_endpoint *ep, uint64_t number)
{
	return number ? scif_queue_wait(ep, number) : 0;
}

static int copy_windows(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
			off_t loffset, size_t length, off_t roffset, int flags)
{
	const bool again = (flags & (SCIF_RMA_SYNC | SCIF_RMA_ORDERED)) ==
			   SCIF_RMA_SYNC;
	bool reads = opcode == IBV_WR_RDMA_READ;
	struct scif_operation op = { .own = false };
	struct ranges ranges;
	uint64_t number = 0;
	int err, peer_err;

	if (again && scif_queue_copy_again(ep, opcode, loffset, length, roffset,
					   &number))
		return finish(ep, number);
	scif_pieces_init(&ranges.own);
	scif_pieces_init(&ranges.peer);
	scif_operation_begin(ep->rma, &op);
	peer_err = scif_peer_pieces(ep, roffset, length,
				    reads ? SCIF_PROT_READ : SCIF_PROT_WRITE,
				    &ranges.peer);
	scif_operation_uses_own(ep->rma, &op);
	/* Who has closed it waits for those that used them before. */
	err = scif_check_connected(ep);
	if (!err)
		err = scif_own_pieces(ep->rma, loffset, length,
				      reads ? SCIF_PROT_WRITE : SCIF_PROT_READ,
				      &ranges.own);
	if (!err)
		err = peer_err;
	if (!err)
		err = scif_queue_copy(ep, opcode, &ranges.own, &ranges.peer,
				      flags, &number);
	scif_operation_end(ep, &op);
	scif_pieces_free(&ranges.own);
	scif_pieces_free(&ranges.peer);
	if (!err && again)
		scif_queue_note(ep, loffset, roffset);
	return err ? err : finish(ep, number);
}

/*
 * The endpoint of a copy of @length bytes with @flags, held until scif_put();
 * NULL with errno set.
 */
static struct scif_endpoint *get_checked(scif_epd_t epd, size_t length,
					 int flags)
{
	struct scif_endpoint *ep = scif_get_to_copy(epd);
	int err;

	if (!ep)
		return NULL;
	err = scif_check_connected(ep);
	if (!err && (flags & ~ALL_FLAGS || !length))
		err = EINVAL;
	if (!err)
		return ep;
	scif_put(ep);
	errno = err;
	return NULL;
}

static int copy(scif_epd_t epd, enum ibv_wr_opcode opcode, off_t loffset,
		size_t length, off_t roffset, int flags)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = get_checked(epd, length, flags);
	int err;

	if (!ep)
		return -1;
	err = copy_windows(ep, opcode, loffset, length, roffset, flags);
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}

SCIF_EXPORT int scif_readfrom(scif_epd_t epd, off_t loffset, size_t len,
			      off_t roffset, int rma_flags)
{
	return copy(epd, IBV_WR_RDMA_READ, loffset, len, roffset, rma_flags);
}

SCIF_EXPORT int scif_writeto(scif_epd_t epd, off_t loffset, size_t len,
			     off_t roffset, int rma_flags)
{
	return copy(epd, IBV_WR_RDMA_WRITE, loffset, len, roffset, rma_flags);
}

/* With the bounce buffer's lock. */
static int need_bounce(struct scif_endpoint *ep)
{
	struct scif_rma *rma = ep->rma;

	if (rma->bounce_mr)
		return 0;
	if (!rma->bounce &&
	    posix_memalign((void **)&rma->bounce, SCIF_PAGE, BOUNCE)) {
		rma->bounce = NULL;
		return ENOMEM;
	}
	memset(rma->bounce, 0, BOUNCE); /* valgrind does not see RDMA */
	rma->bounce_mr = scif_link_register(&ep->link, rma->bounce, BOUNCE,
					    IBV_ACCESS_LOCAL_WRITE);
	return rma->bounce_mr ? 0 : scif_lock_error(errno);
}

/* One portion through the bounce buffer. */
static int bounce(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
		  uint8_t *addr, size_t length, off_t roffset, int flags)
{
	struct scif_rma *rma = ep->rma;
	struct scif_operation op = { .own = false };
	struct ranges ranges;
	uint64_t number = 0;
	int err;

	scif_pieces_init(&ranges.own);
	scif_pieces_init(&ranges.peer);
	scif_operation_begin(rma, &op);
	err = scif_peer_pieces(ep, roffset, length,
			       opcode == IBV_WR_RDMA_READ ? SCIF_PROT_READ :
							    SCIF_PROT_WRITE,
			       &ranges.peer);
	if (!err && opcode == IBV_WR_RDMA_WRITE)
		err = scif_copy_in(rma->bounce, addr, length);
	if (!err)
		err = scif_pieces_add(&ranges.own, (uintptr_t)rma->bounce,
				      length, rma->bounce_mr->lkey, 0);
	if (!err)
		err = scif_queue_copy(ep, opcode, &ranges.own, &ranges.peer,
				      flags | SCIF_RMA_SYNC, &number);
	scif_operation_end(ep, &op);
	scif_pieces_free(&ranges.peer);
	if (!err)
		err = finish(ep, number);
	if (!err && opcode == IBV_WR_RDMA_READ)
		err = scif_copy_out(addr, rma->bounce, length);
	return err;
}

static int copy_bouncing(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
			 uint8_t *addr, size_t length, off_t roffset, int flags)
{
	size_t part;
	int err;

	pthread_mutex_lock(&ep->rma->bounce_lock);
	err = need_bounce(ep);
	while (!err && length) {
		part = length < BOUNCE ? length : BOUNCE;
		err = bounce(ep, opcode, addr, part, roffset, flags);
		addr += part;
		roffset += part;
		length -= part;
	}
	pthread_mutex_unlock(&ep->rma->bounce_lock);
	return err;
}

/* From or to the memory itself, which is of @region; lets go of that. */
static int copy_directly(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
			 struct scif_region *region, void *addr, size_t length,
			 off_t roffset, int flags)
{
	bool reads = opcode == IBV_WR_RDMA_READ;
	struct scif_operation op = { .own = false };
	struct ranges ranges;
	uint64_t number = 0;
	int err;

	scif_pieces_init(&ranges.own);
	scif_pieces_init(&ranges.peer);
	scif_pieces_add(&ranges.own, scif_region_at(region, addr), length,
			region->mr->lkey, 0);
	scif_operation_begin(ep->rma, &op);
	err = scif_peer_pieces(ep, roffset, length,
			       reads ? SCIF_PROT_READ : SCIF_PROT_WRITE,
			       &ranges.peer);
	if (!err)
		err = scif_queue_copy(ep, opcode, &ranges.own, &ranges.peer,
				      flags, &number);
	scif_operation_end(ep, &op);
	scif_pieces_free(&ranges.peer);
	scif_queue_leave(ep->rma, region);
	return err ? err : finish(ep, number);
}

/* Is all of it in windows that allow it? */
static int check_peer(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
		      size_t length, off_t roffset)
{
	struct scif_pieces pieces;
	int err;

	scif_pieces_init(&pieces);
	err = scif_peer_pieces(ep, roffset, length,
			       opcode == IBV_WR_RDMA_READ ? SCIF_PROT_READ :
							    SCIF_PROT_WRITE,
			       &pieces);
	scif_pieces_free(&pieces);
	return err;
}

/* A region that has the memory; NULL with errno, 0 if it is not worth one. */
static struct scif_region *find_region(struct scif_endpoint *ep, void *addr,
				       size_t length, int access, int flags)
{
	struct scif_region *region;

	if (flags & SCIF_RMA_USECACHE) {
		region = scif_cache_get(&ep->link, addr, length, access);
		if (region || errno != EOPNOTSUPP)
			return region;
	}
	errno = 0;
	return length > BOUNCE ?
		       scif_region_new(&ep->link, addr, length, access, false) :
		       NULL;
}

static int copy_memory(struct scif_endpoint *ep, enum ibv_wr_opcode opcode,
		       void *addr, size_t length, off_t roffset, int flags)
{
	struct scif_region *region;
	int err;

	err = check_peer(ep, opcode, length, roffset);
	if (err)
		return err;
	region = find_region(
		ep, addr, length,
		opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0, flags);
	if (region)
		return copy_directly(ep, opcode, region, addr, length, roffset,
				     flags);
	/* Some memory can be had by nobody but its process: what it maps. */
	if (errno && errno != ENOMEM && errno != EFAULT)
		return errno;
	return copy_bouncing(ep, opcode, addr, length, roffset, flags);
}

static int vcopy(scif_epd_t epd, enum ibv_wr_opcode opcode, void *addr,
		 size_t length, off_t roffset, int flags)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = get_checked(epd, length, flags);
	int err;

	if (!ep)
		return -1;
	err = copy_memory(ep, opcode, addr, length, roffset, flags);
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}

SCIF_EXPORT int scif_vreadfrom(scif_epd_t epd, void *addr, size_t len,
			       off_t roffset, int rma_flags)
{
	return vcopy(epd, IBV_WR_RDMA_READ, addr, len, roffset, rma_flags);
}

SCIF_EXPORT int scif_vwriteto(scif_epd_t epd, void *addr, size_t len,
			      off_t roffset, int rma_flags)
{
	return vcopy(epd, IBV_WR_RDMA_WRITE, addr, len, roffset, rma_flags);
}
