/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The ioctls on a uverbs file that libibverbs makes, kept, to be made again with
 * something changed in them.
 */
#ifndef TESTS_FUZZ_CALLS_H
#define TESTS_FUZZ_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/rdma_user_ioctl_cmds.h>

#include "pattern.h"

enum {
	CALL_BYTES = 1024,    /* of a call itself */
	CALL_ATTRS = 32,      /* of an ioctl */
	PAYLOAD_BYTES = 512,  /* of what an attribute points to */
	SCRATCH_BYTES = 65536 /* as much as an attribute's length can say */
};

/* What is counted, and has to be enough. */
enum {
	GOAL_ROUNDS,
	GOAL_IOCTLS,
	GOAL_CHANGED_IOCTLS,
	GOAL_WRITES,
	GOAL_CHANGED_WRITES,
	GOAL_CONTEXTS,
	GOAL_DOORBELLS,
	GOAL_MAPPINGS,
	GOAL_CONTEXT_MAPPINGS,
};

struct call {
	size_t length;
	uint64_t words[CALL_BYTES / sizeof(uint64_t)];
	/* where an attribute's data is an address, what is there; 0: it is not */
	uint16_t payload_bytes[CALL_ATTRS];
	uint8_t payloads[CALL_ATTRS][PAYLOAD_BYTES];
};

/* While it is on, what the process calls is kept. */
extern bool recording;

/* One of those kept, each command as likely as any other. */
const struct call *some_call(struct random_state *random);
/* How many commands there are. */
unsigned int commands_kept(void);

/* Is it an old command, which can be written to the file as well? */
bool is_invoke_write(const struct ib_uverbs_ioctl_hdr *hdr);
/* Its attribute of this id, or NULL. */
const struct ib_uverbs_attr *find_attr(const struct ib_uverbs_ioctl_hdr *hdr,
				       uint16_t id);

/*
 * Make a call again, on @fd, as it was or with some changes. Returns as which of the
 * goals the kernel accepted it, or -1.
 */
int replay(struct random_state *random, int fd, const struct call *call);

#endif /* TESTS_FUZZ_CALLS_H */
