/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the tool "rdma" asks the kernel for, asked by the thread that calls this: so its
 * allocations can fail (fail.h). Where nothing else is said, 0 or an error number comes
 * back; that of the answer, too, which may get lost when all has been done.
 */
#ifndef TESTS_NLDEV_H
#define TESTS_NLDEV_H

#include <stdbool.h>
#include <stdint.h>

/* The end of the test if it can't be. */
void nldev_open(void);
void nldev_close(void);

/* The index of a device; false if there is no such device. */
bool nldev_find(const char *name, uint32_t *found);

/* "rdma link add", of type mic, and "rdma link delete". */
int nldev_add(const char *name, const char *netdev);
int nldev_delete(const char *name);

/* "rdma statistic qp bind" of a queue pair, to a counter of its own. */
int nldev_bind_counter(uint32_t index, uint32_t qpn);

/* What queue pairs have a counter together that are made from now on. */
enum nldev_auto {
	NLDEV_NONE,
	NLDEV_TYPE = 1 << 0,
	NLDEV_PID = 1 << 1,
};

/* "rdma statistic qp set auto"; EBUSY if something else is set, and a pair bound. */
int nldev_set_auto(uint32_t index, enum nldev_auto by);

#endif /* TESTS_NLDEV_H */
