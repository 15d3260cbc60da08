// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Fences. A mark is the count of requests posted so far, one's own or, asked
 * for, the peer's.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "marks.h"
#include "rma.h"

enum { SIGNAL_BYTES = 8 };

static int ask_posted(struct scif_endpoint *ep, uint64_t *posted)
{
	struct scif_message message = { .type = SCIF_QUERY }, reply;
	int err = scif_call(ep, &message, &reply);

	if (err)
		return err;
	*posted = reply.args[0];
	pthread_mutex_lock(&ep->rma->reply_lock);
	if (*posted > ep->rma->peer_marked)
		ep->rma->peer_marked = *posted;
	pthread_mutex_unlock(&ep->rma->reply_lock);
	return 0;
}

static int do_mark(struct scif_endpoint *ep, int flags, int *mark)
{
	uint64_t posted;
	int err;

	if (flags == SCIF_FENCE_INIT_SELF) {
		*mark = scif_to_mark(scif_queue_posted(ep->rma), 0);
		return 0;
	}
	err = ask_posted(ep, &posted);
	if (!err)
		*mark = scif_to_mark(posted, SCIF_MARK_PEER);
	return err;
}

SCIF_EXPORT int scif_fence_mark(scif_epd_t epd, int flags, int *mark)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err;

	if (!ep)
		return -1;
	err = scif_check_connected(ep);
	if (!err &&
	    ((flags != SCIF_FENCE_INIT_SELF && flags != SCIF_FENCE_INIT_PEER) ||
	     !mark))
		err = EINVAL;
	if (!err)
		err = do_mark(ep, flags, mark);
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}

static int wait_peer(struct scif_endpoint *ep, int mark)
{
	struct scif_message message = { .type = SCIF_WAIT }, reply;
	uint64_t most, posted;

	pthread_mutex_lock(&ep->rma->reply_lock);
	most = ep->rma->peer_marked;
	pthread_mutex_unlock(&ep->rma->reply_lock);
	if (!scif_from_mark(mark & ~SCIF_MARK_PEER, most, &posted))
		return EINVAL;
	message.args[0] = posted;
	return scif_call(ep, &message, &reply);
}

static int do_wait(struct scif_endpoint *ep, int mark)
{
	uint64_t posted;

	if (mark > 0 && mark & SCIF_MARK_PEER)
		return wait_peer(ep, mark);
	if (!scif_from_mark(mark, scif_queue_posted(ep->rma), &posted))
		return EINVAL;
	return scif_queue_wait(ep, posted);
}

SCIF_EXPORT int scif_fence_wait(scif_epd_t epd, int mark)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err;

	if (!ep)
		return -1;
	err = scif_check_connected(ep);
	if (!err)
		err = do_wait(ep, mark);
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}

static int write_value(struct scif_endpoint *ep, const void *value,
		       uint32_t length, uint64_t to, uint32_t rkey)
{
	struct ibv_sge sge = { .length = length };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_FENCE,
		.wr.rdma = { .remote_addr = to, .rkey = rkey },
	};

	return scif_queue_post_value(ep, &wr, value);
}

static int read_value(struct scif_endpoint *ep, const struct scif_piece *to,
		      uint64_t from, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = to->addr,
		.length = to->length,
		.lkey = to->key,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_FENCE,
		.wr.rdma = { .remote_addr = from, .rkey = rkey },
	};

	return scif_queue_post(ep, &wr, to->region, SCIF_BEHIND);
}

/* Write a value behind all copies into the peer's window. */
static int signal_peer(struct scif_endpoint *ep,
		       const struct scif_pieces *pieces, uint64_t value)
{
	const uint8_t *from = (const uint8_t *)&value;
	const struct scif_piece *piece;
	unsigned int i;
	int err = 0;

	for (i = 0; i < pieces->count && !err; i++) {
		piece = &pieces->list[i];
		err = write_value(ep, from, piece->length, piece->addr,
				  piece->key);
		from += piece->length;
	}
	return err;
}

/*
 * Into one's own: the value goes to the peer and comes back by a read, which
 * is behind all copies, too, and writes through the window's region even if
 * the memory is unmapped. The next value waits, by its fence, for that read.
 */
