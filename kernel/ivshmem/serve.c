// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the other node asks of devices here: read from the shared region, believe
 * nothing, hand it to the responder that serves local requesters as well, and
 * send its answer.
 */

#include "path.h"

#define MIC_QPN_MASK	0xffffff

static bool mic_serve_has_payload(u8 code)
{
	return code == MIC_OP_SEND || code == MIC_OP_WRITE ||
	       code == MIC_OP_ATOMIC_WRITE;
}

static bool mic_serve_is_atomic(u8 code)
{
	return code == MIC_OP_CMP_SWAP || code == MIC_OP_FETCH_ADD ||
	       code == MIC_OP_ATOMIC_WRITE;
}

/*
 * The services have the operations that they have on one node. The reliable ones want
 * answers, without which there would be no place for what a READ brings back.
 */
static bool mic_serve_service_ok(const struct mic_op *op, u8 rec_flags)
{
	switch (op->service) {
	case IB_QPT_RC:
		return rec_flags & MIC_REC_ACK;
	case IB_QPT_XRC_INI:
		return rec_flags & MIC_REC_ACK && op->code != MIC_OP_MAP;
	case IB_QPT_UC:
		return op->code == MIC_OP_SEND || op->code == MIC_OP_WRITE;
	case IB_QPT_UD:
	case IB_QPT_GSI:
		return op->code == MIC_OP_SEND && !(op->flags & MIC_OP_INV) &&
		       op->flags & MIC_OP_FIRST && op->flags & MIC_OP_LAST;
	default:
		return false;
	}
}

static bool mic_serve_flags_ok(const struct mic_op *op)
{
	const u8 all = MIC_OP_FIRST | MIC_OP_LAST | MIC_OP_IMM | MIC_OP_INV |
		       MIC_OP_SOLICITED;
	bool first = !op->seg_off;
	bool last = op->seg_off + op->seg_len == op->length;

	if (op->flags & ~all ||
	    first != !!(op->flags & MIC_OP_FIRST) ||
	    last != !!(op->flags & MIC_OP_LAST))
		return false;
	if (!last && op->flags & (MIC_OP_IMM | MIC_OP_INV | MIC_OP_SOLICITED))
		return false;
	if (op->flags & MIC_OP_INV && op->code != MIC_OP_SEND)
		return false;
	return !(op->flags & MIC_OP_IMM) || op->code == MIC_OP_SEND ||
	       op->code == MIC_OP_WRITE;
}

/* What is wanted is mapped as a whole, and the answer is waited for. */
static bool mic_serve_map_ok(const struct mic_op *op, u8 rec_flags)
{
	return !op->length && op->flags == (MIC_OP_FIRST | MIC_OP_LAST) &&
	       rec_flags == MIC_REC_FLAGS;
}

static bool mic_serve_op_ok(const struct mic_op *op, u32 payload, u8 rec_flags)
{
	if (op->code > MIC_OP_MAP || op->length > MIC_MAX_MSG ||
	    op->seg_off > op->length || op->seg_len > op->length - op->seg_off ||
	    op->seg_len > MIC_IVS_CHUNK)
		return false;
	/* only an empty message has an empty segment */
	if (!op->seg_len && op->length)
		return false;
	if (mic_serve_is_atomic(op->code) &&
	    (op->length != sizeof(u64) || op->seg_len != sizeof(u64)))
		return false;
	if (op->code == MIC_OP_MAP && !mic_serve_map_ok(op, rec_flags))
		return false;
	if (payload != (mic_serve_has_payload(op->code) ? op->seg_len : 0))
		return false;
	return mic_serve_flags_ok(op) && mic_serve_service_ok(op, rec_flags);
}

static void mic_serve_addr(struct mic_addr *addr,
			   const struct mic_rec_request *req)
{
	memcpy(addr->sgid.raw, req->sgid, sizeof(req->sgid));
	memcpy(addr->dgid.raw, req->dgid, sizeof(req->dgid));
	memcpy(addr->dmac, req->dmac, sizeof(req->dmac));
	memcpy(addr->smac, req->smac, sizeof(req->smac));
	addr->vlan_id = req->vlan_id;
	addr->sl = req->sl;
	addr->traffic_class = req->traffic_class;
	addr->hop_limit = req->hop_limit;
	addr->flow_label = req->flow_label & 0xfffff;
	addr->ipv4 = req->ipv4;
}

