/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Tracepoints: the life of a request from the post to its completion, and
 * what went wrong on the way. Documentation/observability.md has examples.
 *
 * The name of a device is copied with its bounds, for a device can be renamed
 * while an event about it is written.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_mic

#if !defined(MIC_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define MIC_TRACE_H

#include <linux/tracepoint.h>
#include <rdma/ib_verbs.h>
#include <rdma/mic-abi.h>

#include <mic/op.h>
#include <mic/window.h>

#include "../verbs/cq.h"
#include "../verbs/dev.h"
#include "../verbs/qp.h"

TRACE_DEFINE_ENUM(MIC_OP_SEND);
TRACE_DEFINE_ENUM(MIC_OP_WRITE);
TRACE_DEFINE_ENUM(MIC_OP_READ);
TRACE_DEFINE_ENUM(MIC_OP_CMP_SWAP);
TRACE_DEFINE_ENUM(MIC_OP_FETCH_ADD);
TRACE_DEFINE_ENUM(MIC_OP_ATOMIC_WRITE);

#define mic_show_op(op)						\
	__print_symbolic(op,						\
			 { MIC_OP_SEND, "SEND" },			\
			 { MIC_OP_WRITE, "WRITE" },			\
			 { MIC_OP_READ, "READ" },			\
			 { MIC_OP_CMP_SWAP, "CMP_SWAP" },		\
			 { MIC_OP_FETCH_ADD, "FETCH_ADD" },		\
			 { MIC_OP_ATOMIC_WRITE, "ATOMIC_WRITE" })

TRACE_DEFINE_ENUM(MIC_OP_FIRST);
TRACE_DEFINE_ENUM(MIC_OP_LAST);
TRACE_DEFINE_ENUM(MIC_OP_IMM);
TRACE_DEFINE_ENUM(MIC_OP_INV);
TRACE_DEFINE_ENUM(MIC_OP_SOLICITED);

#define mic_show_op_flags(flags)					\
	__print_flags(flags, "|",					\
		      { MIC_OP_FIRST, "FIRST" },			\
		      { MIC_OP_LAST, "LAST" },				\
		      { MIC_OP_IMM, "IMM" },				\
		      { MIC_OP_INV, "INV" },				\
		      { MIC_OP_SOLICITED, "SOLICITED" })

TRACE_DEFINE_ENUM(IB_QPT_GSI);
TRACE_DEFINE_ENUM(IB_QPT_RC);
TRACE_DEFINE_ENUM(IB_QPT_UC);
TRACE_DEFINE_ENUM(IB_QPT_UD);
TRACE_DEFINE_ENUM(IB_QPT_XRC_INI);

#define mic_show_service(service)					\
	__print_symbolic(service,					\
			 { IB_QPT_GSI, "GSI" },				\
			 { IB_QPT_RC, "RC" },				\
			 { IB_QPT_UC, "UC" },				\
			 { IB_QPT_UD, "UD" },				\
			 { IB_QPT_XRC_INI, "XRC" })

TRACE_DEFINE_ENUM(MIC_ACK_OK);
TRACE_DEFINE_ENUM(MIC_ACK_RNR);
TRACE_DEFINE_ENUM(MIC_ACK_NAK_INV_REQ);
TRACE_DEFINE_ENUM(MIC_ACK_NAK_ACCESS);
TRACE_DEFINE_ENUM(MIC_ACK_NAK_OP);
TRACE_DEFINE_ENUM(MIC_ACK_NONE);
TRACE_DEFINE_ENUM(MIC_ACK_PENDING);
TRACE_DEFINE_ENUM(MIC_ACK_AGAIN);

#define mic_show_ack(ack)						\
	__print_symbolic(ack,						\
			 { MIC_ACK_OK, "OK" },				\
			 { MIC_ACK_RNR, "RNR" },			\
			 { MIC_ACK_NAK_INV_REQ, "NAK_INVALID_REQUEST" }, \
			 { MIC_ACK_NAK_ACCESS, "NAK_ACCESS" },		\
			 { MIC_ACK_NAK_OP, "NAK_OPERATION" },		\
			 { MIC_ACK_NONE, "NONE" },			\
			 { MIC_ACK_PENDING, "PENDING" },		\
			 { MIC_ACK_AGAIN, "AGAIN" })

