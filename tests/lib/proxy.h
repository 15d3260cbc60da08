/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A device of another machine, for a test that is one story with two sides. Where a
 * device's name is ADDRESS:PORT, of a proxy_server there, the verbs called on what
 * belongs to it are carried out by that process. So does its memory: what a test
 * registers there is memory of this process and of that one, at the same addresses,
 * and what the one or the device has changed is copied to the other whenever one of
 * these verbs is called, before a request is posted here and after a completion here.
 *
 * Verbs are the ones that proxy_*.c have: programs are linked with --wrap.
 */
#ifndef TESTS_PROXY_H
#define TESTS_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <infiniband/verbs.h>

#include "device.h"

bool proxy_is_name(const char *name);
bool proxy_is(const struct ibv_context *ctx);

/* A context for the device there, or NULL. */
struct ibv_context *proxy_open(const char *name);
/* What device_open() finds out about a device. */
void proxy_describe(struct device *dev);

/* Exchange what has changed. Nothing to do if there is no such device. */
void proxy_sync(void);

/* Memory that no registration names, as with one of the whole address space. */
void proxy_share(struct ibv_pd *pd, void *addr, size_t length);
/* Is memory of such a device among these bytes? */
bool proxy_shares(const void *addr, size_t length);

/* A page of that memory that nobody provides (userfaultfd): nothing, or -1. */
int proxy_withhold(void *addr, size_t length);
/* All that was withheld there comes. */
void proxy_provide(void);

/* What system() returns there, with the device's name in $DEVICE. */
int proxy_run(const char *command);

/* The other machine is lost: what is closed from now on is not there any more. */
void proxy_lost(void);

#endif /* TESTS_PROXY_H */
