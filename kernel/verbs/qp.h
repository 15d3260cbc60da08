/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queue pairs.
 */
#ifndef MIC_QP_H
#define MIC_QP_H

#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include <mic/fabric.h>

#include "cq.h"
#include "ring.h"
#include "unread.h"

struct mem_cgroup;
struct mic_dev;
struct mic_mkey;
struct mic_pin;
struct mic_srq;
struct mic_uctx;

/**
 * struct mic_sges - a scatter/gather list, as given and as resolved
 * @max: room in the arrays
 * @nsge: elements given
 * @sge: the kernel's copy of the elements
 * @nseg: elements resolved; a reference to each key is held
 * @seg: the memory behind them
 * @mkey: keys; NULL for inline data
 * @pins: pages that are in place for this access only
 * @again: resolving failed because pages were not at hand
 */
struct mic_sges {
	u32 max;
	u32 nsge;
	struct mic_sge *sge;
	u32 nseg;
	struct mic_seg *seg;
	struct mic_mkey **mkey;
	struct mic_pin *pins;
	bool again;
};

/*
 * Segments that may be on their way to another machine at once. Of READs and atomics
 * as many requests as the queue pair may have, but no more data than that is.
 */
#define MIC_FLIGHTS	16

/* With fewer on their way, who posts rings the doorbell. */
#define MIC_FLIGHTS_RING	(MIC_FLIGHTS / 2)

/**
 * struct mic_flight - a segment whose answer is on its way
 * @entry: in &mic_req.flights or &mic_req.spare
 * @qp: queue pair, a reference is held until the answer is there
 * @op: what was asked
 * @wqe: the kernel's copy of the request
 * @sges: where what comes back belongs; resolved only while it is copied, or
 *	all the time if pages are in place for this access only
 * @length: bytes in the message
 * @answered: the answer is there
 * @ack: answer
 * @status: why what came back could not be put there
 */
struct mic_flight {
	struct list_head entry;
	struct mic_qp *qp;
	struct mic_op op;
	struct mic_send_wqe wqe;
	struct mic_sges sges;
	u32 length;
	bool answered;
	u8 ack;
	enum ib_wc_status status;
};

static_assert(sizeof(struct mic_flight) <= 512);	/* limits.md */

enum mic_req_flags {
	MIC_REQ_PENDING,	/* work arrived that no run has seen yet */
};

/**
 * struct mic_req - requester: what a QP asks of others
 * @lock: held by the one who runs the send queue, and by modify_qp
 * @flags: enum mic_req_flags
 * @ring: send queue
 * @broken: the send queue's indices made no sense; it is not looked at again
 * @sges: data of the current request
 * @wqe: the kernel's copy of the current request
 * @active: @wqe is under way
 * @pending: the answer to a segment comes later; a reference to the QP is held
 *	until it is there
 * @answered: it is there, in @ack
 * @ack: answer that came later
 * @deadline: the current request rests until then; 0 if it does not
 * @op: what is asked of the responder
 * @data: the memory of @op
 * @addr: UD: where the current request goes
 * @sgid_gone: UD: the device has the GID it is from no more; it goes nowhere
 * @length: bytes in the current message
 * @done: of these, bytes already moved
 * @from: of these, bytes already moved when the message began, or went on after a
 *	refusal
 * @psn: packet sequence number of the next message
 * @held: nothing more is sent until the last flight is answered
 * @repeat: the request at the ring's head was sent before, and nothing more of it has
 *	been acknowledged since
 * @repeat_opcode: what it was then
 * @repeat_length: bytes in it then
 * @repeat_off: of these, bytes that had been acknowledged
 * @flights: segments on their way, the oldest first
 * @spare: room for more of them, as many as there have been at once lately
 * @shrink: that is given back at @shrink_at, if the queue is empty then or later
 * @shrink_at: jiffies
 * @nflight: how many are on their way
 * @flying: bytes that these are to move
 * @unanswered: how many of these have no answer yet; read anywhere
 * @nreads: requests on their way, or begun, that bring something back
 * @posted: elements that waited in the ring when the next one was last looked for
 * @ahead: requests that have left whole, but have no answer; the current one is
 *	that far from the ring's head
 * @retry_left: repetitions left for want of an answer
 * @rnr_left: repetitions left after RNR NAK
 * @rnr_waits: RNR NAKs of the current request in a row
 * @timer: wakes the worker after a retry interval, and at @shrink_at
 * @node: the peer's node, a reference is held; NULL if not known yet. UD has one
 *	only while a request is under way
 * @post_lock: kernel consumers: serialises posting
 * @polled: the device's poller looks for new requests; read anywhere, under its
 *	lock as what follows
 * @answered_entry: in &mic_busy.answered
 * @poll_entry: in &mic_poller.qps
 * @poll_seen: producer index that it has seen
 * @poll_since: when it changed last
 */
