// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Mapping the peer's windows.
 */
#include <errno.h>

#include "rma.h"

static int check_map(struct scif_endpoint *ep, size_t len, int prot, int flags,
		     off_t offset)
{
	struct scif_pieces pieces;
	int err;

	if (flags & ~SCIF_MAP_FIXED || !len || len % SCIF_PAGE ||
	    offset % SCIF_PAGE || prot & ~(SCIF_PROT_READ | SCIF_PROT_WRITE))
		return EINVAL;
	err = scif_check_connected(ep);
	if (err)
		return err;
	scif_pieces_init(&pieces);
	err = scif_peer_pieces(ep, offset, len, prot, &pieces);
	scif_pieces_free(&pieces);
	return err;
}

SCIF_EXPORT void *scif_mmap(void *addr, size_t len, int prot, int flags,
			    scif_epd_t epd, off_t offset)
{
	struct scif_endpoint *ep = scif_get(epd);
	int err;

	(void)addr;
	if (!ep)
		return SCIF_MMAP_FAILED;
	err = check_map(ep, len, prot, flags, offset);
	scif_put(ep);
	errno = err ? err : EOPNOTSUPP;
	return SCIF_MMAP_FAILED;
}

SCIF_EXPORT int scif_munmap(void *addr, size_t len)
{
	(void)addr;
	(void)len;
	return scif_fail(EINVAL);
}
