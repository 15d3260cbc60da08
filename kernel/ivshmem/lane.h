/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Lanes: rings of records in the shared region, with one writer and one
 * reader.
 *
 * An index counts bytes, modulo 2^32. A record lies in one piece; where it
 * would not, a pad record fills the lane up to its end. Both sides keep their
 * own index to themselves and only publish it; what the other side publishes
 * is checked before it is used.
 */
#ifndef MIC_IVSHMEM_LANE_H
#define MIC_IVSHMEM_LANE_H

#include <linux/types.h>

#include "layout.h"

/**
 * struct mic_lane_tx - a lane as its writer sees it
 * @base: memory
 * @size: bytes
 * @prod: where this side publishes how far it has written
 * @cons: where the reader publishes how far it has read
 * @head: how far this side has written
 */
struct mic_lane_tx {
	void *base;
	u32 size;
	u32 *prod;
	const u32 *cons;
	u32 head;
};

/**
 * struct mic_lane_rx - a lane as its reader sees it
 * @base: memory
 * @size: bytes
 * @prod: where the writer publishes how far it has written
 * @cons: where this side publishes how far it has read
 * @tail: how far this side has read
 */
struct mic_lane_rx {
	const void *base;
	u32 size;
	const u32 *prod;
	u32 *cons;
	u32 tail;
};

static inline u32 mic_rec_size(u32 hdr, u32 payload)
{
	return ALIGN(hdr + payload, MIC_REGION_ALIGN);
}

void mic_lane_tx_reset(struct mic_lane_tx *lane);
int mic_lane_room(const struct mic_lane_tx *lane, u32 bytes);
void *mic_lane_reserve(struct mic_lane_tx *lane, u32 bytes);
void mic_lane_append(struct mic_lane_tx *lane, u32 bytes);
void mic_lane_publish(struct mic_lane_tx *lane, u32 head);
void mic_lane_commit(struct mic_lane_tx *lane, u32 bytes);

void mic_lane_rx_reset(struct mic_lane_rx *lane);
bool mic_lane_pending(const struct mic_lane_rx *lane);
int mic_lane_peek(struct mic_lane_rx *lane, struct mic_rec *rec,
		  const void **at);
void mic_lane_advance(struct mic_lane_rx *lane, u32 bytes);
bool mic_lane_say_again(struct mic_lane_rx *lane);

#endif /* MIC_IVSHMEM_LANE_H */