static int signal_own(struct scif_endpoint *ep,
		      const struct scif_pieces *pieces, uint64_t value)
{
	struct scif_link *link = &ep->link;
	uint64_t scratch = link->peer_addr +
			   offsetof(struct scif_shared, scratch);
	unsigned int i;
	int err;

	pthread_mutex_lock(&ep->rma->signal_lock);
	err = write_value(ep, &value, SIGNAL_BYTES, scratch, link->peer_rkey);
	for (i = 0; i < pieces->count && !err; i++) {
		err = read_value(ep, &pieces->list[i], scratch,
				 link->peer_rkey);
		scratch += pieces->list[i].length;
	}
	pthread_mutex_unlock(&ep->rma->signal_lock);
	return err;
}

static int do_signal(struct scif_endpoint *ep, off_t loff, uint64_t lval,
		     off_t roff, uint64_t rval, int flags)
{
	struct scif_pieces own, peer;
	struct scif_operation op = { .own = false };
	int err, peer_err = 0;

	scif_pieces_init(&own);
	scif_pieces_init(&peer);
	scif_operation_begin(ep->rma, &op);
	if (flags & SCIF_SIGNAL_REMOTE)
		peer_err = scif_peer_pieces(ep, roff, SIGNAL_BYTES,
					    SCIF_PROT_WRITE, &peer);
	if (flags & SCIF_SIGNAL_LOCAL)
		scif_operation_uses_own(ep->rma, &op);
	err = scif_check_connected(ep);
	if (!err && flags & SCIF_SIGNAL_LOCAL)
		err = scif_own_pieces(ep->rma, loff, SIGNAL_BYTES,
				      SCIF_PROT_WRITE, &own);
	if (!err)
		err = peer_err;
	if (!err && flags & SCIF_SIGNAL_LOCAL)
		err = signal_own(ep, &own, lval);
	if (!err && flags & SCIF_SIGNAL_REMOTE)
		err = signal_peer(ep, &peer, rval);
	scif_operation_end(ep, &op);
	scif_pieces_free(&own);
	scif_pieces_free(&peer);
	return err;
}

/* For the peer: what is local there is remote here. */
int scif_signal(struct scif_endpoint *ep, const struct scif_message *what)
{
	int flags = 0;

	if (what->flags & SCIF_SIGNAL_LOCAL)
		flags |= SCIF_SIGNAL_REMOTE;
	if (what->flags & SCIF_SIGNAL_REMOTE)
		flags |= SCIF_SIGNAL_LOCAL;
	return do_signal(ep, what->args[2], what->args[3], what->args[0],
			 what->args[1], flags);
}

static int ask_signal(struct scif_endpoint *ep, off_t loff, uint64_t lval,
		      off_t roff, uint64_t rval, int flags)
{
	struct scif_message message = {
		.type = SCIF_SIGNAL,
		.flags = flags & (SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE),
		.args = { loff, lval, roff, rval },
	};
	struct scif_message reply;

	return scif_call(ep, &message, &reply);
}

static bool is_valid(off_t loff, off_t roff, int flags)
{
	const int who = SCIF_FENCE_INIT_SELF | SCIF_FENCE_INIT_PEER;
	const int what = SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE;

	if (flags & ~(who | what) || !(flags & what) || !(flags & who) ||
	    (flags & who) == who)
		return false;
	return !(flags & SCIF_SIGNAL_LOCAL && loff & 3) &&
	       !(flags & SCIF_SIGNAL_REMOTE && roff & 3);
}

SCIF_EXPORT int scif_fence_signal(scif_epd_t epd, off_t loff, uint64_t lval,
				  off_t roff, uint64_t rval, int flags)
{
	SCIF_NO_CANCEL;
	struct scif_endpoint *ep = scif_get(epd);
	int err;

	if (!ep)
		return -1;
	err = scif_check_connected(ep);
	if (!err && !is_valid(loff, roff, flags))
		err = EINVAL;
	if (!err && flags & SCIF_FENCE_INIT_SELF)
		err = do_signal(ep, loff, lval, roff, rval, flags);
	else if (!err)
		err = ask_signal(ep, loff, lval, roff, rval, flags);
	scif_put(ep);
	return err ? scif_fail(err) : 0;
}
