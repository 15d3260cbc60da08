// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Operations at the other node: from here to its request lane, and back.
 *
 * A segment goes in several records, so that the other side begins to copy
 * while this one still does. They have one answer; of a READ, as many as it has
 * records, each with its data.
 */
#include <linux/jiffies.h>
#include <linux/random.h>

#include "path.h"

/* Records of the largest segment the engine hands over, and room for them. */
#define MIC_CHUNKS_MAX		(MIC_SEGMENT / MIC_IVS_CHUNK)
#define MIC_CHUNK_SIZE(bytes)	\
	ALIGN(sizeof(struct mic_rec_request) + (bytes), MIC_REGION_ALIGN)
#define MIC_GROUP_ROOM		\
	((MIC_CHUNKS_MAX + 1) * MIC_CHUNK_SIZE(MIC_IVS_CHUNK))

static_assert(MIC_GROUP_ROOM <= MIC_LANE_MIN);

/* Waiters that are looked at under the lock before others get it. */
#define MIC_WAKE_BATCH		64

/* Does data travel with the request? */
static bool mic_op_has_data(const struct mic_op *op)
{
	return op->code == MIC_OP_SEND || op->code == MIC_OP_WRITE ||
	       op->code == MIC_OP_ATOMIC_WRITE;
}

static bool mic_op_is_reliable(const struct mic_op *op)
{
	return op->service == IB_QPT_RC || op->service == IB_QPT_XRC_INI;
}

/* Take a slot for the answer. Return: its tag, or 0 if none is free. */
static u32 mic_pending_add(struct mic_path *path, struct mic_op *op)
{
	struct mic_pending *p;
	u32 slot, tag = 0;

	spin_lock(&path->lock);
	slot = find_first_zero_bit(path->used, MIC_IVS_PENDING);
	if (slot < MIC_IVS_PENDING) {
		p = &path->pending[slot];
		__set_bit(slot, path->used);
		p->op = op;
		p->gen = (u16)(p->gen + 1) ?: 1;
		p->got = 0;
		p->since = jiffies;
		op->slot = slot + 1;
		tag = (u32)p->gen << 16 | slot;
	}
	spin_unlock(&path->lock);
	return tag;
}

static struct mic_op *mic_pending_del(struct mic_path *path, u32 slot)
{
	struct mic_op *op = path->pending[slot].op;

	lockdep_assert_held(&path->lock);
	path->pending[slot].op = NULL;
	__clear_bit(slot, path->used);
	op->slot = 0;
	return op;
}

/*
 * The operation is tried again when there is room. A multicast waits for no
 * node, and a datagram for none that does not read: they are lost.
 */
static enum mic_ack mic_remote_wait(struct mic_path *path, struct mic_op *op)
{
	if (mic_op_is_mcast(op) || (path->stuck && !mic_op_is_reliable(op)))
		return MIC_ACK_OK;
	spin_lock(&path->lock);
	if (list_empty(&path->waiters))
		path->waiting = jiffies;
	list_add_tail(&op->entry, &path->waiters);
	spin_unlock(&path->lock);
	return MIC_ACK_AGAIN;
}

/* The part of a segment that goes into one record. */
struct mic_chunk {
	u32 off;
	u32 len;
	u32 tag;
	u8 rec_flags;
	u8 op_flags;
};

static void mic_remote_header(struct mic_rec_request *req,
			      const struct mic_op *op,
			      const struct mic_chunk *chunk, u32 payload)
{
	const struct mic_addr *addr = op->addr;

	*req = (struct mic_rec_request) {
		.rec.size = MIC_CHUNK_SIZE(payload),
		.rec.type = MIC_REC_REQUEST,
		.rec.flags = chunk->rec_flags,
		.rec.tag = chunk->tag,
		.rec.payload = payload,
		.code = op->code,
		.flags = chunk->op_flags,
		.service = op->service,
		.ipv4 = addr->ipv4,
		.src_qpn = op->src_qpn,
		.dst_qpn = op->dst_qpn,
		.psn = op->psn,
		.npsn = op->npsn,
		.xrc_srqn = op->xrc_srqn,
		.rkey = op->rkey,
		.length = op->length,
		.raddr = op->raddr,
		.compare_add = op->compare_add,
		.swap = op->swap,
		.seg_off = chunk->off,
		.seg_len = chunk->len,
		.ex = op->ex,
		.qkey = op->qkey,
		.pkey_index = op->pkey_index,
		.vlan_id = addr->vlan_id,
		.sl = addr->sl,
		.traffic_class = addr->traffic_class,
		.hop_limit = addr->hop_limit,
		.flow_label = addr->flow_label,
	};
	memcpy(req->sgid, addr->sgid.raw, sizeof(req->sgid));
	memcpy(req->dgid, addr->dgid.raw, sizeof(req->dgid));
	memcpy(req->dmac, addr->dmac, sizeof(req->dmac));
	memcpy(req->smac, addr->smac, sizeof(req->smac));
}

