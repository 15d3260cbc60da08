// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Lanes: rings of records in the shared region.
 */
#include <linux/align.h>
#include <linux/errno.h>
#include <linux/string.h>

#include <asm/barrier.h>

#include "lane.h"

static u32 mic_lane_to_end(u32 index, u32 size)
{
	return size - (index & (size - 1));
}

/**
 * mic_lane_tx_reset - begin anew
 * @lane: lane that its reader does not look at
 */
void mic_lane_tx_reset(struct mic_lane_tx *lane)
{
	lane->head = 0;
	WRITE_ONCE(*lane->prod, 0);
}

/**
 * mic_lane_room - whether records fit
 * @lane: lane
 * @bytes: of all records, and once more the largest of them, since that may
 *	not fit before the lane's end
 *
 * Return: 1, 0, or -EIO: the reader's index makes no sense.
 */
int mic_lane_room(const struct mic_lane_tx *lane, u32 bytes)
{
	/* what the reader did before it let go comes before what is written */
	u32 used = lane->head - virt_load_acquire(lane->cons);

	if (used > lane->size || !IS_ALIGNED(used, MIC_REGION_ALIGN))
		return -EIO;
	return bytes <= lane->size - used;
}

/**
 * mic_lane_reserve - a place for the next record
 * @lane: lane in which mic_lane_room() has found room
 * @bytes: size of the record
 *
 * Return: its memory; mic_lane_commit() makes it visible, or mic_lane_append() and
 * mic_lane_publish().
 */
void *mic_lane_reserve(struct mic_lane_tx *lane, u32 bytes)
{
	u32 end = mic_lane_to_end(lane->head, lane->size);

	if (bytes > end) {
		const struct mic_rec pad = { .size = end, .type = MIC_REC_PAD };

		memcpy(lane->base + (lane->head & (lane->size - 1)), &pad,
		       sizeof(pad));
		lane->head += end;
	}
	return lane->base + (lane->head & (lane->size - 1));
}

/**
 * mic_lane_append - the record is complete, but not visible yet
 * @lane: lane
 * @bytes: its size
 */
void mic_lane_append(struct mic_lane_tx *lane, u32 bytes)
{
	WRITE_ONCE(lane->head, lane->head + bytes);
}

/**
 * mic_lane_publish - make records visible
 * @lane: lane
 * @head: &mic_lane_tx.head behind the last of them; the caller sees to it that none
 *	is taken back
 */
void mic_lane_publish(struct mic_lane_tx *lane, u32 head)
{
	/* the records before their index */
	virt_store_release(lane->prod, head);
}

/**
 * mic_lane_commit - the record is complete
 * @lane: lane
 * @bytes: its size
 */
void mic_lane_commit(struct mic_lane_tx *lane, u32 bytes)
{
	mic_lane_append(lane, bytes);
	mic_lane_publish(lane, lane->head);
}

/**
 * mic_lane_rx_reset - begin anew
 * @lane: lane that its writer does not look at
 */
void mic_lane_rx_reset(struct mic_lane_rx *lane)
{
	WRITE_ONCE(lane->tail, 0);
	WRITE_ONCE(*lane->cons, 0);
}

/**
 * mic_lane_pending - whether there is something to read
 * @lane: lane
 *
 * Return: true also if the writer's index makes no sense.
 */
bool mic_lane_pending(const struct mic_lane_rx *lane)
{
	return READ_ONCE(*lane->prod) != READ_ONCE(lane->tail);
}

/* A record's first bytes, copied once, can they be? */
static bool mic_rec_fits(const struct mic_rec *rec, u32 avail, u32 end)
{
	return rec->size >= MIC_REGION_ALIGN &&
	       IS_ALIGNED(rec->size, MIC_REGION_ALIGN) &&
	       rec->size <= avail && rec->size <= end &&
	       rec->payload <= rec->size;
}

/**
 * mic_lane_peek - look at the next record
 * @lane: lane
 * @rec: out: a copy of what it begins with, in which @size is within bounds and
 *	@payload not larger
 * @at: out: the record; it can change at any time
 *
 * Return: 1, 0 if there is none, or -EIO: the other side writes nonsense.
 */
int mic_lane_peek(struct mic_lane_rx *lane, struct mic_rec *rec,
		  const void **at)
{
	bool pad = false;

	while (true) {
		/* the index before the records */
		u32 avail = virt_load_acquire(lane->prod) - lane->tail;
		u32 end = mic_lane_to_end(lane->tail, lane->size);

		if (!avail)
			return 0;
		if (avail > lane->size || !IS_ALIGNED(avail, MIC_REGION_ALIGN))
			return -EIO;
		*at = lane->base + (lane->tail & (lane->size - 1));
		memcpy(rec, *at, sizeof(*rec));
		barrier();
		if (!mic_rec_fits(rec, avail, end))
			return -EIO;
		if (rec->type != MIC_REC_PAD)
			return 1;
		/* it reaches the lane's end, and so never is there another */
		if (pad || rec->size != end)
			return -EIO;
		pad = true;
		mic_lane_advance(lane, rec->size);
	}
}

/**
 * mic_lane_advance - done with a record
 * @lane: lane
 * @bytes: its size, as mic_lane_peek() gave it
 */
void mic_lane_advance(struct mic_lane_rx *lane, u32 bytes)
{
	WRITE_ONCE(lane->tail, lane->tail + bytes);
	/* what was read of the record before the room it gives */
	virt_store_release(lane->cons, lane->tail);
}

/**
 * mic_lane_say_again - publish how far this side has read, if that is not there
 * @lane: lane
 *
 * Return: whether somebody else has written there.
 */
bool mic_lane_say_again(struct mic_lane_rx *lane)
{
	if (READ_ONCE(*lane->cons) == lane->tail)
		return false;
	/* as in mic_lane_advance() */
	virt_store_release(lane->cons, lane->tail);
	return true;
}
