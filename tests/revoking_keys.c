// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Windows by keys that the peer did not give away, and of another peer than there
 * was.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "bind.h"
#include "clock.h"
#include "revoking.h"
#include "tap.h"
#include "work.h"

enum { GRANTED = 512, GUESSES = 8 /* that the kernel lets pass */ };

/* --- keys -------------------------------------------------------------------- */

static bool answers(const struct endpoint *ep, const struct region *region,
		    uint32_t rkey, int expected)
{
	struct mic_window_import req;
	int err = import(ep, region, rkey, 0, region->length, &req);

	if (!err)
		drop(req.slot);
	return check(err == expected, "importing key 0x%x gives %s", rkey,
		     err ? strerror(err) : "a window");
}

static bool writes(struct endpoint *ep, const struct region *region)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);

	wr.wr.rdma.remote_addr = region->rdma_addr;
	wr.wr.rdma.rkey = region->mr->rkey;
	post_send(ep, &wr);
	return cq_expect(ep->send_cq, 1, IBV_WC_SUCCESS);
}

/* Again, from the beginning; the peer knows nothing of it. */
static void connect_to(struct endpoint *a, const struct endpoint *peer)
{
	struct endpoint_address address = endpoint_address(peer);

	endpoint_set_state(a, IBV_QPS_RESET);
	endpoint_connect(a, &address);
}

bool guesses(void)
{
	struct endpoint a, b;
	struct region region;
	uint32_t rkey, i;
	bool ok = true;

	new_pair(&a, &b);
	new_region(&region, setup.b_dev.pd);
	rkey = region.mr->rkey;
	for (i = 1; i < GUESSES && ok; i++)
		ok = answers(&a, &region, rkey ^ i, EACCES) &&
		     answers(&a, &region, rkey, 0);
	/* the last, for which there is not even an index */
	ok = ok && answers(&a, &region, 0, EACCES) &&
	     answers(&a, &region, rkey, EACCES);
	connect_to(&a, &b);
	ok = ok && answers(&a, &region, rkey, EACCES) && writes(&a, &region);
	endpoint_set_state(&a, IBV_QPS_RESET);
	endpoint_set_state(&b, IBV_QPS_RESET);
	pair_connect(&a, &b);
	ok = ok && answers(&a, &region, rkey, 0);
	region_destroy(&region);
	pair_destroy(&a, &b);
	return ok;
}

/* Requests that can't be granted whatever the key. */
bool guesses_refused(void)
{
	struct mic_window_import req;
	struct endpoint a, b;
	struct region region;
	bool ok = true;
	uint32_t i;

	new_pair(&a, &b);
	new_region(&region, setup.b_dev.pd);
	for (i = 1; i <= GUESSES && ok; i++) {
		req = (struct mic_window_import){
			.qpn = a.qp->qp_num,
			.rkey = region.mr->rkey ^ i,
			.access = 1U << 20,
		};
		ok = check(import_window(&req), "a window");
	}
	ok = ok && answers(&a, &region, region.mr->rkey, EACCES);
	region_destroy(&region);
	pair_destroy(&a, &b);
	return ok;
}

/* Who is not connected does not hear whether a key exists. */
bool guesses_unconnected(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct endpoint a, b, other;
	struct region region;
	bool ok;

	new_pair(&a, &b);
	new_region(&region, setup.b_dev.pd);
	endpoint_create(&other, &setup.a_dev, &options);
	address = endpoint_address(&b);
	endpoint_connect(&other, &address);
	ok = answers(&other, &region, region.mr->rkey, ENOTCONN) &&
	     answers(&other, &region, region.mr->rkey ^ 1, ENOTCONN) &&
	     answers(&other, &region, 0, ENOTCONN);
	endpoint_destroy(&other);
	region_destroy(&region);
	pair_destroy(&a, &b);
	return ok;
}

/* --- an invalidation that waits ---------------------------------------------- */

enum { SEND_ID = 2, RECEIVE_ID };

static bool ends(uint32_t slot)
{
	uint64_t end = deadline();

	while (!is_revoked(slot)) {
		if (!check(now_ms() < end, "the window stays"))
			return false;
		sched_yield();
	}
	return true;
}