static void mic_remote_copy(void *dst, const struct mic_op *op, u32 off,
			    u32 len)
{
	const struct mic_seg seg = mic_linear_seg(dst, len);
	const struct mic_sgl to = { .seg = &seg, .nseg = 1 };

	mic_sgl_copy(&to, 0, op->data, off, len);
}

static void mic_remote_write(struct mic_path *path, const struct mic_op *op,
			     const struct mic_chunk *chunk)
{
	struct mic_lane_tx *lane = &path->tx[MIC_LANE_REQUEST];
	u32 payload = mic_op_has_data(op) ? chunk->len : 0;
	struct mic_rec_request req;
	void *at;

	mic_remote_header(&req, op, chunk, payload);
	at = mic_lane_reserve(lane, req.rec.size);
	memcpy(at, &req, sizeof(req));
	if (payload)
		mic_remote_copy(at + sizeof(req), op, chunk->off, payload);
	mic_lane_commit(lane, req.rec.size);
	mic_answer_flush(path);
	mic_path_ring(path);
}

/* A segment, record by record. */
static void mic_remote_send(struct mic_path *path, const struct mic_op *op,
			    u32 tag)
{
	u32 end = op->seg_off + op->seg_len, off = op->seg_off;
	const u8 last = MIC_OP_LAST | MIC_OP_IMM | MIC_OP_INV |
			MIC_OP_SOLICITED;
	struct mic_chunk chunk = {
		.tag = tag,
		.rec_flags = MIC_REC_FIRST | (tag ? MIC_REC_ACK : 0),
		.op_flags = op->flags & ~last,
	};

	do {
		chunk.off = off;
		chunk.len = min_t(u32, end - off, MIC_IVS_CHUNK);
		off += chunk.len;
		if (off == end) {
			chunk.rec_flags |= MIC_REC_LAST;
			chunk.op_flags |= op->flags & last;
		}
		mic_remote_write(path, op, &chunk);
		chunk.rec_flags &= ~MIC_REC_FIRST;
		chunk.op_flags &= ~MIC_OP_FIRST;
	} while (off < end);
}

static u32 mic_remote_room_for(const struct mic_op *op)
{
	u32 n = max_t(u32, DIV_ROUND_UP(op->seg_len, MIC_IVS_CHUNK), 1);
	u32 len = mic_op_has_data(op) ? min_t(u32, op->seg_len,
					      MIC_IVS_CHUNK) : 0;

	return (n + 1) * MIC_CHUNK_SIZE(len);
}

/*
 * Somebody has waited for long, perhaps for more room than others need: these
 * wait, too, and all begin anew when the lane has room for the longest.
 */
static bool mic_remote_is_passed(struct mic_path *path)
{
	lockdep_assert_held(&path->tx_mutex);
	return !list_empty_careful(&path->waiters) &&
	       time_after(jiffies, path->waiting +
				   msecs_to_jiffies(MIC_IVS_PASS_MS));
}

static enum mic_ack mic_remote_locked(struct mic_path *path, struct mic_op *op)
{
	int room;
	u32 tag = 0;