static int mic_serve_grant(struct mic_op *op, struct mic_grant *grant,
			   u64 offset, u64 bytes)
{
	struct mic_served *served = container_of(op, struct mic_served, op);
	const struct mic_extents *list = grant->extents;
	u32 n = 0;
	int err;

	served->map.length = bytes;
	if (grant->piece) {
		served->map.offset = grant->piece->offset + offset;
	} else {
		n = list->n;
		memcpy(served->extents, list->at, n * sizeof(*list->at));
	}
	err = mic_grant_open(served->path, grant, &served->map);
	if (!err)
		served->nextents = n;
	return err;
}

/* From the shared memory to an operation. @req is our copy. */
static bool mic_serve_parse(struct mic_served *served,
			    const struct mic_rec_request *req,
			    struct mic_node *src)
{
	struct mic_op *op = &served->op;

	*op = (struct mic_op) {
		.src = src,
		.code = req->code,
		.flags = req->flags,
		.service = req->service,
		.src_qpn = req->src_qpn & MIC_QPN_MASK,
		.dst_qpn = req->dst_qpn & MIC_QPN_MASK,
		.psn = req->psn & 0xffffff,
		.npsn = req->npsn & 0xffffff,
		.xrc_srqn = req->xrc_srqn,
		.rkey = req->rkey,
		.raddr = req->raddr,
		.length = req->length,
		.seg_off = req->seg_off,
		.seg_len = req->seg_len,
		.ex = req->ex,
		.qkey = req->qkey,
		.pkey_index = 0,	/* there is only one */
		.addr = &served->addr,
		.compare_add = req->compare_add,
		.swap = req->swap,
		.data = &served->data,
		.reply_ns = mic_answer_delay_ns(),
		.grant = mic_serve_grant,
		.map = &served->map,
	};
	/* Of this node's memory, only who may have an aperture on it hears. */
	if (op->code == MIC_OP_MAP && !mic_has_apertures())
		op->ex = 0;
	served->map = (struct mic_map) {};
	served->nextents = 0;
	mic_serve_addr(&served->addr, req);
	served->payload = req->rec.payload;
	served->tag = req->rec.tag;
	served->flags = req->rec.flags;
	return mic_serve_op_ok(op, served->payload, served->flags);
}

/* The data of the message, of which only this segment is here. */
static void mic_serve_set_data(struct mic_served *served, const void *at)
{
	const struct mic_op *op = &served->op;

	served->seg = mic_linear_seg(at - op->seg_off,
				     op->seg_off + op->seg_len);
	served->data.seg = &served->seg;
	served->data.nseg = 1;
}

/* A node speaks for its own GIDs only. */
static bool mic_serve_sender_ok(const struct mic_path *path,
				const struct mic_addr *addr)
{
	int i;

	for (i = 0; i < path->ngid; i++)
		if (!memcmp(&path->gids[i].gid, &addr->sgid,
			    sizeof(addr->sgid)))
			return true;
	return false;
}

static enum mic_ack mic_serve_execute(struct mic_path *path,
				      struct mic_served *served)
{
	struct mic_op *op = &served->op;
	struct mic_node *node;
	enum mic_ack ack;

	if (!mic_serve_sender_ok(path, &served->addr))
		return MIC_ACK_NONE;
	if (mic_op_is_mcast(op)) {
		if (!mic_fabric_is_local(&served->addr.sgid, path->ivs->ndev))
			mic_mcast_submit_on(op, path->ivs->ndev);
		return MIC_ACK_NONE;
	}
	node = mic_fabric_find_on(path->ivs->ndev, &served->addr);
	if (!node)
		return MIC_ACK_NONE;
	ack = mic_node_submit(node, op);
	mic_node_put(node);
	return ack;
}

/*
 * An answer is due with the last record of a group, and with each that brings
 * data back; what comes after the first failure is not carried out.
 */