TRACE_DEFINE_ENUM(MIC_WR_RDMA_WRITE);
TRACE_DEFINE_ENUM(MIC_WR_RDMA_WRITE_WITH_IMM);
TRACE_DEFINE_ENUM(MIC_WR_SEND);
TRACE_DEFINE_ENUM(MIC_WR_SEND_WITH_IMM);
TRACE_DEFINE_ENUM(MIC_WR_RDMA_READ);
TRACE_DEFINE_ENUM(MIC_WR_ATOMIC_CMP_AND_SWP);
TRACE_DEFINE_ENUM(MIC_WR_ATOMIC_FETCH_AND_ADD);
TRACE_DEFINE_ENUM(MIC_WR_LOCAL_INV);
TRACE_DEFINE_ENUM(MIC_WR_BIND_MW);
TRACE_DEFINE_ENUM(MIC_WR_SEND_WITH_INV);
TRACE_DEFINE_ENUM(MIC_WR_ATOMIC_WRITE);
TRACE_DEFINE_ENUM(MIC_WR_REG_MR);

#define mic_show_wr_opcode(opcode)					\
	__print_symbolic(opcode,					\
			 { MIC_WR_RDMA_WRITE, "WRITE" },		\
			 { MIC_WR_RDMA_WRITE_WITH_IMM, "WRITE_IMM" },	\
			 { MIC_WR_SEND, "SEND" },			\
			 { MIC_WR_SEND_WITH_IMM, "SEND_IMM" },		\
			 { MIC_WR_RDMA_READ, "READ" },			\
			 { MIC_WR_ATOMIC_CMP_AND_SWP, "CMP_SWAP" },	\
			 { MIC_WR_ATOMIC_FETCH_AND_ADD, "FETCH_ADD" },	\
			 { MIC_WR_LOCAL_INV, "LOCAL_INV" },		\
			 { MIC_WR_BIND_MW, "BIND_MW" },			\
			 { MIC_WR_SEND_WITH_INV, "SEND_INV" },		\
			 { MIC_WR_ATOMIC_WRITE, "ATOMIC_WRITE" },	\
			 { MIC_WR_REG_MR, "REG_MR" })

TRACE_DEFINE_ENUM(MIC_WC_SEND);
TRACE_DEFINE_ENUM(MIC_WC_RDMA_WRITE);
TRACE_DEFINE_ENUM(MIC_WC_RDMA_READ);
TRACE_DEFINE_ENUM(MIC_WC_COMP_SWAP);
TRACE_DEFINE_ENUM(MIC_WC_FETCH_ADD);
TRACE_DEFINE_ENUM(MIC_WC_BIND_MW);
TRACE_DEFINE_ENUM(MIC_WC_LOCAL_INV);
TRACE_DEFINE_ENUM(MIC_WC_ATOMIC_WRITE);
TRACE_DEFINE_ENUM(MIC_WC_REG_MR);
TRACE_DEFINE_ENUM(MIC_WC_RECV);
TRACE_DEFINE_ENUM(MIC_WC_RECV_RDMA_WITH_IMM);

#define mic_show_wc_opcode(opcode)					\
	__print_symbolic(opcode,					\
			 { MIC_WC_SEND, "SEND" },			\
			 { MIC_WC_RDMA_WRITE, "WRITE" },		\
			 { MIC_WC_RDMA_READ, "READ" },			\
			 { MIC_WC_COMP_SWAP, "CMP_SWAP" },		\
			 { MIC_WC_FETCH_ADD, "FETCH_ADD" },		\
			 { MIC_WC_BIND_MW, "BIND_MW" },			\
			 { MIC_WC_LOCAL_INV, "LOCAL_INV" },		\
			 { MIC_WC_ATOMIC_WRITE, "ATOMIC_WRITE" },	\
			 { MIC_WC_REG_MR, "REG_MR" },			\
			 { MIC_WC_RECV, "RECV" },			\
			 { MIC_WC_RECV_RDMA_WITH_IMM, "RECV_WRITE_IMM" })

