/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What is mapped of peers' windows, and where. A mapping has a part for each window,
 * side by side; each is on its own from then on, and has the spans of addresses that
 * were not unmapped yet.
 */
#ifndef SCIF_MAP_H
#define SCIF_MAP_H

#include "direct.h"
#include "rma.h"

struct scif_part {
	struct scif_part *next;
	struct scif_endpoint *ep;    /* it holds a reference */
	struct micdv_window *window; /* NULL: it could not be mapped */
	uint64_t id;		     /* the peer's window */
	unsigned int spans;
};

struct scif_span {
	struct scif_span *next;
	uint8_t *start, *end;
	struct scif_part *part; /* NULL: a mapping is being made here */
	struct scif_endpoint *ep;
};

/*
 * Reserve @len bytes for @span, which has the endpoint: at @addr, in place of what
 * is there, if @fixed. Nobody else's calls change the place until scif_span_replace().
 * Returns 0 or an errno value: EINVAL, another thread makes a mapping there; ENOMEM.
 */
int scif_span_reserve(struct scif_span *span, void *addr, size_t len,
		      bool fixed);
/*
 * @span, which is freed, gives way to those of @list; if there are none, the place is
 * unmapped.
 */
void scif_span_replace(struct scif_span *span, struct scif_span *list);
/* munmap(), and the end of parts that have nothing left. Returns as scif_span_reserve(). */
int scif_span_unmap(void *addr, size_t len);

/* What the peer counts is counted here: before it is mapped, until it has ended. */
void scif_part_count(struct scif_part *part);
/* These are mapped nowhere. The peer is told of them when that can hear it. */
void scif_part_end(struct scif_part *list);

#endif /* SCIF_MAP_H */
