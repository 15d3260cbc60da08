// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What takes as long as a process makes it is not done with locks that others want: a
 * window is taken out of the mappings of its file with no mutex of the modules held but
 * that of the file, and its slot is had with none. Which ones are held probes of the
 * kernel's functions for locks tell.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/mic-abi.h>

#include "bind.h"
#include "probes.h"
#include "setup.h"
#include "tap.h"
#include "windows_file.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum {
	WINDOWS = 20, /* more than are taken out of the mappings one by one */
	FEW = 3,
	MAPS = 8, /* of each */
	MOST_HELD = 64,
	NAME_BYTES = 64,
	MEMORY_BYTES = 16 * PAGE_BYTES,
	RECEIVE_ID = 1,
	SEND_ID = 2,
	RIGHTS = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
};

static struct setup setup;
static struct region memory;

/* --- the trace ---------------------------------------------------------------- */

static const struct probe probes[] = {
	{ "lock", "mutex_lock" },
	{ "lock_nested", "mutex_lock_nested" },
	{ "unlock", "mutex_unlock" },
	{ "zap", "unmap_mapping_range" },
	{ "slot", "ib_mic:mic_windows_take_slot" },
};

/* A kernel has one of the first two. */
enum { LEAST_PROBES = COUNT(probes) - 1 };

/* What was seen: how often, and how many mutexes were held at most. */
struct seen {
	unsigned int zaps;
	unsigned int zap_held;
	unsigned int slots;
	unsigned int slot_held;
};

struct held {
	unsigned int count;
	char thread[MOST_HELD][NAME_BYTES];
	char lock[MOST_HELD][NAME_BYTES];
};

static void held_add(struct held *held, const char *thread, const char *lock)
{
	if (held->count == MOST_HELD)
		bail("more than %d mutexes are held", MOST_HELD);
	strcpy(held->thread[held->count], thread);
	strcpy(held->lock[held->count++], lock);
}

static void held_del(struct held *held, const char *thread, const char *lock)
{
	unsigned int i, last = held->count - 1;

	for (i = 0; i < held->count; i++)
		if (!strcmp(held->thread[i], thread) &&
		    !strcmp(held->lock[i], lock))
			break;
	if (i == held->count)
		return;
	memmove(held->thread[i], held->thread[last], NAME_BYTES);
	memmove(held->lock[i], held->lock[last], NAME_BYTES);
	held->count--;
}

static unsigned int held_by(const struct held *held, const char *thread)
{
	unsigned int i, count = 0;

	for (i = 0; i < held->count; i++)
		count += !strcmp(held->thread[i], thread);
	return count;
}

static void note(unsigned int *count, unsigned int *most, unsigned int held)
{
	++*count;
	if (held > *most)
		*most = held;
}

struct watch {
	struct seen *seen;
	struct held held;
};

static void add_line(void *to, const char *line)
{
	struct watch *watch = to;
	struct seen *seen = watch->seen;
	struct held *held = &watch->held;
	char thread[NAME_BYTES], lock[NAME_BYTES], caller[NAME_BYTES];
	const char *at = strstr(line, " lock=");
	bool ours;

	if (!at || sscanf(line, " %63s", thread) != 1 ||
	    sscanf(at, " lock=%63s caller=%63s", lock, caller) != 2)
		return;
	ours = strstr(at, "[ib_mic]");
	if (strstr(line, " unlock: "))
		held_del(held, thread, lock);
	else if (ours && strstr(line, " zap: "))
		note(&seen->zaps, &seen->zap_held, held_by(held, thread));
	else if (ours && strstr(line, " slot: "))
		note(&seen->slots, &seen->slot_held, held_by(held, thread));
	else if (ours)
		held_add(held, thread, lock);
}

static bool trace_off(struct seen *seen)
{
	struct watch watch = { .seen = seen };
	bool whole;

	memset(seen, 0, sizeof(*seen));
	whole = probes_off(add_line, &watch);
	tap_note("%u times out of mappings, with %u mutexes; %u slots, with %u",
		 seen->zaps, seen->zap_held, seen->slots, seen->slot_held);
	return whole;
}

