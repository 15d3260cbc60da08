// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A region is registered, but whoever is to be told of it can't be: the second half of
 * the answer is on a page that does not come, and then is gone. The first half has its
 * lkey, to which a window is bound meanwhile. The registration fails, and leaves nothing
 * behind; that a window is bound must not be in the way.
 */
#include <errno.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bind.h"
#include "setup.h"
#include "tap.h"
#include "withhold.h"
#include "work.h"

enum { FIRST_HALF = 8 }; /* the region's handle and its lkey */

struct command {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_reg_mr reg;
};

struct stage {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	uint8_t *pages; /* the answer is on the end of the first one */
	int withheld;
	int error; /* of the registration */
};

static struct ib_uverbs_reg_mr_resp *answer(const struct stage *stage)
{
	return (void *)(stage->pages + PAGE_BYTES - FIRST_HALF);
}

static void *registers(void *arg)
{
	struct stage *stage = arg;
	const struct region *memory = &stage->setup.b_mem;
	struct command command = {
		.hdr = {
			.command = IB_USER_VERBS_CMD_REG_MR,
			.in_words = sizeof(command) / 4,
			.out_words = sizeof(struct ib_uverbs_reg_mr_resp) / 4,
		},
		.reg = {
			.response = (uintptr_t)answer(stage),
			.start = (uintptr_t)memory->addr,
			.length = PAGE_BYTES,
			.hca_va = (uintptr_t)memory->addr,
			.pd_handle = stage->setup.b_dev.pd->handle,
			.access_flags = ACCESS_ALL | IBV_ACCESS_MW_BIND,
		},
	};

	if (write(stage->setup.b_dev.ctx->cmd_fd, &command, sizeof(command)) <
	    0)
		stage->error = errno;
	return NULL;
}

static void stage_open(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	stage->pages = mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stage->pages == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	memset(stage->pages, 0, PAGE_BYTES);
	stage->withheld = withhold(stage->pages + PAGE_BYTES, PAGE_BYTES);
	if (stage->withheld < 0)
		bail("no page can be withheld");
	pair_create(&stage->a, &stage->setup.a_dev, &stage->b,
		    &stage->setup.b_dev, &options);
}

static void stage_close(struct stage *stage)
{
	pair_destroy(&stage->a, &stage->b);
	munmap(stage->pages, PAGE_BYTES);
}

static uint32_t wait_for_key(const struct stage *stage)
{
	const _Atomic(uint32_t) *lkey = (void *)&answer(stage)->lkey;
	unsigned int tries;

	for (tries = 0; tries < 10000 && !atomic_load(lkey); tries++)
		usleep(1000);
	return atomic_load(lkey);
}

/* The page goes, and so whoever waits for it goes on. */
static void let_go(struct stage *stage, pthread_t thread)
{
	munmap(stage->pages + PAGE_BYTES, PAGE_BYTES);
	close(stage->withheld);
	pthread_join(thread, NULL);
}

static bool bound_meanwhile(struct stage *stage)
{
	struct ibv_mw *mw = ibv_alloc_mw(stage->setup.b_dev.pd, IBV_MW_TYPE_2);
	struct ibv_mr early = *stage->setup.b_mem.mr;
	struct ibv_mw_bind_info info;
	pthread_t thread;
	bool ok;

	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	if (pthread_create(&thread, NULL, registers, stage))
		bail("no thread");
	early.lkey = wait_for_key(stage);
	info = (struct ibv_mw_bind_info){
		.mr = &early,
		.addr = (uintptr_t)stage->setup.b_mem.addr,
		.length = 8,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	ok = check(early.lkey, "no key is told") &&
	     bind_type2(&stage->b, mw, ibv_inc_rkey(mw->rkey), &info,
			IBV_WC_MW_BIND_ERR);
	let_go(stage, thread);
	return check(stage->error == EFAULT, "registering gives %s",
		     strerror(stage->error)) &&
	       check(!ibv_dealloc_mw(mw), "the window stays") && ok;
}

int main(int argc, char **argv)
{
	struct stage stage = { .error = 0 };

	setup_open(&stage.setup, &argc, argv, PAGE_BYTES);
	stage_open(&stage);
	tap_ok(bound_meanwhile(&stage),
	       "a window on a region whose registration fails");
	stage_close(&stage);
	setup_close(&stage.setup);
	return tap_end();
}
