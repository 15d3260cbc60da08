/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef VERIFY_H
#define VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "endpoint.h"
#include "memory.h"

#define MAX_SGES 32
#define MAX_SIZE (8U << 20)
#define GUARD_BYTES 1024U
#define GAP_BYTES 13U
#define MAX_INLINE 512U
/* Between offset 0 and the first place for data; a page ends below it. */
#define LEAD_BYTES (2 * PAGE_BYTES - 77)
#define REGION_BYTES (MAX_SIZE + 4 * PAGE_BYTES + MAX_SGES * GAP_BYTES)

/* How a buffer is made of pieces. */
enum shape {
	SHAPE_ONE,
	SHAPE_TWO,   /* unequal; no SGE at all if there are no bytes */
	SHAPE_MANY,  /* as many as the device has */
	SHAPE_HOLES, /* SGEs without bytes between and around them */
	SHAPES
};

struct layout {
	int count;
	struct {
		size_t offset;
		uint32_t length;
	} part[MAX_SGES];
};

struct transfer {
	enum ibv_wr_opcode opcode;
	uint32_t size;
	uint32_t local_offset;
	uint32_t peer_offset;
	enum shape shape;
	uint32_t seed;
	bool is_inline;
};
/* What both sides are made of. */
struct setting {
	enum ibv_qp_type type; /* of the side that requests */
	enum memory_kind kind;
	bool on_demand; /* nothing pins the memory */
};

/* One end of a connection, and what its memory should look like. */
struct side {
	struct device dev;
	struct endpoint ep;
	struct region region;
	bool on_demand;	   /* nothing pins the region */
	uint8_t *expected; /* what the region should hold */
	int max_sges;
	/* of the target of an XRC connection; its receives are the queue's */
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_cq *srq_cq;
};
/* Where the peer's memory is. */
struct remote {
	uint64_t addr;
	uint32_t rkey;
	uint32_t srq_num;
};

void make_layout(struct layout *layout, enum shape shape, size_t offset,
		 uint32_t size, int max_sges);
void make_contiguous(struct layout *layout, size_t offset, uint32_t size);
int layout_sges(const struct layout *layout, const struct region *region,
		struct ibv_sge *sges);
void write_layout(uint8_t *memory, const struct layout *layout,
		  const uint8_t *bytes);

void side_open(struct side *side, const char *name,
	       const struct setting *setting, bool peer);
void side_close(struct side *side);
struct remote remote_of(const struct side *side);

void peer_prepare(struct side *side, const struct transfer *transfer);
bool peer_check(struct side *side, const struct transfer *transfer);
void local_prepare(struct side *side, const struct transfer *transfer,
		   const struct layout *layout);
void local_post(struct side *side, const struct transfer *transfer,
		const struct layout *layout, const struct remote *remote);
bool local_check(struct side *side, const struct transfer *transfer);

#endif /* VERIFY_H */