static bool invalidates(struct endpoint *a, struct endpoint *b,
			const struct region *region, uint32_t key)
{
	struct ibv_send_wr wr = send_wr(SEND_ID, IBV_WR_SEND_WITH_INV, NULL, 0);
	struct mic_window_import first, second;
	bool ok;

	wr.invalidate_rkey = key;
	if (!check(!import(a, region, key, 0, region->length, &first),
		   "no window is granted"))
		return false;
	/* there is no receive yet: the key stands, and what was given up comes back */
	post_send(a, &wr);
	ok = ends(first.slot) &&
	     check(!import(a, region, key, 0, region->length, &second),
		   "none is granted while the invalidation waits");
	drop(first.slot);
	post_recv(b, RECEIVE_ID, NULL, 0);
	ok = cq_expect(a->send_cq, SEND_ID, IBV_WC_SUCCESS) &&
	     cq_expect(b->recv_cq, RECEIVE_ID, IBV_WC_SUCCESS) && ok;
	if (!ok)
		return false;
	ok = check(is_revoked(second.slot), "a window stays") &&
	     answers(a, region, key, EACCES);
	drop(second.slot);
	return ok;
}

bool invalidation_waits(void)
{
	struct ibv_mw_bind_info info;
	struct endpoint a, b;
	struct region region;
	struct ibv_mw *mw;
	uint32_t key;
	bool ok;

	new_pair(&a, &b);
	memset(&region, 0, sizeof(region));
	if (!region_map(&region, MEMORY_ANON, PAGES * PAGE_BYTES))
		bail("cannot map memory");
	region.addr = region.map; /* whole pages */
	region_register(&region, setup.b_dev.pd,
			ACCESS_ALL | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(setup.b_dev.pd, IBV_MW_TYPE_2);
	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	key = ibv_inc_rkey(mw->rkey);
	info = bind_info(&region, 0, region.length,
			 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	ok = exchange_empty(&a, &b, 1) &&
	     bind_type2(&b, mw, key, &info, IBV_WC_SUCCESS) &&
	     invalidates(&a, &b, &region, key);
	tap_must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw");
	region_destroy(&region);
	pair_destroy(&a, &b);
	return ok;
}

/* --- another peer -------------------------------------------------------------- */

struct change {
	struct endpoint a;
	struct region region;
	atomic_bool stop;
	atomic_uint granted;
	uint32_t slot[GRANTED];
};

static void *import_all_the_time(void *argument)
{
	struct change *change = argument;
	struct mic_window_import req;

	unsigned int granted = 0;

	while (!atomic_load(&change->stop) && granted < GRANTED) {
		if (import(&change->a, &change->region, change->region.mr->rkey,
			   0, PAGE_BYTES, &req))
			continue;
		change->slot[granted++] = req.slot;
		atomic_store(&change->granted, granted);
	}
	return NULL;
}

static bool first_is_granted(struct change *change)
{
	uint64_t end = deadline();

	while (!atomic_load(&change->granted)) {
		if (now_ms() > end)
			return false;
		sched_yield();
	}
	return true;
}

/* No window of the first peer is left when there is the second. */
static bool change_once(struct change *change, const struct endpoint *peers)
{
	pthread_t thread;
	unsigned int i;
	bool ok = true;

	connect_to(&change->a, &peers[0]);
	atomic_store(&change->granted, 0);
	atomic_store(&change->stop, false);
	if (pthread_create(&thread, NULL, import_all_the_time, change))
		bail("pthread_create fails");
	ok = check(first_is_granted(change), "no window is granted");
	connect_to(&change->a, &peers[1]);
	sched_yield();
	atomic_store(&change->stop, true);
	pthread_join(thread, NULL);
	for (i = 0; i < atomic_load(&change->granted); i++) {
		ok = check(is_revoked(change->slot[i]),
			   "a window of the first peer is valid") &&
		     ok;
		drop(change->slot[i]);
	}
	return ok;
}

bool changes_peer(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct endpoint peers[2];
	struct change change;
	unsigned int i;
	bool ok = true;

	memset(&change, 0, sizeof(change));
	new_region(&change.region, setup.b_dev.pd);
	endpoint_create(&change.a, &setup.a_dev, &options);
	address = endpoint_address(&change.a);
	/* the second peer is in a domain where the key means nothing */
	endpoint_create(&peers[0], &setup.b_dev, &options);
	options.pd = ibv_alloc_pd(setup.b_dev.ctx);
	if (!options.pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	endpoint_create(&peers[1], &setup.b_dev, &options);
	for (i = 0; i < 2; i++)
		endpoint_connect(&peers[i], &address);
	for (i = 0; i < rounds && ok; i++)
		ok = change_once(&change, peers);
	endpoint_destroy(&change.a);
	endpoint_destroy(&peers[0]);
	endpoint_destroy(&peers[1]);
	ibv_dealloc_pd(options.pd);
	region_destroy(&change.region);
	return ok;
}