	lockdep_assert_held(&path->tx_mutex);
	INIT_LIST_HEAD(&op->entry);
	op->slot = 0;
	if (!mic_path_may_send(path) || READ_ONCE(path->broken) ||
	    WARN_ON_ONCE(op->seg_len > MIC_SEGMENT))
		return MIC_ACK_NONE;
	if (mic_remote_is_passed(path))
		return mic_remote_wait(path, op);
	room = mic_path_room(path, &path->tx[MIC_LANE_REQUEST],
			     mic_remote_room_for(op));
	if (room < 0)
		return MIC_ACK_NONE;
	if (!room)
		return mic_remote_wait(path, op);
	if (op->code == MIC_OP_MAP && READ_ONCE(path->reach))
		op->ex = MIC_MAP_EXTENTS;
	if (mic_op_is_reliable(op)) {
		tag = mic_pending_add(path, op);
		if (!tag) {
			WRITE_ONCE(path->tx_ch->want_room, 1);
			return mic_remote_wait(path, op);
		}
	}
	mic_path_count(path, MIC_STAT_REQUEST_TX, 1);
	mic_remote_send(path, op, tag);
	return tag ? MIC_ACK_PENDING : MIC_ACK_OK;
}

static enum mic_ack mic_remote_submit(struct mic_node *node, struct mic_op *op)
{
	struct mic_path *path = node->priv;
	enum mic_ack ack;

	mutex_lock(&path->tx_mutex);
	ack = mic_remote_locked(path, op);
	mutex_unlock(&path->tx_mutex);
	return ack;
}

static bool mic_remote_cancel(struct mic_node *node, struct mic_op *op)
{
	struct mic_path *path = node->priv;
	bool cancelled = true;

	spin_lock(&path->lock);
	while (op->slot && path->pending[op->slot - 1].copying) {
		struct mic_pending *p = &path->pending[op->slot - 1];

		spin_unlock(&path->lock);
		wait_event(path->copied, !READ_ONCE(p->copying));
		spin_lock(&path->lock);
	}
	if (op->slot)
		mic_pending_del(path, op->slot - 1);
	else if (!list_empty(&op->entry))
		list_del_init(&op->entry);
	else
		cancelled = false;
	spin_unlock(&path->lock);
	return cancelled;
}

const struct mic_node_ops mic_remote_ops = {
	.submit = mic_remote_submit,
	.cancel = mic_remote_cancel,
	.attach = mic_lease_attach,
	.poll = mic_path_poll,
};

/* Does data belong there? That of a READ, or the extents of a map. */
static bool mic_remote_data_ok(const struct mic_pending *p,
			       const struct mic_rec_response *resp)
{
	const struct mic_op *op = p->op;
	u32 off = resp->seg_off - op->seg_off;

	if (op->code == MIC_OP_MAP)
		return !p->got && op->ex & MIC_MAP_EXTENTS;
	return op->code == MIC_OP_READ && resp->seg_off >= op->seg_off &&
	       off == p->got && resp->rec.payload <= op->seg_len - off;
}

/* It goes where it belongs, if it belongs anywhere. */
static bool mic_remote_data(struct mic_path *path, struct mic_pending *p,
			    const struct mic_rec_response *resp,
			    const void *data)
{
	u32 len = resp->rec.payload;
	struct mic_op *op = p->op;

	lockdep_assert_held(&path->lock);
	if (!mic_remote_data_ok(p, resp))
		return false;
	p->copying = true;
	spin_unlock(&path->lock);
	op->land(op, resp->seg_off, data, len);
	spin_lock(&path->lock);
	WRITE_ONCE(p->copying, false);
	wake_up(&path->copied);
	p->got += len;
	return true;
}

static struct mic_pending *mic_pending_find(struct mic_path *path, u32 tag)
{
	u32 slot = tag & 0xffff;

	if (slot >= MIC_IVS_PENDING || !path->pending[slot].op ||
	    path->pending[slot].gen != tag >> 16)
		return NULL;
	return &path->pending[slot];
}

static void mic_remote_map(struct mic_map *map,
			   const struct mic_rec_response *resp)
{
	*map = (struct mic_map) {
		.addr = resp->map_addr,
		.length = resp->map_length,
		.offset = resp->map_offset,
		.access = resp->map_access,
		.slot = resp->map_slot,
		.gen = resp->map_gen,
	};
}

static enum mic_ack mic_remote_verdict(const struct mic_pending *p,
				       const struct mic_rec_response *resp)
{
	if (resp->ack == MIC_ACK_OK && p->op->code == MIC_OP_READ &&
	    p->got != p->op->seg_len)
		return MIC_ACK_NONE;	/* something is missing */
	return resp->ack;
}

/* Is it the answer to the last question, and not to one that was given up? */
static void mic_remote_pong(struct mic_path *path, u32 tag)
{
	spin_lock(&path->lock);
	if (tag == path->ping)
		complete(&path->pong);
	spin_unlock(&path->lock);
}

