/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * When the library hears what rdma_cm tells this process of a connection's beginning.
 */
#ifndef SCIF_TESTS_CM_EVENTS_H
#define SCIF_TESTS_CM_EVENTS_H

enum cm_telling {
	CM_AS_THEY_COME,
	/* Never: the message that ends it has overtaken the one that begins it. */
	CM_OVERTAKEN,
	/* When the kernel has heard that the connection has ended, or after deadline(). */
	CM_LATE
};

/* From now on, for all of this process's endpoints. */
void tell_cm_events(enum cm_telling telling);

#endif /* SCIF_TESTS_CM_EVENTS_H */
