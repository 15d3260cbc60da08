/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef REVOKING_H
#define REVOKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/mic-abi.h>

#include "setup.h"
#include "windows_file.h"

enum { PAGES = 32 /* of a region */ };

/* revoking.c */
extern struct setup setup;
extern unsigned int rounds;

/* Returns 0 or an errno value. */
int import(const struct endpoint *ep, const struct region *region,
	   uint32_t rkey, size_t offset, size_t length,
	   struct mic_window_import *req);
void new_region(struct region *region, struct ibv_pd *pd);
void new_pair(struct endpoint *a, struct endpoint *b);

/* revoking_keys.c */
bool guesses(void);
bool guesses_refused(void);
bool guesses_unconnected(void);
bool invalidation_waits(void);
bool changes_peer(void);

#endif /* REVOKING_H */