/**
 * mic_remote_response - an answer, or a part of one
 * @path: path
 * @rec: copy of the record's beginning, bounds checked
 * @at: the record
 *
 * An answer to nothing is not an error: the operation was cancelled.
 *
 * Context: process context, &mic_path.rx_mutex held.
 * Return: 1, or -EIO if it makes no sense.
 */
int mic_remote_response(struct mic_path *path, const struct mic_rec *rec,
			const void *at)
{
	struct mic_rec_response resp;
	struct mic_pending *p;
	struct mic_map map;
	struct mic_op *op;
	int ret = 1;

	memcpy(&resp, at, sizeof(resp));
	barrier();
	resp.rec = *rec;	/* which was checked */
	if (rec->type == MIC_REC_PONG) {
		mic_remote_pong(path, rec->tag);
		return 1;
	}
	mic_path_count(path, MIC_STAT_RESPONSE_RX, 1);
	if (rec->type != MIC_REC_RESPONSE ||
	    rec->payload > rec->size - sizeof(resp) || resp.ack > MIC_ACK_NONE)
		return -EIO;

	mic_remote_map(&map, &resp);
	spin_lock(&path->lock);
	p = mic_pending_find(path, rec->tag);
	if (!p) {
		mic_lease_disown(path, &map);
		goto unlock;
	}
	if (rec->payload &&
	    !mic_remote_data(path, p, &resp, at + sizeof(resp))) {
		ret = -EIO;
		goto unlock;
	}
	if (rec->flags & MIC_REC_LAST) {
		p->op->result = resp.result;
		p->op->rnr_timer = resp.rnr_timer & 31;
		if (p->op->map)
			*p->op->map = map;
		resp.ack = mic_remote_verdict(p, &resp);
		op = mic_pending_del(path, rec->tag & 0xffff);
		op->done(op, resp.ack);
	}
unlock:
	spin_unlock(&path->lock);
	return ret;
}

/*
 * Wake those that wait, or only those that send datagrams. There may be one of each
 * queue pair, so the lock is dropped now and then. Nobody is added meanwhile: the
 * caller has &mic_path.tx_mutex, or the path is down. Who cancels relies on each being
 * taken off its list and woken in one go. Return: how many they were.
 */
static u32 mic_remote_wake_waiters(struct mic_path *path, enum mic_ack ack,
				   bool all)
{
	u32 seen = 0, woken = 0;
	struct mic_op *op;
	LIST_HEAD(queue);

	lockdep_assert_held(&path->lock);
	list_splice_init(&path->waiters, &queue);
	while (!list_empty(&queue)) {
		op = list_first_entry(&queue, struct mic_op, entry);
		if (all || !mic_op_is_reliable(op)) {
			list_del_init(&op->entry);
			op->done(op, ack);
			woken++;
		} else {
			list_move_tail(&op->entry, &path->waiters);
		}
		if (++seen % MIC_WAKE_BATCH)
			continue;
		spin_unlock(&path->lock);
		cond_resched();
		spin_lock(&path->lock);
	}
	return woken;
}

/**
 * mic_remote_room - let those try again who found no room
 * @path: path; the caller has cleared the wish for room
 *
 * Context: process context, &mic_path.rx_mutex held.
 */
void mic_remote_room(struct mic_path *path)
{
	/* who has just found no room has the mutex until it is on the list */
	mutex_lock(&path->tx_mutex);
	if ((path->stuck || !list_empty(&path->waiters)) &&
	    mic_path_room(path, &path->tx[MIC_LANE_REQUEST],
			  MIC_GROUP_ROOM) > 0) {
		path->stuck = false;
		spin_lock(&path->lock);
		mic_remote_wake_waiters(path, MIC_ACK_AGAIN, true);
		spin_unlock(&path->lock);
	}
	mutex_unlock(&path->tx_mutex);
}

