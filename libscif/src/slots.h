/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * Endpoints by descriptor, as the table knows them without a look at the
 * descriptor.
 */
#ifndef SCIF_SLOTS_H
#define SCIF_SLOTS_H

#include "internal.h"

enum { SCIF_CHUNK = 1024, SCIF_CHUNKS = 4096 };

/* The endpoint that a descriptor was last known to be. */
struct scif_slot {
	_Atomic(struct scif_endpoint *) ep;
	atomic_bool sure; /* no need to look again */
};

/* Read without the table's lock: what was allocated once stays. */
extern _Atomic(struct scif_slot *) scif_chunks[SCIF_CHUNKS];

/* How often what is known was doubted: what was found out before may be old. */
extern atomic_uint scif_doubts;

static inline struct scif_slot *scif_slot_of(scif_epd_t epd)
{
	struct scif_slot *chunk = NULL;

	if (epd >= 0 && epd < SCIF_CHUNK * SCIF_CHUNKS)
		chunk = atomic_load_explicit(&scif_chunks[epd / SCIF_CHUNK],
					     memory_order_acquire);
	return chunk ? &chunk[epd % SCIF_CHUNK] : NULL;
}

/* Or NULL. There is no reference to it. */
static inline struct scif_endpoint *scif_known(scif_epd_t epd)
{
	struct scif_slot *slot = scif_slot_of(epd);

	return slot && atomic_load(&slot->sure) ? atomic_load(&slot->ep) : NULL;
}

#endif /* SCIF_SLOTS_H */