TRACE_DEFINE_ENUM(IB_WC_SUCCESS);
TRACE_DEFINE_ENUM(IB_WC_LOC_LEN_ERR);
TRACE_DEFINE_ENUM(IB_WC_LOC_QP_OP_ERR);
TRACE_DEFINE_ENUM(IB_WC_LOC_PROT_ERR);
TRACE_DEFINE_ENUM(IB_WC_WR_FLUSH_ERR);
TRACE_DEFINE_ENUM(IB_WC_MW_BIND_ERR);
TRACE_DEFINE_ENUM(IB_WC_LOC_ACCESS_ERR);
TRACE_DEFINE_ENUM(IB_WC_REM_INV_REQ_ERR);
TRACE_DEFINE_ENUM(IB_WC_REM_ACCESS_ERR);
TRACE_DEFINE_ENUM(IB_WC_REM_OP_ERR);
TRACE_DEFINE_ENUM(IB_WC_RETRY_EXC_ERR);
TRACE_DEFINE_ENUM(IB_WC_RNR_RETRY_EXC_ERR);

#define mic_show_status(status)						\
	__print_symbolic(status,					\
			 { IB_WC_SUCCESS, "SUCCESS" },			\
			 { IB_WC_LOC_LEN_ERR, "LOC_LEN_ERR" },		\
			 { IB_WC_LOC_QP_OP_ERR, "LOC_QP_OP_ERR" },	\
			 { IB_WC_LOC_PROT_ERR, "LOC_PROT_ERR" },	\
			 { IB_WC_WR_FLUSH_ERR, "WR_FLUSH_ERR" },	\
			 { IB_WC_MW_BIND_ERR, "MW_BIND_ERR" },		\
			 { IB_WC_LOC_ACCESS_ERR, "LOC_ACCESS_ERR" },	\
			 { IB_WC_REM_INV_REQ_ERR, "REM_INV_REQ_ERR" },	\
			 { IB_WC_REM_ACCESS_ERR, "REM_ACCESS_ERR" },	\
			 { IB_WC_REM_OP_ERR, "REM_OP_ERR" },		\
			 { IB_WC_RETRY_EXC_ERR, "RETRY_EXC_ERR" },	\
			 { IB_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC_ERR" })

TRACE_DEFINE_ENUM(IB_QPS_RESET);
TRACE_DEFINE_ENUM(IB_QPS_INIT);
TRACE_DEFINE_ENUM(IB_QPS_RTR);
TRACE_DEFINE_ENUM(IB_QPS_RTS);
TRACE_DEFINE_ENUM(IB_QPS_SQD);
TRACE_DEFINE_ENUM(IB_QPS_SQE);
TRACE_DEFINE_ENUM(IB_QPS_ERR);

#define mic_show_state(state)						\
	__print_symbolic(state,						\
			 { IB_QPS_RESET, "RESET" },			\
			 { IB_QPS_INIT, "INIT" },			\
			 { IB_QPS_RTR, "RTR" },				\
			 { IB_QPS_RTS, "RTS" },				\
			 { IB_QPS_SQD, "SQD" },				\
			 { IB_QPS_SQE, "SQE" },				\
			 { IB_QPS_ERR, "ERR" })

#ifndef MIC_TRACE_HELPERS
#define MIC_TRACE_HELPERS

#define MIC_TRACE_DATA	256	/* bytes of a segment that are shown at most */

/* PSNs count packets of so many bytes of data. */
static inline u32 mic_trace_mtu(const struct mic_qp *qp)
{
	if (mic_qp_is_ud(qp))
		return mic_port_mtu(qp->dev);
	return ib_mtu_enum_to_int(qp->attr.path_mtu);
}

/* The first bytes of a segment. */
static inline void mic_trace_copy(void *to, u32 bytes, const struct mic_op *op)
{
	const struct mic_seg seg = mic_linear_seg(to, bytes);
	const struct mic_sgl sgl = { .seg = &seg, .nseg = 1 };

	mic_sgl_copy(&sgl, 0, op->data, op->seg_off, bytes);
}

#endif /* MIC_TRACE_HELPERS */

/* A kernel consumer posted a request; it is not in the ring yet. */
TRACE_EVENT(mic_post_send,
	    TP_PROTO(const struct mic_qp *qp, const struct mic_send_wqe *wqe),
	    TP_ARGS(qp, wqe),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u32, index)
			     __field(u64, wr_id)
			     __field(u8, opcode)),
	    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->index = qp->req.ring.producer;
			   __entry->wr_id = wqe->wr_id;
			   __entry->opcode = wqe->opcode;),
	    TP_printk("dev=%s qpn=%u index=%u wr_id=0x%llx opcode=%s",
		      __entry->dev, __entry->qpn, __entry->index, __entry->wr_id,
		      mic_show_wr_opcode(__entry->opcode)));