/* The lane has had no room for long: see who still waits for it. */
static void mic_remote_expire_waiters(struct mic_path *path)
{
	const unsigned long stuck = msecs_to_jiffies(MIC_IVS_STUCK_MS);
	const unsigned long limit = msecs_to_jiffies(MIC_IVS_ANSWER_MS);
	u32 expired;

	lockdep_assert_held(&path->tx_mutex);
	spin_lock(&path->lock);
	if (list_empty(&path->waiters) ||
	    time_before(jiffies, path->waiting + stuck))
		goto unlock;
	path->stuck = true;
	expired = mic_remote_wake_waiters(path, MIC_ACK_OK, false);
	if (time_after_eq(jiffies, path->waiting + limit))
		expired += mic_remote_wake_waiters(path, MIC_ACK_NONE, true);
	mic_path_count(path, MIC_STAT_EXPIRED, expired);
unlock:
	spin_unlock(&path->lock);
}

/**
 * mic_remote_expire - give up what is overdue
 * @path: path
 *
 * The other node lives but does not answer, or does not read; it does not keep
 * anybody here.
 *
 * Context: the path's thread.
 */
void mic_remote_expire(struct mic_path *path)
{
	const unsigned long limit = msecs_to_jiffies(MIC_IVS_ANSWER_MS);
	struct mic_op *op;
	u32 slot;

	if (time_before(jiffies, path->expire))
		return;
	path->expire = jiffies + HZ;
	spin_lock(&path->lock);
	for_each_set_bit(slot, path->used, MIC_IVS_PENDING) {
		if (time_before(jiffies, path->pending[slot].since + limit))
			continue;
		mic_path_count(path, MIC_STAT_EXPIRED, 1);
		op = mic_pending_del(path, slot);
		op->done(op, MIC_ACK_NONE);
	}
	spin_unlock(&path->lock);

	mutex_lock(&path->tx_mutex);
	mic_remote_expire_waiters(path);
	mutex_unlock(&path->tx_mutex);
}

/**
 * mic_remote_fail - nobody will answer any more
 * @path: path that is down, and whose node has left
 *
 * Context: the path's thread.
 */
void mic_remote_fail(struct mic_path *path)
{
	struct mic_op *op;
	u32 slot;

	spin_lock(&path->lock);
	for_each_set_bit(slot, path->used, MIC_IVS_PENDING) {
		op = mic_pending_del(path, slot);
		op->done(op, MIC_ACK_NONE);
	}
	mic_remote_wake_waiters(path, MIC_ACK_NONE, true);
	spin_unlock(&path->lock);
}

/**
 * mic_remote_ping - ask the other node for an answer
 * @path: path
 *
 * Through the same lanes as requests and their answers.
 *
 * Context: process context, sleeps; one at a time, with mic_remote_await_pong().
 * Return: 0, or -EAGAIN: it could not be sent.
 */
int mic_remote_ping(struct mic_path *path)
{
	struct mic_lane_tx *lane = &path->tx[MIC_LANE_REQUEST];
	const struct mic_rec rec = {
		.size = MIC_REGION_ALIGN,
		.type = MIC_REC_PING,
		.tag = get_random_u32() ?: 1,
	};
	bool sent = false;

	spin_lock(&path->lock);
	reinit_completion(&path->pong);
	path->ping = rec.tag;
	spin_unlock(&path->lock);
	mutex_lock(&path->tx_mutex);
	if (mic_path_may_send(path) &&
	    mic_path_room(path, lane, 2 * rec.size) > 0) {
		memcpy(mic_lane_reserve(lane, rec.size), &rec, sizeof(rec));
		mic_lane_commit(lane, rec.size);
		mic_path_ring(path);
		sent = true;
	}
	mutex_unlock(&path->tx_mutex);
	return sent ? 0 : -EAGAIN;
}

/**
 * mic_remote_await_pong - wait for that answer
 * @path: path
 * @end: no longer than that, in jiffies
 *
 * Context: process context, sleeps.
 * Return: 0; -ECONNRESET: the path went down meanwhile; -ETIMEDOUT: no answer came;
 * -EINTR: the process is killed.
 */
int mic_remote_await_pong(struct mic_path *path, unsigned long end)
{
	const long tick = msecs_to_jiffies(MIC_IVS_TICK_MS);
	long left, got;

	do {
		left = end - jiffies;
		got = wait_for_completion_killable_timeout(&path->pong,
							   clamp(left, 0L, tick));
		if (got)
			return got > 0 ? 0 : -EINTR;
		if (!READ_ONCE(path->up))
			return -ECONNRESET;
	} while (left > 0);
	return -ETIMEDOUT;
}
