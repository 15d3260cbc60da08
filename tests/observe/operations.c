// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Operations that counters have no name for: which of them they count in.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "bind.h"
#include "clock.h"
#include "observe.h"
#include "tap.h"

enum { INVALIDATE_ID = 70, ANSWERS = 100 };

bool count_atomic_writes(struct setup *setup)
{
	return exchange(setup, IBV_WR_ATOMIC_WRITE, 8, 3);
}

/* A window of @a's or of @b's, with a key that can be invalidated. */
static struct ibv_mw *bound_window(struct device *dev, struct endpoint *ep,
				   struct region *memory, uint32_t *key)
{
	struct ibv_mw *mw = ibv_alloc_mw(dev->pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = bind_info(memory, 0, 64,
						 IBV_ACCESS_REMOTE_READ);

	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	*key = ibv_inc_rkey(mw->rkey);
	tap_must(bind_type2(ep, mw, *key, &info, IBV_WC_SUCCESS),
		 "a window is bound");
	return mw;
}

static struct region bindable(struct device *dev)
{
	struct region memory = {};

	if (!region_map(&memory, MEMORY_ANON, PAGE_BYTES))
		bail("cannot map memory");
	region_register(&memory, dev->pd, ACCESS_ALL | IBV_ACCESS_MW_BIND);
	return memory;
}

/* Bound, and invalidated by its owner: two operations of @a alone. */
bool count_local_invalidation(struct setup *setup)
{
	struct region memory = bindable(&setup->a_dev);
	struct ibv_send_wr wr = send_wr(INVALIDATE_ID, IBV_WR_LOCAL_INV, NULL,
					0);
	struct ibv_mw *mw;
	bool ok;

	mw = bound_window(&setup->a_dev, &setup->a, &memory,
			  &wr.invalidate_rkey);
	post_send(&setup->a, &wr);
	ok = cq_expect(setup->a.send_cq, INVALIDATE_ID, IBV_WC_SUCCESS);
	ok = check(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails") && ok;
	region_destroy(&memory);
	return ok;
}

/* Bound by @b, and invalidated with a message. */
bool count_remote_invalidation(struct setup *setup)
{
	struct region memory = bindable(&setup->b_dev);
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 64);
	struct ibv_send_wr wr = send_wr(INVALIDATE_ID, IBV_WR_SEND_WITH_INV,
					&sge, 1);
	struct ibv_mw *mw;
	bool ok;

	mw = bound_window(&setup->b_dev, &setup->b, &memory,
			  &wr.invalidate_rkey);
	receive(setup, 1);
	post_send(&setup->a, &wr);
	ok = cq_expect(setup->a.send_cq, INVALIDATE_ID, IBV_WC_SUCCESS) &&
	     cq_expect(setup->b.recv_cq, 1, IBV_WC_SUCCESS);
	ok = check(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails") && ok;
	region_destroy(&memory);
	return ok;
}

/*
 * What others may add to their timeouts for the answers of @b, so they have to come
 * sooner; on a machine with much else to do not each of them does.
 */
bool count_answers(struct setup *setup)
{
	struct ibv_device_attr attr;
	uint64_t limit_ms;
	int i, late = 0;

	tap_must(!ibv_query_device(setup->b_dev.ctx, &attr),
		 "the device is asked");
	limit_ms = (4096ULL << attr.local_ca_ack_delay) / 1000000;
	for (i = 0; i < ANSWERS; i++) {
		uint64_t start = now_ms();

		if (!exchange(setup, IBV_WR_RDMA_READ, 8, 1))
			return false;
		late += now_ms() - start > limit_ms;
	}
	return check(late < ANSWERS / 2,
		     "%d of %d answers take over %" PRIu64 " ms", late, ANSWERS,
		     limit_ms);
}

/* --- XRC -------------------------------------------------------------------- */

/* Receives of @b are in a queue that its targets share. */
struct domain {
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t srqn;
};

static void domain_open(struct domain *domain, struct device *dev)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD |
			     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.pd = dev->pd,
	};

	domain->xrcd = ibv_open_xrcd(dev->ctx, &attr);
	domain->cq = ibv_create_cq(dev->ctx, 4, NULL, NULL, 0);
	if (!domain->xrcd || !domain->cq)
		bail("no XRC domain: %s", strerror(errno));
	srq.xrcd = domain->xrcd;
	srq.cq = domain->cq;
	domain->srq = ibv_create_srq_ex(dev->ctx, &srq);
	if (!domain->srq || ibv_get_srq_num(domain->srq, &domain->srqn))
		bail("no XRC shared receive queue: %s", strerror(errno));
}

static void domain_close(struct domain *domain)
{
	tap_must(!ibv_destroy_srq(domain->srq) && !ibv_destroy_cq(domain->cq) &&
			 !ibv_close_xrcd(domain->xrcd),
		 "the domain is closed");
}

static bool ends(struct endpoint *a, const struct domain *domain,
		 struct ibv_send_wr wr, enum ibv_wc_status status)
{
	wr.qp_type.xrc.remote_srqn = domain->srqn;
	post_send(a, &wr);
	return cq_expect(a->send_cq, wr.wr_id, status);
}

/* A WRITE, a SEND that arrives, and one that finds no receive. */
static bool xrc_requests(struct setup *setup, struct endpoint *a,
			 const struct domain *domain)
{
	struct ibv_sge from = region_sge(&setup->a_mem, 0, 64);
	struct ibv_sge to = region_sge(&setup->b_mem, RECEIVE_OFFSET,
				       RECEIVE_BYTES);
	struct ibv_recv_wr *bad, recv = { .sg_list = &to, .num_sge = 1 };
	struct ibv_send_wr write = send_wr(1, IBV_WR_RDMA_WRITE, &from, 1);
	struct ibv_send_wr send = send_wr(2, IBV_WR_SEND, &from, 1);

	write.wr.rdma.remote_addr = setup->b_mem.rdma_addr;
	write.wr.rdma.rkey = setup->b_mem.mr->rkey;
	return check(!ibv_post_srq_recv(domain->srq, &recv, &bad),
		     "posting a receive fails") &&
	       ends(a, domain, write, IBV_WC_SUCCESS) &&
	       ends(a, domain, send, IBV_WC_SUCCESS) &&
	       cq_expect(domain->cq, 0, IBV_WC_SUCCESS) &&
	       ends(a, domain, send, IBV_WC_RNR_RETRY_EXC_ERR);
}

bool count_xrc(struct setup *setup)
{
	struct endpoint_options options = impatient_options();
	struct domain domain;
	struct endpoint a, b;
	bool ok;

	domain_open(&domain, &setup->b_dev);
	options.type = IBV_QPT_XRC_SEND;
	endpoint_create(&a, &setup->a_dev, &options);
	options.type = IBV_QPT_XRC_RECV;
	options.xrcd = domain.xrcd;
	endpoint_create(&b, &setup->b_dev, &options);
	pair_connect(&a, &b);
	ok = xrc_requests(setup, &a, &domain);
	pair_destroy(&a, &b);
	domain_close(&domain);
	return ok;
}