static void mic_serve_answer(struct mic_path *path,
			     const struct mic_served *served, void *at)
{
	const struct mic_op *op = &served->op;
	bool data = op->code == MIC_OP_READ && !path->group_ack;
	u32 payload = data ? op->seg_len :
			     served->nextents * sizeof(struct mic_extent);
	const struct mic_rec_response resp = {
		.rec.size = mic_rec_size(sizeof(resp), payload),
		.rec.type = MIC_REC_RESPONSE,
		.rec.flags = served->flags & MIC_REC_LAST,
		.rec.tag = served->tag,
		.rec.payload = payload,
		.ack = path->group_ack,
		.rnr_timer = op->rnr_timer,
		.seg_off = op->seg_off,
		.result = op->result,
		.map_addr = served->map.addr,
		.map_length = served->map.length,
		.map_offset = served->map.offset,
		.map_gen = served->map.gen,
		.map_slot = served->map.slot,
		.map_access = served->map.access,
	};

	if (!data && !(served->flags & MIC_REC_LAST))
		return;
	memcpy(at, &resp, sizeof(resp));
	if (op->reply_likely && !path->group_ack)
		mic_answer_commit_later(path, resp.rec.size, op->reply_ns,
					served->sent);
	else
		mic_answer_commit(path, resp.rec.size);
}

static void mic_serve_run(struct mic_path *path, struct mic_served *served)
{
	enum mic_ack ack;

	mic_path_count(path, MIC_STAT_REQUEST_RX, 1);
	if (served->flags & MIC_REC_FIRST) {
		path->group_ack = MIC_ACK_OK;
		path->group_rnr = 0;
	}
	/* the responder counts what it drops of an unreliable service */
	if (path->group_ack && served->flags & MIC_REC_ACK)
		return;
	served->sent = READ_ONCE(path->tx[MIC_LANE_REQUEST].head);
	ack = mic_serve_execute(path, served);
	path->group_ack = ack;
	path->group_rnr = served->op.rnr_timer;
}

static int mic_serve_ping(struct mic_path *path, u32 tag)
{
	struct mic_lane_tx *lane = &path->tx[MIC_LANE_RESPONSE];
	const struct mic_rec rec = {
		.size = MIC_REGION_ALIGN,
		.type = MIC_REC_PONG,
		.tag = tag,
	};
	int room = mic_path_room(path, lane, 2 * rec.size);

	if (room <= 0)
		return room;
	memcpy(mic_lane_reserve(lane, rec.size), &rec, sizeof(rec));
	mic_answer_commit(path, rec.size);
	return 1;
}

/* Bytes that the answer may have behind its header. */
static u32 mic_serve_brings_back(const struct mic_op *op)
{
	if (op->code == MIC_OP_READ)
		return op->seg_len;
	return op->code == MIC_OP_MAP && op->ex & MIC_MAP_EXTENTS ?
		       MIC_EXTENTS_MAX * sizeof(struct mic_extent) : 0;
}

/**
 * mic_serve_request - carry out a request
 * @path: path that is up
 * @rec: copy of the record's beginning, bounds checked
 * @at: the record
 *
 * Context: process context, &mic_path.rx_mutex held.
 * Return: 1, 0 if there is no room for an answer yet, -EIO if it makes no
 * sense.
 */
int mic_serve_request(struct mic_path *path, const struct mic_rec *rec,
		      const void *at)
{
	struct mic_lane_tx *lane = &path->tx[MIC_LANE_RESPONSE];
	struct mic_served *served = &path->served;
	struct mic_rec_request req;
	u32 size, back;
	void *answer;
	int room;

	served->op.copies = 0;
	if (rec->type == MIC_REC_PING)
		return mic_serve_ping(path, rec->tag);
	if (rec->type != MIC_REC_REQUEST || rec->flags & ~MIC_REC_FLAGS ||
	    rec->size < sizeof(req) || rec->payload > rec->size - sizeof(req))
		return -EIO;
	memcpy(&req, at, sizeof(req));
	barrier();
	req.rec = *rec;		/* which was checked */
	served->path = path;
	if (!mic_serve_parse(served, &req, path->node))
		return -EIO;
	if (!(served->flags & MIC_REC_ACK)) {
		mic_serve_set_data(served, at + sizeof(req));
		mic_serve_run(path, served);
		return 1;
	}

	back = mic_serve_brings_back(&served->op);
	size = mic_rec_size(sizeof(struct mic_rec_response), back);
	room = mic_path_room(path, lane, 2 * size);
	if (room <= 0)
		return room;
	answer = mic_lane_reserve(lane, size);
	served->extents = answer + sizeof(struct mic_rec_response);
	if (served->op.code == MIC_OP_READ)
		mic_serve_set_data(served,
				   answer + sizeof(struct mic_rec_response));
	else
		mic_serve_set_data(served, at + sizeof(req));
	mic_serve_run(path, served);
	served->op.rnr_timer = path->group_rnr;
	mic_serve_answer(path, served, answer);
	return 1;
}
