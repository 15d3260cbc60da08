// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What micdv_map_window() refuses.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "micdv.h"
#include "tap.h"

enum { GUESSES = 8, RELEASES = 1000 };

int map(struct ibv_qp *qp, uint64_t addr, uint32_t rkey, size_t length,
	int prot)
{
	struct micdv_window *window;

	errno = 0;
	window = micdv_map_window(qp, addr, rkey, length, prot);
	if (!window)
		return errno;
	return micdv_unmap_window(window);
}

static int map_region(const struct endpoint *ep, const struct region *region,
		      int prot)
{
	return map(ep->qp, region->rdma_addr, region->mr->rkey, region->length,
		   prot);
}

/* --- micdv_map_window: who may ask, and when --------------------------------- */

static bool maps(const struct pair *pair, int prot, int expected)
{
	return is_error(map_region(&pair->a, &setup.b_mem, prot), expected);
}

static bool needs_rts(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct pair pair;
	bool ok;

	open_pair(&pair, IBV_QPT_RC, ACCESS_ALL);
	address = endpoint_address(&pair.b);
	ok = maps(&pair, RW, 0);
	endpoint_go(&pair.a, IBV_QPS_SQD);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	endpoint_go(&pair.a, IBV_QPS_ERR);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	endpoint_destroy(&pair.a);
	endpoint_create(&pair.a, &setup.a_dev, &options);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	endpoint_to_init(&pair.a);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	endpoint_to_rtr(&pair.a, &address);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	close_pair(&pair);
	return ok;
}

static bool needs_ready_peer(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct pair pair;
	bool ok;

	endpoint_create(&pair.a, &setup.a_dev, &options);
	endpoint_create(&pair.b, &setup.b_dev, &options);
	address = endpoint_address(&pair.b);
	endpoint_connect(&pair.a, &address);
	ok = maps(&pair, RW, ENOTCONN);
	endpoint_to_init(&pair.b);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	address = endpoint_address(&pair.a);
	endpoint_to_rtr(&pair.b, &address);
	endpoint_to_rts(&pair.b);
	ok = maps(&pair, RW, 0) && ok;
	endpoint_go(&pair.b, IBV_QPS_ERR);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	endpoint_destroy(&pair.b);
	ok = maps(&pair, RW, ENOTCONN) && ok;
	endpoint_destroy(&pair.a);
	return ok;
}

static bool refuses_datagrams(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct endpoint ep;
	bool ok;

	endpoint_create(&ep, &setup.a_dev, &options);
	endpoint_connect(&ep, NULL);
	ok = is_error(map_region(&ep, &setup.b_mem, PROT_READ), EOPNOTSUPP);
	endpoint_destroy(&ep);
	return ok;
}

/* --- micdv_map_window: keys --------------------------------------------------- */

/* With a connection of its own, as wrong keys are counted. */
static bool key_gives(uint64_t addr, uint32_t rkey, int prot, int expected)
{
	struct pair pair;
	bool ok;

	open_pair(&pair, IBV_QPT_RC, ACCESS_ALL);
	ok = is_error(map(pair.a.qp, addr, rkey, PAGE_BYTES, prot), expected);
	close_pair(&pair);
	return ok;
}

static bool refuses_wrong_keys(void)
{
	const uint64_t addr = setup.b_mem.rdma_addr;
	const uint32_t rkey = setup.b_mem.mr->rkey;

	return key_gives(addr, rkey, RW, 0) && key_gives(addr, 0, RW, EACCES) &&
	       key_gives(addr, rkey ^ 1, RW, EACCES) &&
	       key_gives(addr, rkey ^ 1U << 31, RW, EACCES) &&
	       key_gives(addr, UINT32_MAX, RW, EACCES);
}

static bool refuses_gone_key(void)
{
	struct ibv_mr *mr = ibv_reg_mr(setup.b_dev.pd, setup.b_mem.map, BYTES,
				       ACCESS_ALL);
	uint32_t rkey;

	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	rkey = mr->rkey;
	if (ibv_dereg_mr(mr))
		bail("ibv_dereg_mr fails");
	return key_gives((uintptr_t)setup.b_mem.map, rkey, RW, EACCES);
}

/* What a region with @access in @pd gives, to read and to write. */
static bool region_gives(struct ibv_pd *pd, int access, int reading,
			 int writing)
{
	const uint64_t addr = (uintptr_t)setup.b_mem.map;
	struct ibv_mr *mr = ibv_reg_mr(pd, setup.b_mem.map, BYTES, access);
	bool ok;

	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	ok = key_gives(addr, mr->rkey, PROT_READ, reading) &&
	     key_gives(addr, mr->rkey, RW, writing);
	ibv_dereg_mr(mr);
	return ok;
}