struct mic_req {
	struct mutex lock;
	unsigned long flags;
	struct mic_ring ring;
	bool broken;
	bool active;
	bool sgid_gone;
	bool pending;
	bool answered;
	bool held;
	bool repeat;
	u8 repeat_opcode;
	u8 ack;
	struct list_head flights;
	struct list_head spare;
	bool shrink;
	unsigned long shrink_at;
	u32 nflight;
	atomic_t unanswered;
	u32 flying;
	u32 nreads;
	u32 posted;
	u32 ahead;
	u8 retry_left;
	u8 rnr_left;
	u8 rnr_waits;
	struct mic_sges sges;
	struct mic_send_wqe wqe;
	struct mic_op op;
	struct mic_sgl data;
	struct mic_addr addr;
	u32 length;
	u32 done;
	u32 from;
	u32 repeat_length;
	u32 repeat_off;
	u32 psn;
	ktime_t deadline;
	struct hrtimer timer;
	struct mic_node *node;
	spinlock_t post_lock;
	bool polled;
	u32 poll_seen;
	u64 poll_since;
	struct list_head answered_entry;
	struct list_head poll_entry;
};

/**
 * struct mic_resp - responder: what others ask of a QP
 * @lock: held while a request is carried out here, and by modify_qp; taken
 *	inside the &mic_req.lock of the sender
 * @ring: receive queue, unless there is an SRQ
 * @broken: the receive queue's indices made no sense
 * @sges: the receive under way
 * @wr_id: of the receive under way
 * @active: a receive was taken from the queue and is not complete
 * @xrc_srqn: XRC: the SRQ the receive under way was taken from
 * @epsn: packet sequence number the next message must have
 * @past: numbers before @epsn that were carried out, so far as it matters
 * @results: what atomics of other machines found; NULL if there were none
 * @refused: the last one came out of sequence
 * @refused_psn: its PSN
 * @refused_next: PSN of the message after it
 * @code: operation of the message with @epsn, if some of it has arrived; enum mic_op_code
 * @offset: how much of that message has arrived
 * @peer_id: number of the node of this kernel that the path was seen to lead to, or 0
 * @reply_by: local_clock() until which a reply to the last WRITE of another machine is
 *	early enough to have its acknowledgment wait, or 0; read and written anywhere
 * @replies: how likely it is that there is one; likewise
 * @reply_misses: how often one was likely, and did not come; likewise
 * @post_lock: kernel consumers: serialises posting
 */
struct mic_resp {
	struct mutex lock;
	struct mic_ring ring;
	bool broken;
	bool active;
	struct mic_sges sges;
	u64 wr_id;
	u32 epsn;
	u32 past;
	struct mic_results *results;
	bool refused;
	u8 code;
	u32 refused_psn;
	u32 refused_next;
	u32 offset;
	u32 peer_id;
	u32 xrc_srqn;
	u64 reply_by;
	u8 replies;
	u8 reply_misses;
	spinlock_t post_lock;
};