/* --- windows ------------------------------------------------------------------- */

/* A memory window of type 2, and what its peer has mapped by it. */
struct stage {
	struct endpoint a;
	struct endpoint b;
	struct ibv_mw *mw;
	uint32_t key;
	unsigned int count;
	struct mic_window_import req[WINDOWS];
	volatile uint8_t *map[WINDOWS][MAPS];
};

static int import(const struct endpoint *ep, uint32_t key,
		  struct mic_window_import *req)
{
	*req = (struct mic_window_import){
		.qpn = ep->qp->qp_num,
		.rkey = key,
		.access = IBV_ACCESS_REMOTE_WRITE,
	};
	return import_window(req);
}

static void stage_open(struct stage *stage, unsigned int count)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_mw_bind_info info = bind_info(&memory, 0, memory.length,
						 RIGHTS);
	unsigned int i, j;
	int err;

	pair_create(&stage->a, &setup.a_dev, &stage->b, &setup.b_dev, &options);
	tap_must(exchange_empty(&stage->a, &stage->b, 1), "no connection");
	stage->mw = ibv_alloc_mw(setup.b_dev.pd, IBV_MW_TYPE_2);
	if (!stage->mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	stage->key = ibv_inc_rkey(stage->mw->rkey);
	tap_must(bind_type2(&stage->b, stage->mw, stage->key, &info,
			    IBV_WC_SUCCESS),
		 "it is not bound");
	stage->count = count;
	for (i = 0; i < count; i++) {
		err = import(&stage->a, stage->key, &stage->req[i]);
		if (err)
			bail("MIC_IOC_IMPORT: %s", strerror(err));
		for (j = 0; j < MAPS; j++) {
			stage->map[i][j] = map_file(stage->req[i].offset,
						    PAGE_BYTES,
						    PROT_READ | PROT_WRITE);
			*stage->map[i][j] = 1;
		}
	}
}

static void stage_close(struct stage *stage)
{
	unsigned int i, j;

	for (i = 0; i < stage->count; i++) {
		for (j = 0; j < MAPS; j++)
			munmap((void *)stage->map[i][j], PAGE_BYTES);
		tap_must(drop(stage->req[i].slot), "MIC_IOC_DROP");
	}
	tap_must(!ibv_dealloc_mw(stage->mw), "ibv_dealloc_mw");
	pair_destroy(&stage->a, &stage->b);
}

static bool all_end(struct stage *stage)
{
	unsigned int i, j;

	memory.addr[0] = 2;
	for (i = 0; i < stage->count; i++)
		for (j = 0; j < MAPS; j++) {
			*stage->map[i][j] = 3;
			if (!check(is_revoked(stage->req[i].slot),
				   "window %u is valid", i) ||
			    !check(memory.addr[0] == 2, "window %u is there",
				   i))
				return false;
		}
	return true;
}

/* Taken out of the mappings, with the file's mutex alone. */
static bool ends_unlocked(struct stage *stage, bool ok)
{
	struct seen seen;

	ok = trace_off(&seen) && ok && all_end(stage) &&
	     check(seen.zaps, "nothing is taken out of the mappings") &&
	     check(seen.zap_held == 1, "%u mutexes are held", seen.zap_held);
	stage_close(stage);
	return ok;
}

static bool by_peer(unsigned int count)
{
	struct ibv_send_wr wr = send_wr(SEND_ID, IBV_WR_SEND_WITH_INV, NULL, 0);
	static struct stage stage;
	bool ok;

	stage_open(&stage, count);
	wr.invalidate_rkey = stage.key;
	post_recv(&stage.b, RECEIVE_ID, NULL, 0);
	probes_on();
	post_send(&stage.a, &wr);
	ok = cq_expect(stage.a.send_cq, SEND_ID, IBV_WC_SUCCESS) &&
	     cq_expect(stage.b.recv_cq, RECEIVE_ID, IBV_WC_SUCCESS);
	return ends_unlocked(&stage, ok);
}

