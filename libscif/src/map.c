// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Mapping the peer's windows, by direct verbs of the mic device. Its provider
 * is loaded when there is such a device; the library does not link with it.
 *
 * A mapping lives as long as the queue pair for copies on both sides, and the
 * region. So the owner is told of each mapping and keeps them, also when the
 * window is unregistered and when the connection ends. When it has ended, the
 * owner looks from time to time if the peer's queue pair is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../../providers/mic/micdv.h"
#include "rma.h"

struct direct_verbs {
	bool (*is_supported)(struct ibv_device *device);
	struct micdv_window *(*map)(struct ibv_qp *qp, uint64_t addr,
				    uint32_t rkey, size_t length, int prot);
	int (*unmap)(struct micdv_window *window);
};

struct mapping {
	struct mapping *next;
	struct scif_endpoint *ep;
	struct micdv_window *window;
	uint64_t id; /* the peer's window */
	size_t length;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct direct_verbs verbs;
static pthread_mutex_t mappings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping *mappings;

static void find_verbs(void)
{
	void *provider = dlopen("libmic.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!provider)
		return;
	verbs.is_supported = dlsym(provider, "micdv_is_supported");
	verbs.map = dlsym(provider, "micdv_map_window");
	verbs.unmap = dlsym(provider, "micdv_unmap_window");
}

static bool can_map(struct scif_endpoint *ep)
{
	pthread_once(&once, find_verbs);
	return verbs.is_supported && verbs.map && verbs.unmap &&
	       verbs.is_supported(ep->link.dev->ctx->device);
}

void scif_map_count(struct scif_endpoint *ep, int change)
{
	int before = atomic_fetch_add(&ep->maps, change);

	if (!before && change > 0)
		atomic_fetch_add(&scif_process.mapped, 1);
	else if (before == 1 && change < 0)
		atomic_fetch_sub(&scif_process.mapped, 1);
}

/* Nobody uses the pair any more. */
static void let_go(struct scif_endpoint *ep)
{
	scif_link_break(&ep->link, true);
	if (scif_state(ep) == SCIF_CLOSED)
		scif_table_remove(ep);
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

/* An empty write tells if the peer's queue pair is still there. */
void scif_map_tick(struct scif_endpoint *ep)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };
	int maps = atomic_load(&ep->maps);
	bool idle;

	if (!maps || scif_state(ep) < SCIF_DISCONNECTED || has_mapping(ep))
		return;
	if (scif_queue_poll(ep)) {
		pthread_mutex_lock(&ep->rma->op_lock);
		idle = ep->rma->posted == ep->rma->completed;
		pthread_mutex_unlock(&ep->rma->op_lock);
		if (!idle || !scif_queue_post(ep, &wr))
			return;
	}
	scif_map_count(ep, -maps);
	let_go(ep);
}

static int tell(struct scif_endpoint *ep, uint32_t type, uint64_t id)
{
	struct scif_message message = { .type = type }, reply;

	message.args[0] = id;
	if (type == SCIF_MAPPED)
		return scif_call(ep, &message, &reply);
	if (scif_state(ep) == SCIF_CONNECTED &&
	    scif_link_send(&ep->link, &message))
		scif_lost(ep);
	return 0;
}

static int to_errno(int error)
{
	switch (error) {
	case EPERM: /* Only writable windows would be readable, too. */
		return EACCES;
	case ERANGE:
		return ENXIO;
	case ENOTCONN:
		return ECONNRESET;
	default:
		return error;
	}
}

static int map_piece(struct scif_endpoint *ep, const struct scif_piece *piece,
		     int prot, struct mapping *mapping)
{
	int err = tell(ep, SCIF_MAPPED, piece->window);

	if (err)
		return err;
	mapping->ep = ep;
	mapping->id = piece->window;
	mapping->length = piece->length;
	mapping->window = verbs.map(
		ep->link.rma_qp, piece->addr, piece->key, piece->length,
		prot & SCIF_PROT_WRITE ? PROT_READ | PROT_WRITE : PROT_READ);
	if (!mapping->window) {
		err = to_errno(errno);
		tell(ep, SCIF_UNMAPPED, piece->window);
		return err;
	}
	madvise(mapping->window->addr, piece->length, MADV_DONTFORK);
	scif_map_count(ep, 1);
	atomic_fetch_add(&ep->refs, 1);
	pthread_mutex_lock(&mappings_lock);
	mapping->next = mappings;
	mappings = mapping;
	pthread_mutex_unlock(&mappings_lock);
	return 0;
}

static int do_map(struct scif_endpoint *ep, size_t len, int prot, int flags,
		  off_t offset, void **addr)
{
	struct mapping *mapping = calloc(1, sizeof(*mapping));
	struct scif_operation op;
	struct scif_pieces pieces;
	int err;

	if (!mapping)
		return ENOMEM;
	scif_pieces_init(&pieces);
	scif_operation_begin(ep->rma, &op);
	err = scif_peer_pieces(ep, offset, len, prot, &pieces);
	if (!err &&
	    (pieces.count != 1 || flags & SCIF_MAP_FIXED || !can_map(ep)))
		err = EOPNOTSUPP;
	if (!err)
		err = map_piece(ep, &pieces.list[0], prot, mapping);
	scif_operation_end(ep, &op);
	scif_pieces_free(&pieces);
	if (err)
		free(mapping);
	else
		*addr = mapping->window->addr;
	return err;
}

SCIF_EXPORT void *scif_mmap(void *addr, size_t len, int prot, int flags,
			    scif_epd_t epd, off_t offset)
{
	struct scif_endpoint *ep = scif_get(epd);
	int err = 0;

	if (!ep)
		return SCIF_MMAP_FAILED;
	if (flags & ~SCIF_MAP_FIXED || !len || len % SCIF_PAGE ||
	    offset % SCIF_PAGE || !prot ||
	    prot & ~(SCIF_PROT_READ | SCIF_PROT_WRITE))
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

static struct mapping *take_mapping(void *addr, size_t len)
{
	struct mapping **link, *mapping;

	pthread_mutex_lock(&mappings_lock);
	for (link = &mappings; (mapping = *link); link = &mapping->next) {
		if (mapping->window->addr == addr && mapping->length == len) {
			*link = mapping->next;
			break;
		}
	}
	pthread_mutex_unlock(&mappings_lock);
	return mapping;
}

SCIF_EXPORT int scif_munmap(void *addr, size_t len)
{
	struct mapping *mapping = take_mapping(addr, len);
	struct scif_endpoint *ep;
	int err;

	if (!mapping)
		return scif_fail(EINVAL);
	ep = mapping->ep;
	err = verbs.unmap(mapping->window);
	tell(ep, SCIF_UNMAPPED, mapping->id);
	free(mapping);
	scif_map_count(ep, -1);
	if (!atomic_load(&ep->maps) && scif_state(ep) >= SCIF_DISCONNECTED)
		let_go(ep);
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}