/* A kernel consumer posted a receive; it is not in the ring yet. */
TRACE_EVENT(mic_post_recv,
	    TP_PROTO(const struct mic_qp *qp, u64 wr_id),
	    TP_ARGS(qp, wr_id),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u32, index)
			     __field(u64, wr_id)),
	    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->index = qp->resp.ring.producer;
			   __entry->wr_id = wr_id;),
	    TP_printk("dev=%s qpn=%u index=%u wr_id=0x%llx",
		      __entry->dev, __entry->qpn, __entry->index, __entry->wr_id));

/* User space says that it posted; the indices are those of the send queue. */
TRACE_EVENT(mic_doorbell,
	    TP_PROTO(const struct mic_qp *qp),
	    TP_ARGS(qp),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u32, producer)
			     __field(u32, consumer)),
	    TP_fast_assign(const struct mic_ring_ctl *ctl = qp->req.ring.ctl;

			   strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->producer = ctl ? READ_ONCE(ctl->producer) : 0;
			   __entry->consumer = READ_ONCE(qp->req.ring.consumer);),
	    TP_printk("dev=%s qpn=%u producer=%u consumer=%u",
		      __entry->dev, __entry->qpn, __entry->producer,
		      __entry->consumer));

/* A segment goes to its responder. What its kind of request has not is 0. */
TRACE_EVENT(mic_submit,
	    TP_PROTO(const struct mic_qp *qp),
	    TP_ARGS(qp),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u32, dst_qpn)
			     __field(u64, wr_id)
			     __field(u32, psn)
			     __field(u32, length)
			     __field(u32, seg_off)
			     __field(u32, seg_len)
			     __field(u8, op)
			     __field(u8, flags)
			     __field(u8, service)
			     __field(u32, mtu)
			     __field(u32, rkey)
			     __field(u64, raddr)
			     __field(u32, ex)
			     __field(u32, qkey)
			     __field(u32, srqn)
			     __field(u64, compare_add)
			     __field(u64, swap)
			     __array(u8, sgid, sizeof(union ib_gid))
			     __array(u8, dgid, sizeof(union ib_gid))),
	    TP_fast_assign(const struct mic_op *op = &qp->req.op;

			   strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->dst_qpn = op->dst_qpn;
			   __entry->wr_id = qp->req.wqe.wr_id;
			   __entry->psn = op->psn;
			   __entry->length = op->length;
			   __entry->seg_off = op->seg_off;
			   __entry->seg_len = op->seg_len;
			   __entry->op = op->code;
			   __entry->flags = op->flags;
			   __entry->service = op->service;
			   __entry->mtu = mic_trace_mtu(qp);
			   __entry->rkey = op->rkey;
			   __entry->raddr = op->raddr;
			   __entry->ex = op->ex;
			   __entry->qkey = op->qkey;
			   __entry->srqn = op->xrc_srqn;
			   __entry->compare_add = op->compare_add;
			   __entry->swap = op->swap;
			   memcpy(__entry->sgid, &op->addr->sgid, sizeof(union ib_gid));
			   memcpy(__entry->dgid, &op->addr->dgid, sizeof(union ib_gid));),
	    TP_printk("dev=%s qpn=%u dst_qpn=%u wr_id=0x%llx op=%s psn=%u offset=%u bytes=%u of=%u flags=%s service=%s sgid=%pI6c dgid=%pI6c mtu=%u raddr=0x%llx rkey=0x%x ex=0x%x qkey=0x%x srqn=%u compare_add=0x%llx swap=0x%llx",
		      __entry->dev, __entry->qpn, __entry->dst_qpn, __entry->wr_id,
		      mic_show_op(__entry->op), __entry->psn, __entry->seg_off,
		      __entry->seg_len, __entry->length,
		      mic_show_op_flags(__entry->flags),
		      mic_show_service(__entry->service), __entry->sgid,
		      __entry->dgid, __entry->mtu, __entry->raddr, __entry->rkey,
		      __entry->ex, __entry->qkey, __entry->srqn,
		      __entry->compare_add, __entry->swap));

