/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * libmic: the user space provider of the mic device. Each object embeds the
 * library's object as its first member.
 */
#ifndef MIC_H
#define MIC_H

#include "direct.h"
#include "keys.h"
#include "own.h"
#include "ring.h"
#include "verbs_private.h"

struct mic_context {
	struct verbs_context vctx;
	int doorbell_fd;
	enum micdv_path path; /* of new queue pairs */
	pthread_mutex_t lock; /* opening of @windows */
	_Atomic(struct mic_windows *) windows;
	struct mic_keys keys;
};

struct mic_td {
	struct ibv_td td;
	atomic_int refs;
};

struct mic_pd {
	struct ibv_pd pd;
	atomic_int refs;
	/* A parent domain: the domain it stands for, and perhaps a thread. */
	struct mic_pd *parent_of;
	struct mic_td *td;
};

struct mic_ah {
	struct ibv_ah ah;
	uint32_t handle; /* what a send request takes */
};

/* Of a queue that is behind: whose completions are not returned any more. */
struct mic_forgotten {
	struct mic_forgotten *next;
	mic_matches *matches;
	uint32_t number;
};

struct mic_cq {
	struct verbs_cq vcq;
	struct mic_lock lock;
	struct mic_cq_ring ring;
	struct mic_own own;
	uint32_t in_vain; /* polls in a row that found nothing */
	bool timestamps;
	bool ignore_overrun;
	int doorbell_fd;
	struct mic_pd *parent;
	atomic_bool behind; /* the kernel has another queue: @moved */
	struct mic_resize_cq_resp moved;
	struct mic_forgotten *forgotten;
	/* between ibv_start_poll() and ibv_end_poll(), with @lock held */
	struct mic_cqe current;
};

/*
 * How often a queue is polled in vain before the kernel is asked to look what other
 * machines have sent. Who waits for events polls once or twice after each: he has to
 * be woken by the other machine, and nobody is while somebody looks.
 */
enum { MIC_IN_VAIN = 4 };

struct mic_srq {
	struct verbs_srq vsrq;
	struct mic_wq wq;
	struct mic_map map;
	struct mic_modify_srq_resp moved; /* if the queue has no entries */
	struct mic_pd *parent;
	uint32_t srqn;
};

struct mic_dm {
	struct verbs_dm vdm;
	struct mic_map map;
	size_t length;
	bool imported; /* another process has allocated it */
};

/* What is posted between ibv_wr_start() and ibv_wr_complete(). */
struct mic_batch {
	uint32_t next; /* index after the last request */
	int err;
	uint16_t flags;		     /* of the request being built */
	struct mic_send_wqe *wqe;    /* the request being built */
	struct mic_send_wqe scratch; /* stands in for it after an error */
};

/*
 * Who has many queue pairs finds nothing of the next one in the cache. So what
 * every request needs comes first, in as few lines as can be.
 */
struct mic_qp {
	struct verbs_qp vqp;
	struct mic_wq sq __attribute__((aligned(MIC_CACHE_LINE)));
	uint32_t max_inline;
	uint32_t send_ops;     /* bit per enum ibv_wr_opcode: allowed here */
	uint16_t always_flags; /* MIC_WQE_SIGNALED with sq_sig_all */
	struct mic_direct direct;
	int doorbell_fd;
	struct mic_wq rq;
	struct mic_map map;
	struct mic_pd *parent;
	struct mic_batch batch;
};

static inline struct mic_context *to_mctx(struct ibv_context *context)
{
	return container_of(context, struct mic_context, vctx.context);
}

static inline struct mic_pd *to_mpd(struct ibv_pd *pd)
{
	return container_of(pd, struct mic_pd, pd);
}

static inline struct mic_ah *to_mah(struct ibv_ah *ah)
{
	return container_of(ah, struct mic_ah, ah);
}

static inline struct mic_cq *to_mcq(struct ibv_cq *cq)
{
	return container_of(cq, struct mic_cq, vcq.cq);
}

static inline struct mic_dm *to_mdm(struct ibv_dm *dm)
{
	return container_of(dm, struct mic_dm, vdm.dm);
}

static inline struct mic_srq *to_msrq(struct ibv_srq *srq)
{
	return container_of(srq, struct mic_srq, vsrq.srq);
}

static inline struct mic_qp *to_mqp(struct ibv_qp *qp)
{
	return container_of(qp, struct mic_qp, vqp.qp);
}

/* Did the application promise to use what is made with @pd in one thread? */
static inline bool mic_pd_one_thread(struct ibv_pd *pd)
{
	return pd && to_mpd(pd)->td;
}

/* A parent domain stays as long as something was made with it. */
static inline struct mic_pd *mic_parent_get(struct ibv_pd *pd)
{
	if (!pd || !to_mpd(pd)->parent_of)
		return NULL;
	atomic_fetch_add(&to_mpd(pd)->refs, 1);
	return to_mpd(pd);
}

static inline void mic_parent_put(struct mic_pd *parent)
{
	if (parent)
		atomic_fetch_sub(&parent->refs, 1);
}

