/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the parts of regions share.
 */
#ifndef TESTS_REGIONS_H
#define TESTS_REGIONS_H

#include <stdbool.h>

#include "setup.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define FILL_BYTE 0x5c

/* What a case works with: a connection of the two devices. */
struct stage {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

struct region_case {
	bool (*run)(struct stage *stage);
	const char *name;
	bool one_machine; /* it needs b's device itself */
};

void run_case(struct setup *setup, struct neighbours *neighbours,
	      const struct region_case *one);

/* From a's list to or from @offset of b's memory. */
enum ibv_wc_status access_b(struct stage *stage, enum ibv_wr_opcode opcode,
			    struct ibv_sge *sges, int count, size_t offset);
/* What becomes of a request from one to the other, on a connection of its own. */
enum ibv_wc_status try_request(struct setup *setup, bool from_b,
			       struct ibv_send_wr wr);
bool succeeds(enum ibv_wc_status status);
bool ends_with(enum ibv_wc_status status, enum ibv_wc_status expected);

/* regions_dmabuf.c */
void run_dmabufs(struct setup *setup, struct neighbours *neighbours);

#endif /* TESTS_REGIONS_H */