/*
 * The first bytes of a segment: of a SEND or WRITE before they are copied, of a READ of
 * this kernel's memory afterwards. The process may change them meanwhile.
 */
TRACE_EVENT(mic_data,
	    TP_PROTO(const struct mic_qp *qp, const struct mic_op *op),
	    TP_ARGS(qp, op),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u32, psn)
			     __field(u32, seg_off)
			     __dynamic_array(u8, data,
					     min_t(u32, op->seg_len, MIC_TRACE_DATA))),
	    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->psn = op->psn;
			   __entry->seg_off = op->seg_off;
			   mic_trace_copy(__get_dynamic_array(data),
					  __get_dynamic_array_len(data), op);),
	    TP_printk("dev=%s qpn=%u psn=%u offset=%u data=%s",
		      __entry->dev, __entry->qpn, __entry->psn, __entry->seg_off,
		      __print_hex_str(__get_dynamic_array(data),
				      __get_dynamic_array_len(data))));

/* The answer to a segment, as it came. (Datagrams succeed whatever it is.) */
TRACE_EVENT(mic_ack,
	    TP_PROTO(const struct mic_qp *qp, const struct mic_op *op, u64 wr_id,
		     enum mic_ack ack),
	    TP_ARGS(qp, op, wr_id, ack),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u32, dst_qpn)
			     __field(u64, wr_id)
			     __field(u32, psn)
			     __field(u32, seg_off)
			     __field(u64, result)
			     __field(u8, op)
			     __field(u8, ack)
			     __field(u8, rnr_timer)),
	    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->dst_qpn = op->dst_qpn;
			   __entry->wr_id = wr_id;
			   __entry->psn = op->psn;
			   __entry->seg_off = op->seg_off;
			   __entry->result = op->result;
			   __entry->op = op->code;
			   __entry->ack = ack;
			   __entry->rnr_timer = op->rnr_timer;),
	    TP_printk("dev=%s qpn=%u dst_qpn=%u wr_id=0x%llx op=%s psn=%u offset=%u ack=%s rnr_timer=%u result=0x%llx",
		      __entry->dev, __entry->qpn, __entry->dst_qpn, __entry->wr_id,
		      mic_show_op(__entry->op), __entry->psn, __entry->seg_off,
		      mic_show_ack(__entry->ack), __entry->rnr_timer,
		      __entry->result));

DECLARE_EVENT_CLASS(mic_rest,
		    TP_PROTO(const struct mic_qp *qp, u8 left, u64 ns),
		    TP_ARGS(qp, left, ns),
		    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
				     __field(u32, qpn)
				     __field(u32, dst_qpn)
				     __field(u64, wr_id)
				     __field(u64, ns)
				     __field(u8, left)),
		    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
				   __entry->qpn = qp->qpn;
				   __entry->dst_qpn = qp->req.op.dst_qpn;
				   __entry->wr_id = qp->req.wqe.wr_id;
				   __entry->ns = ns;
				   __entry->left = left;),
		    TP_printk("dev=%s qpn=%u dst_qpn=%u wr_id=0x%llx again_in_ns=%llu left=%u",
			      __entry->dev, __entry->qpn, __entry->dst_qpn, __entry->wr_id,
			      __entry->ns, __entry->left));

/* The peer has no receive; left=7 means for ever. */
DEFINE_EVENT(mic_rest, mic_rnr_retry,
	     TP_PROTO(const struct mic_qp *qp, u8 left, u64 ns),
	     TP_ARGS(qp, left, ns));

