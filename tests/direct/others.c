// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the process leaves to the kernel whatever the operation: what is behind
 * a request of the kernel's, and memory that the process can't reach. Device memory
 * it can, and what it could before by a window that was revoked.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "direct.h"
#include "tap.h"
#include "work.h"

enum { FIRST, SECOND, THIRD, LISTED };
enum { LARGE_BYTES = 64 << 20, LARGE_PAGES = LARGE_BYTES / PAGE_BYTES };

static void list_requests(struct session *session, struct ibv_send_wr *wr,
			  struct ibv_sge *sge)
{
	unsigned int i;

	*sge = region_sge(&session->setup.a_mem, session->from, WORD);
	for (i = 0; i < LISTED; i++) {
		wr[i] = send_wr(i, IBV_WR_RDMA_WRITE, sge, 1);
		wr[i].wr.rdma.remote_addr = session->setup.b_mem.rdma_addr;
		wr[i].wr.rdma.rkey = session->setup.b_mem.mr->rkey;
		wr[i].next = i == THIRD ? NULL : &wr[i + 1];
	}
	wr[SECOND].opcode = IBV_WR_SEND;
}

static void build_requests(struct session *session, struct ibv_sge *sge)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(session->a.qp);
	unsigned int i;
	int error;

	ibv_wr_start(qp);
	for (i = 0; i < LISTED; i++) {
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		if (i == SECOND)
			ibv_wr_send(qp);
		else
			ibv_wr_rdma_write(qp, session->setup.b_mem.mr->rkey,
					  session->setup.b_mem.rdma_addr);
		ibv_wr_set_sge(qp, sge->lkey, sge->addr, sge->length);
	}
	error = ibv_wr_complete(qp);
	if (error)
		bail("ibv_wr_complete: %s", strerror(error));
}

/* WRITE, SEND, WRITE: what follows the SEND does not overtake it. */
static void run_list(struct session *session)
{
	struct ibv_sge sge,
		recv = region_sge(&session->setup.b_mem, session->to, WORD);
	struct ibv_send_wr wr[LISTED];
	bool ok;

	session_connect(session);
	list_requests(session, wr, &sge);
	post_recv(&session->b, 0, &recv, 1);
	session->before = session_query(session);
	if (session->extended)
		build_requests(session, &sge);
	else
		post_send(&session->a, wr);
	ok = cq_expect_range(session->a.send_cq, 0, LISTED, IBV_WC_SUCCESS) &&
	     session_took(session, 1, 2) && session_is_idle(session);
	session_disconnect(session);
	tap_ok(ok, "%s: behind a SEND of the same list by the kernel",
	       session->extended ? "ibv_wr_start" : "ibv_post_send");
}

/* --- memory that is not the process's, or not there ---------------------------- */

/* A WRITE of a word; the addresses are those that the regions go by. */
static bool writes(struct session *session, const struct ibv_mr *source,
		   uint64_t source_addr, const struct ibv_mr *target,
		   uint64_t target_addr, bool direct)
{
	struct ibv_sge sge = {
		.addr = source_addr,
		.length = WORD,
		.lkey = source->lkey,
	};
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = target_addr;
	wr.wr.rdma.rkey = target->rkey;
	session->before = session_query(session);
	post_send(&session->a, &wr);
	return cq_expect(session->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       session_took(session, direct, !direct);
}

/* From this region of a's, or to that of b's. */
static void run_memory(struct session *session, const char *name,
		       const struct ibv_mr *mr, uint64_t addr, bool there,
		       bool direct)
{
	const struct region *a_mem = &session->setup.a_mem;
	const struct region *b_mem = &session->setup.b_mem;
	bool ok;

	session_connect(session);
	if (there)
		ok = writes(session, a_mem->mr, a_mem->rdma_addr, mr, addr,
			    direct);
	else
		ok = writes(session, mr, addr, b_mem->mr, b_mem->rdma_addr,
			    direct);
	ok = ok && session_is_idle(session);
	session_disconnect(session);
	tap_ok(ok, "%s %s: by the %s", there ? "to" : "from", name,
	       direct ? "process" : "kernel");
}

static struct ibv_mr *registered(struct ibv_mr *mr)
{
	if (!mr)
		bail("no region: %s", strerror(errno));
	return mr;
}

static void run_memory_kinds(struct session *session, struct device *dev,
			     struct region *region, bool there)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE_BYTES };
	struct ibv_dm *dm = ibv_alloc_dm(dev->ctx, &attr);
	struct ibv_mr *mr;

	if (!dm)
		bail("ibv_alloc_dm: %s", strerror(errno));
	mr = registered(ibv_reg_dm_mr(dev->pd, dm, 0, PAGE_BYTES,
				      ACCESS_ALL | IBV_ACCESS_ZERO_BASED));
	run_memory(session, "device memory", mr, 0, there, true);
	ibv_dereg_mr(mr);
	ibv_free_dm(dm);
	mr = registered(ibv_reg_mr(dev->pd, region->addr, PAGE_BYTES,
				   ACCESS_ALL | IBV_ACCESS_ON_DEMAND));
	run_memory(session, "memory on demand", mr, (uintptr_t)region->addr,
		   there, false);
	ibv_dereg_mr(mr);
	if (there)
		return;
	mr = registered(ibv_alloc_null_mr(dev->pd));
	run_memory(session, "a null region", mr, 0, there, false);
	ibv_dereg_mr(mr);
}

/* --- windows that were revoked ------------------------------------------------- */

static long page_faults(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		bail("getrusage: %s", strerror(errno));
	return usage.ru_minflt;
}

/* All of @from to @to, by the process; how many page faults it takes is in *@faults. */
static bool writes_all(struct session *session, const struct region *from,
		       const struct region *to, long *faults)
{
	struct ibv_sge sge = region_sge(from, 0, LARGE_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = to->rdma_addr;
	wr.wr.rdma.rkey = to->mr->rkey;
	session->before = session_query(session);
	*faults = page_faults();
	post_send(&session->a, &wr);
	*faults = page_faults() - *faults;
	return cq_expect(session->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       session_took(session, 1, 0);
}

/*
 * Nothing is copied to a window that was revoked before: each page would be a fault.
 * Of the new window's pages several are there after one.
 */
static void run_revoked(struct session *session)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = 1 };
	struct region from, to;
	long first, faults;
	bool ok;

	region_create(&from, session->setup.a_dev.pd, LARGE_BYTES);
	region_create(&to, session->setup.b_dev.pd, LARGE_BYTES);
	session_connect(session);
	ok = writes_all(session, &from, &to, &first) &&
	     check(!ibv_modify_qp(session->b.qp, &attr, IBV_QP_MIN_RNR_TIMER),
		   "ibv_modify_qp fails") &&
	     writes_all(session, &from, &to, &faults) &&
	     check(faults < LARGE_PAGES / 2,
		   "%ld page faults, and %ld the first time", faults, first);
	session_disconnect(session);
	region_destroy(&from);
	region_destroy(&to);
	tap_ok(ok, "to a new window, without filling the revoked one");
}

void run_others(struct session *session)
{
	struct setup *setup = &session->setup;

	session->type = IBV_QPT_RC;
	session->extended = true;
	run_list(session);
	session->extended = false;
	run_list(session);
	run_revoked(session);
	run_memory_kinds(session, &setup->a_dev, &setup->a_mem, false);
	run_memory_kinds(session, &setup->b_dev, &setup->b_mem, true);
}