static bool refuses_rights(void)
{
	struct ibv_pd *pd = setup.b_dev.pd;

	return region_gives(pd, IBV_ACCESS_LOCAL_WRITE, EACCES, EACCES) &&
	       region_gives(pd, IBV_ACCESS_REMOTE_READ, 0, EACCES) &&
	       region_gives(pd,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
			    EACCES, EACCES) &&
	       region_gives(pd, ACCESS_ALL, 0, 0);
}

static bool refuses_other_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(setup.b_dev.ctx);
	bool ok;

	if (!pd)
		bail("ibv_alloc_pd: %s", strerror(errno));
	ok = region_gives(pd, ACCESS_ALL, EACCES, EACCES);
	ibv_dealloc_pd(pd);
	return ok;
}

static bool peer_gives(enum ibv_qp_type type, unsigned int access, int reading,
		       int writing)
{
	struct pair pair;
	bool ok;

	open_pair(&pair, type, access);
	ok = maps(&pair, PROT_READ, reading) && maps(&pair, RW, writing);
	close_pair(&pair);
	return ok;
}

static bool refuses_peer_rights(void)
{
	return peer_gives(IBV_QPT_RC, 0, EACCES, EACCES) &&
	       peer_gives(IBV_QPT_RC, IBV_ACCESS_REMOTE_READ, 0, EACCES) &&
	       peer_gives(IBV_QPT_RC, IBV_ACCESS_REMOTE_WRITE, EACCES, EACCES);
}

/* A few wrong keys, then the right one is refused, until its peer is reset. */
static bool counts_wrong_keys(void)
{
	const uint64_t addr = setup.b_mem.rdma_addr;
	const uint32_t rkey = setup.b_mem.mr->rkey;
	struct pair pair;
	unsigned int i;
	bool ok = true;

	open_pair(&pair, IBV_QPT_RC, ACCESS_ALL);
	for (i = 0; i < GUESSES && ok; i++)
		ok = maps(&pair, RW, 0) &&
		     is_error(map(pair.a.qp, addr, rkey ^ 1, 1, RW), EACCES);
	ok = ok && maps(&pair, RW, EACCES) && maps(&pair, PROT_READ, EACCES);
	endpoint_go(&pair.a, IBV_QPS_RESET);
	endpoint_go(&pair.b, IBV_QPS_RESET);
	pair_connect(&pair.a, &pair.b);
	ok = ok && maps(&pair, RW, 0);
	close_pair(&pair);
	return ok;
}

/* --- micdv_map_window: ranges and memory --------------------------------------- */

static bool refuses_ranges(const struct pair *pair)
{
	static const struct {
		int64_t offset;
		size_t length;
	} ranges[] = { { BYTES, 1 },	    { 1, BYTES },      { -1, 1 },
		       { -1, BYTES },	    { 0, BYTES + 1 },  { 0, SIZE_MAX },
		       { 0, 1ULL << 40 },   { 100, SIZE_MAX }, { INT64_MIN, 1 },
		       { INT64_MAX, BYTES } };
	unsigned int i;

	for (i = 0; i < COUNT(ranges); i++)
		if (!check(is_error(
				   map(pair->a.qp,
				       setup.b_mem.rdma_addr + ranges[i].offset,
				       setup.b_mem.mr->rkey, ranges[i].length,
				       PROT_READ),
				   ERANGE),
			   "that was %zu bytes at %" PRId64, ranges[i].length,
			   ranges[i].offset))
			return false;
	return is_error(map(pair->a.qp, setup.b_mem.rdma_addr + BYTES - 1,
			    setup.b_mem.mr->rkey, 1, RW),
			0);
}

static bool refuses_arguments(const struct pair *pair)
{
	static const int prots[] = { PROT_NONE,	     PROT_WRITE,
				     PROT_EXEC,	     PROT_READ | PROT_EXEC,
				     RW | PROT_EXEC, -1 };
	const uint64_t addr = setup.b_mem.rdma_addr;
	const uint32_t rkey = setup.b_mem.mr->rkey;
	unsigned int i;

	for (i = 0; i < COUNT(prots); i++)
		if (!maps(pair, prots[i], EINVAL))
			return false;
	return is_error(map(pair->a.qp, addr, rkey, 0, PROT_READ), EINVAL);
}