/* Nobody answered. */
DEFINE_EVENT(mic_rest, mic_retry,
	     TP_PROTO(const struct mic_qp *qp, u8 left, u64 ns),
	     TP_ARGS(qp, left, ns));

/* A completion; lost if its queue had no room. */
TRACE_EVENT(mic_complete,
	    TP_PROTO(const struct mic_cq *cq, const struct mic_cqe *cqe, bool event,
		     bool lost),
	    TP_ARGS(cq, cqe, event, lost),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, cqn)
			     __field(u32, qpn)
			     __field(u64, wr_id)
			     __field(u32, byte_len)
			     __field(u8, opcode)
			     __field(u8, status)
			     __field(bool, event)
			     __field(bool, lost)),
	    TP_fast_assign(strscpy(__entry->dev, cq->ibcq.device->name,
				   IB_DEVICE_NAME_MAX);
			   __entry->cqn = cq->ibcq.res.id;
			   __entry->qpn = cqe->qp_num;
			   __entry->wr_id = cqe->wr_id;
			   __entry->byte_len = cqe->byte_len;
			   __entry->opcode = cqe->opcode;
			   __entry->status = cqe->status;
			   __entry->event = event;
			   __entry->lost = lost;),
	    TP_printk("dev=%s cqn=%u qpn=%u wr_id=0x%llx opcode=%s status=%s bytes=%u event=%d lost=%d",
		      __entry->dev, __entry->cqn, __entry->qpn, __entry->wr_id,
		      mic_show_wc_opcode(__entry->opcode),
		      mic_show_status(__entry->status), __entry->byte_len,
		      __entry->event, __entry->lost));

/* A request failed, whoever found the fault. */
TRACE_EVENT(mic_req_error,
	    TP_PROTO(const struct mic_qp *qp, enum ib_wc_status status),
	    TP_ARGS(qp, status),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u64, wr_id)
			     __field(u8, opcode)
			     __field(u8, status)),
	    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->wr_id = qp->req.wqe.wr_id;
			   __entry->opcode = qp->req.wqe.opcode;
			   __entry->status = status;),
	    TP_printk("dev=%s qpn=%u wr_id=0x%llx opcode=%s status=%s",
		      __entry->dev, __entry->qpn, __entry->wr_id,
		      mic_show_wr_opcode(__entry->opcode),
		      mic_show_status(__entry->status)));

/* A responder refuses a request; its own user sees status, if anything. */
TRACE_EVENT(mic_nak,
	    TP_PROTO(const struct mic_qp *qp, enum ib_wc_status status,
		     enum mic_ack ack),
	    TP_ARGS(qp, status, ack),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u32, peer_qpn)
			     __field(u8, status)
			     __field(u8, ack)),
	    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->peer_qpn = qp->attr.dest_qp_num;
			   __entry->status = status;
			   __entry->ack = ack;),
	    TP_printk("dev=%s qpn=%u peer_qpn=%u ack=%s status=%s",
		      __entry->dev, __entry->qpn, __entry->peer_qpn,
		      mic_show_ack(__entry->ack), mic_show_status(__entry->status)));

/* A QP enters an error state, ERR or SQE. */
TRACE_EVENT(mic_qp_error,
	    TP_PROTO(const struct mic_qp *qp, int from, int to),
	    TP_ARGS(qp, from, to),
	    TP_STRUCT__entry(__array(char, dev, IB_DEVICE_NAME_MAX)
			     __field(u32, qpn)
			     __field(u8, from)
			     __field(u8, to)),
	    TP_fast_assign(strscpy(__entry->dev, qp->dev->ibdev.name, IB_DEVICE_NAME_MAX);
			   __entry->qpn = qp->qpn;
			   __entry->from = from;
			   __entry->to = to;),
	    TP_printk("dev=%s qpn=%u from=%s to=%s",
		      __entry->dev, __entry->qpn, mic_show_state(__entry->from),
		      mic_show_state(__entry->to)));

#endif /* MIC_TRACE_H */

/* Kbuild adds the path of this folder for trace.o, the only reader of this. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