/**
 * struct mic_qp - queue pair, the engine's part
 * @ref: one for the owner, one for each user under way
 * @gone: the last reference was dropped
 * @rcu: look-ups run under RCU
 * @ibqp: ib_core's part, which goes when destroy_qp returns
 * @dev: device
 * @uctx: user context, NULL for a kernel consumer
 * @srq: shared receive queue or NULL; an XRC target has one only while a
 *	segment is carried out
 * @xrcd: XRC target: its domain
 * @user: it was made by user space (an XRC target outlives its context)
 * @memcg: what is allocated for it later is charged to that, whoever runs it; NULL
 *	for a kernel consumer. A reference is held
 * @send_cq: completions of @req
 * @recv_cq: completions of @resp
 * @buf: memory of the queues
 * @qpn: number
 * @type: enum ib_qp_type
 * @sig_all: every send completes visibly
 * @no_loopback: it gets none of its own multicasts
 * @comm_est: the event was given
 * @last_wqe: the event was given
 * @unread: events
 * @state: enum ib_qp_state; read anywhere, changed under both locks, but to
 *	IB_QPS_ERR and IB_QPS_SQE under either
 * @req: requester
 * @resp: responder
 * @attr: what modify_qp set
 * @addr: RC and UC: where the peer is
 * @cap: capacities granted
 * @imports: windows this QP has given its process, under mic_import_lock
 * @exports: windows this QP has given its peer's process, likewise
 * @nimports: number of @imports, likewise
 * @nexports: number of @exports, likewise
 * @grants: what other nodes' processes may map by means of this QP, likewise
 * @ngrants: number of @grants, likewise
 * @nrecalled: those of them that are to be given back, likewise
 * @mapped: there may have been a window; set under mic_import_lock
 * @changing: it has been modified, and its windows are being taken away; none is added
 * @guesses: wrong keys that the peer asked for to map them, under &mic_resp.lock
 * @modify_lock: serialises modify_qp and query_qp, taken before the others
 * @work: the worker of both queues
 * @counters: where what it does is counted; changed under both locks
 * @counter_entry: in &mic_qp_counter.qps, or empty; under &mic_dev.direct_lock
 * @direct_taken: of what the process says of itself, what sums have; likewise
 */
struct mic_qp {
	refcount_t ref;
	struct completion gone;
	struct rcu_head rcu;
	struct ib_qp *ibqp;
	struct mic_dev *dev;
	struct mic_uctx *uctx;
	struct mic_srq *srq;
	struct ib_xrcd *xrcd;
	bool user;
	struct mem_cgroup *memcg;
	struct mic_cq *send_cq;
	struct mic_cq *recv_cq;
	struct mic_buf *buf;
	u32 qpn;
	u8 type;
	bool sig_all;
	bool no_loopback;
	bool comm_est;
	bool last_wqe;
	struct mic_unread unread;
	int state;
	struct mic_req req;
	struct mic_resp resp;
	struct ib_qp_attr attr;
	struct mic_addr addr;
	struct ib_qp_cap cap;
	struct list_head imports;
	struct list_head exports;
	u32 nimports;
	u32 nexports;
	struct list_head grants;
	u32 ngrants;
	u32 nrecalled;
	bool mapped;
	bool changing;
	u8 guesses;
	struct mutex modify_lock;
	struct work_struct work;
	struct mic_counters __percpu *counters;
	struct list_head counter_entry;
	u64 direct_taken[MIC_DIRECT_COUNTS];
};

/*
 * What ib_core allocates: a pointer, since it frees without a grace period.
 * Cleared when the queue pair is destroyed: who lists objects may still look.
 */
struct mic_ibqp {
	struct ib_qp ibqp;
	struct mic_qp __rcu *qp;
};

/* For verbs, during which ib_core doesn't destroy the queue pair. */
static inline struct mic_qp *to_mic_qp(struct ib_qp *ibqp)
{
	return rcu_dereference_protected(container_of(ibqp, struct mic_ibqp,
						      ibqp)->qp, true);
}

static inline bool mic_qp_is_ud(const struct mic_qp *qp)
{
	return qp->type == IB_QPT_UD || qp->type == IB_QPT_GSI;
}

static inline bool mic_qp_is_reliable(const struct mic_qp *qp)
{
	return qp->type == IB_QPT_RC || qp->type == IB_QPT_XRC_INI ||
	       qp->type == IB_QPT_XRC_TGT;
}

struct mic_qp *mic_qp_get(struct mic_dev *dev, u32 qpn);
struct mic_qp *mic_qp_get_listed(struct ib_qp *ibqp);
void mic_qp_put(struct mic_qp *qp);
void mic_qp_forget(struct mic_qp *qp);
gfp_t mic_qp_gfp(const struct mic_qp *qp);
void *mic_qp_zalloc(const struct mic_qp *qp, size_t size);
void mic_qp_event(struct mic_qp *qp, enum ib_event_type type);

/* qp.c */
int mic_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
		  struct ib_udata *udata);
int mic_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);

/* qp_state.c */
int mic_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_udata *udata);
int mic_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init);

/* post.c */
int mic_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		  const struct ib_send_wr **bad_wr);
int mic_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		  const struct ib_recv_wr **bad_wr);

#endif /* MIC_QP_H */