/* mic.c */
bool mic_is_device(struct ibv_device *device);

/* pd.c */
struct ibv_pd *mic_alloc_pd(struct ibv_context *context);
int mic_dealloc_pd(struct ibv_pd *pd);
struct ibv_td *mic_alloc_td(struct ibv_context *context,
			    struct ibv_td_init_attr *attr);
int mic_dealloc_td(struct ibv_td *td);
struct ibv_pd *mic_alloc_parent_domain(
	struct ibv_context *context, struct ibv_parent_domain_init_attr *attr);
struct ibv_pd *mic_import_pd(struct ibv_context *context, uint32_t handle);
void mic_unimport_pd(struct ibv_pd *pd);
struct ibv_xrcd *mic_open_xrcd(struct ibv_context *context,
			       struct ibv_xrcd_init_attr *attr);
int mic_close_xrcd(struct ibv_xrcd *xrcd);

/* mr.c */
struct ibv_mr *mic_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  uint64_t iova, int access);
struct ibv_mr *mic_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access);
struct ibv_mr *mic_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm,
			     uint64_t offset, size_t length,
			     unsigned int access);
struct ibv_mr *mic_alloc_null_mr(struct ibv_pd *pd);
int mic_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access);
int mic_dereg_mr(struct verbs_mr *vmr);
struct ibv_mr *mic_import_mr(struct ibv_pd *pd, uint32_t handle);
void mic_unimport_mr(struct ibv_mr *mr);

/* dm.c */
struct ibv_dm *mic_alloc_dm(struct ibv_context *context,
			    struct ibv_alloc_dm_attr *attr);
int mic_free_dm(struct ibv_dm *dm);
struct ibv_dm *mic_import_dm(struct ibv_context *context, uint32_t handle);
void mic_unimport_dm(struct ibv_dm *dm);

/* mw.c */
struct ibv_mw *mic_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int mic_dealloc_mw(struct ibv_mw *mw);
int mic_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);

/* ah.c */
struct ibv_ah *mic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int mic_destroy_ah(struct ibv_ah *ah);

/* cq.c */
struct ibv_cq *mic_create_cq(struct ibv_context *context, int cqe,
			     struct ibv_comp_channel *channel, int comp_vector);
struct ibv_cq_ex *mic_create_cq_ex(struct ibv_context *context,
				   struct ibv_cq_init_attr_ex *attr);
int mic_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int mic_destroy_cq(struct ibv_cq *cq);
int mic_poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int mic_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct mic_cqe *mic_cq_next(struct mic_cq *cq);
bool mic_cq_polled(struct mic_cq *cq, bool in_vain);
bool mic_cq_look(struct mic_cq *cq);
unsigned int mic_wc_flags(const struct mic_cqe *cqe);

/* cq_resize.c */
int mic_resize_cq(struct ibv_cq *cq, int cqe);
bool mic_cq_catch_up(struct mic_cq *cq);
bool mic_cq_catch_up_locked(struct mic_cq *cq);
bool mic_cq_is_here(struct ibv_cq *cq);

/* cq_forget.c */
void mic_cq_forget_qp(struct ibv_cq *cq, uint32_t qp_num);
void mic_cq_forget_srq(struct ibv_cq *cq, uint32_t srqn);
void mic_cq_forget_late(struct mic_cq *cq);
void mic_cq_forget_no_more(struct mic_cq *cq);

/* cq_ex.c */
void mic_cq_set_ex_ops(struct ibv_cq_ex *cq, uint64_t wc_flags);

/* srq.c */
struct ibv_srq *mic_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr);
struct ibv_srq *mic_create_srq_ex(struct ibv_context *context,
				  struct ibv_srq_init_attr_ex *attr);
int mic_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int mic_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
void mic_srq_catch_up(struct mic_srq *srq);
int mic_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num);
int mic_destroy_srq(struct ibv_srq *srq);

/* qp.c */
struct ibv_qp *mic_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *mic_create_qp_ex(struct ibv_context *context,
				struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *mic_open_qp(struct ibv_context *context,
			   struct ibv_qp_open_attr *attr);
int mic_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int mic_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr);
int mic_destroy_qp(struct ibv_qp *qp);

/* qp_ex.c */
bool mic_qp_ex_supported(uint32_t send_ops, uint64_t flags);
void mic_qp_set_ex_ops(struct mic_qp *qp, uint64_t flags);

/* simple.c */
int mic_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad_wr);

/* post.c */
int mic_post_list(struct ibv_qp *qp, struct ibv_send_wr *wr,
		  struct ibv_send_wr **bad_wr);
int mic_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		  struct ibv_recv_wr **bad_wr);
int mic_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		      struct ibv_recv_wr **bad_wr);
void mic_ring_doorbell(const struct mic_qp *qp);

/* May the next request be executed by this process, as far as order goes? */
static inline bool mic_direct_next(struct mic_qp *qp)
{
	return qp->direct.on && mic_wq_idle(&qp->sq);
}

#endif /* MIC_H */
