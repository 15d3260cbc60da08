/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What the library hears of what rdma_cm tells this process of a connection, and when.
 */
#ifndef SCIF_TESTS_CM_EVENTS_H
#define SCIF_TESTS_CM_EVENTS_H

enum cm_telling {
	CM_AS_THEY_COME,
	/* Not its beginning, which the message that ends it has overtaken. */
	CM_OVERTAKEN,
	/* Its beginning when the kernel has heard of its end, or after deadline(). */
	CM_LATE,
	/* Its end as a peer's whose kernel had not heard that it had begun. */
	CM_REJECTED
};

/* From now on, for all of this process's endpoints. */
void tell_cm_events(enum cm_telling telling);

#endif /* SCIF_TESTS_CM_EVENTS_H */