/* What is at the place stays, and the next try works. */
static bool refuses_place(const struct pair *pair)
{
	const uint64_t addr = setup.b_mem.rdma_addr;
	const uint32_t rkey = setup.b_mem.mr->rkey;
	uint8_t *mem = mmap(NULL, 2 * BYTES, RW, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	uint8_t *place = mem + addr % PAGE_BYTES;
	struct micdv_window *window;
	unsigned int i;
	bool ok = true;

	if (mem == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	memset(mem, 7, 2 * BYTES);
	for (i = 1; i < PAGE_BYTES && ok; i++) {
		errno = 0;
		window = micdv_map_window_at(pair->a.qp, addr, rkey, BYTES, RW,
					     place + i);
		ok = check(!window, "%u bytes beside it: a window", i) &&
		     is_error(errno, EINVAL);
	}
	ok = ok && all_are(mem, 2 * BYTES, 7);
	window = micdv_map_window_at(pair->a.qp, addr, rkey, BYTES, RW, place);
	ok = check(window && window->addr == place, "no window there") && ok;
	if (window)
		micdv_unmap_window(window);
	munmap(mem, 2 * BYTES);
	return ok;
}

/* In two parts, and something else is there before the window is given back. */
static bool release_one(const struct pair *pair, uint64_t addr, uint32_t rkey)
{
	const size_t half = PAGE_BYTES;
	struct micdv_window *window;
	uint8_t *start, *mem;
	bool ok;

	window = micdv_map_window(pair->a.qp, addr, rkey, BYTES, RW);
	if (!check(window, "no window: %s", strerror(errno)))
		return false;
	start = (uint8_t *)window->addr - addr % PAGE_BYTES;
	ok = check(!munmap(start + half, addr % PAGE_BYTES + BYTES - half) &&
			   !munmap(start, half),
		   "munmap: %s", strerror(errno));
	mem = mmap(start, half, RW,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (mem != start)
		bail("mmap: %s", strerror(errno));
	memset(mem, 7, half);
	ok = is_error(micdv_release_window(window), 0) && ok &&
	     all_are(mem, half, 7);
	munmap(mem, half);
	return ok;
}

static bool releases(const struct pair *pair)
{
	unsigned int i;

	for (i = 0; i < RELEASES; i++)
		if (!check(release_one(pair, setup.b_mem.rdma_addr,
				       setup.b_mem.mr->rkey),
			   "window %u", i))
			return false;
	return true;
}

static bool refuses_on_demand(const struct pair *pair)
{
	struct ibv_mr *mr = ibv_reg_mr(setup.b_dev.pd, setup.b_mem.map, BYTES,
				       ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	bool ok;

	if (!mr)
		bail("no region on demand: %s", strerror(errno));
	ok = is_error(map(pair->a.qp, (uintptr_t)setup.b_mem.map, mr->rkey,
			  BYTES, PROT_READ),
		      EOPNOTSUPP);
	ibv_dereg_mr(mr);
	return ok;
}

static bool map_without_memory(const struct pair *pair)
{
	struct rlimit before;
	int error;

	if (!maps(pair, RW, 0))
		return false;
	limit_memory(&before);
	error = map_region(&pair->a, &setup.b_mem, RW);
	setrlimit(RLIMIT_AS, &before);
	return is_error(error, ENOMEM) && maps(pair, RW, 0);
}

void run_map(void)
{
	struct pair pair;

	tap_ok(needs_rts(), "micdv_map_window: not in RTS: ENOTCONN");
	tap_ok(needs_ready_peer(),
	       "micdv_map_window: the peer not ready, or gone: ENOTCONN");
	tap_ok(refuses_datagrams(), "micdv_map_window: UD: EOPNOTSUPP");
	tap_ok(peer_gives(IBV_QPT_UC, ACCESS_ALL, EACCES, EACCES),
	       "micdv_map_window: UC, which has no READ: EACCES");
	tap_ok(refuses_wrong_keys(), "micdv_map_window: no such key: EACCES");
	tap_ok(refuses_gone_key(),
	       "micdv_map_window: a key that is gone: EACCES");
	tap_ok(refuses_other_pd(),
	       "micdv_map_window: a key of another domain: EACCES");
	tap_ok(refuses_rights(),
	       "micdv_map_window: rights that the key does not have: EACCES");
	tap_ok(refuses_peer_rights(),
	       "micdv_map_window: nor the peer's queue pair: EACCES");
	tap_ok(counts_wrong_keys(),
	       "micdv_map_window: %u wrong keys before: EACCES", GUESSES);
	open_pair(&pair, IBV_QPT_RC, ACCESS_ALL);
	tap_ok(refuses_ranges(&pair),
	       "micdv_map_window: not within the key's bounds: ERANGE");
	tap_ok(refuses_arguments(&pair),
	       "micdv_map_window: no length, or another prot: EINVAL");
	tap_ok(refuses_place(&pair),
	       "micdv_map_window_at: where pages do not meet: EINVAL");
	tap_ok(releases(&pair),
	       "micdv_release_window: what is mapped there by then stays");
	tap_ok(refuses_on_demand(&pair),
	       "micdv_map_window: memory on demand: EOPNOTSUPP");
	tap_ok(map_without_memory(&pair),
	       "micdv_map_window: no address space: ENOMEM");
	close_pair(&pair);
}