static bool by_owner(unsigned int count)
{
	struct ibv_send_wr wr = send_wr(SEND_ID, IBV_WR_LOCAL_INV, NULL, 0);
	static struct stage stage;

	stage_open(&stage, count);
	wr.invalidate_rkey = stage.key;
	probes_on();
	post_send(&stage.b, &wr);
	return ends_unlocked(&stage, cq_expect(stage.b.send_cq, SEND_ID,
					       IBV_WC_SUCCESS));
}

static bool few_by_peer(void)
{
	return by_peer(FEW);
}

static bool many_by_peer(void)
{
	return by_peer(WINDOWS);
}

static bool few_by_owner(void)
{
	return by_owner(FEW);
}

static bool many_by_owner(void)
{
	return by_owner(WINDOWS);
}

static bool is_had_unlocked(void)
{
	static struct stage stage;
	struct mic_window_import req;
	struct seen seen;
	int err;
	bool ok;

	stage_open(&stage, 0);
	probes_on();
	err = import(&stage.a, stage.key, &req);
	ok = trace_off(&seen) &&
	     check(!err, "MIC_IOC_IMPORT: %s", strerror(err)) &&
	     check(seen.slots == 1, "%u slots are had", seen.slots) &&
	     check(!seen.slot_held, "%u mutexes are held", seen.slot_held);
	if (!err)
		drop(req.slot);
	stage_close(&stage);
	return ok;
}

/* One more than a queue pair may have; the others are in another file. */
static bool is_refused_unlocked(void)
{
	const int empty = windows_fd;
	static struct stage stage;
	struct mic_window_import req;
	struct seen seen;
	uint32_t i;
	int full, err = 0;
	bool ok;

	stage_open(&stage, 0);
	full = windows_file();
	windows_fd = full;
	for (i = 0; i < MIC_WINDOW_SLOTS && !err; i++)
		err = import(&stage.a, stage.key, &req);
	ok = check(!err, "window %u: %s", i, strerror(err));
	windows_fd = empty;
	probes_on();
	err = import(&stage.a, stage.key, &req);
	ok = trace_off(&seen) && ok &&
	     check(err == ENOSPC, "one more gives %s", strerror(err)) &&
	     check(seen.zaps, "nothing is taken out of the mappings") &&
	     check(!seen.zap_held, "%u mutexes are held", seen.zap_held);
	close(full);
	stage_close(&stage);
	return ok;
}

static const struct {
	const char *name;
	bool (*is_so)(void);
} cases[] = {
	{ "a slot is had without a lock", is_had_unlocked },
	{ "a window that is not granted is taken out of mappings without a lock",
	  is_refused_unlocked },
	{ "few windows: their peer's invalidation takes them away without a lock",
	  few_by_peer },
	{ "many windows: their peer's invalidation takes them away without a lock",
	  many_by_peer },
	{ "few windows: their owner's invalidation takes them away without a lock",
	  few_by_owner },
	{ "many windows: their owner's invalidation takes them away without a lock",
	  many_by_owner },
};

int main(int argc, char **argv)
{
	bool there = probes_open(probes, COUNT(probes), LEAST_PROBES);
	unsigned int i;

	setup_open(&setup, &argc, argv, PAGE_BYTES);
	if (!region_map(&memory, MEMORY_ANON, MEMORY_BYTES))
		bail("cannot map memory");
	memory.addr = memory.map; /* whole pages */
	region_register(&memory, setup.b_dev.pd,
			ACCESS_ALL | IBV_ACCESS_MW_BIND);
	windows_file_open();
	for (i = 0; i < COUNT(cases); i++)
		if (there)
			tap_ok(cases[i].is_so(), "%s", cases[i].name);
		else
			tap_skip("this kernel has no kprobe events", "%s",
				 cases[i].name);
	if (there)
		probes_close();
	close(windows_fd);
	region_destroy(&memory);
	setup_close(&setup);
	return tap_end();
}
