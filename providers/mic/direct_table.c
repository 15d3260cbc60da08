// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The direct path: which queue pairs take it, and the windows they use.
 *
 * The windows of a queue pair are in a table by rkey, which grows with the
 * number of them up to a limit. A key is at the place its index gives, or, if
 * that is another's, at one of the places beside it. A key for which there is
 * no window is remembered too, so that the kernel is not asked for each request.
 *
 * A window that was revoked, as its region is gone, is of no use any more, but has
 * its number and its mapping until it is dropped. That is done when there is no place
 * for another one, and before the table grows.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "direct.h"
#include "mic.h"

enum {
	TABLE_MAX = MIC_WINDOW_SLOTS,
	/* It does not become longer than that for keys without a window. */
	TABLE_REFUSED = 4096,
	/* Places where a key may be. */
	PLACES = MIC_DIRECT_FIRST,
	/* Requests that go to the kernel until it is asked again. */
	RETRY_NOT_NOW = 16,
	RETRY_SILENT = 256, /* and it took a tenth of a second to find out */
	RETRY_REFUSED = 4096,
};

/* What the environment says. */
enum micdv_path mic_direct_default_path(void)
{
	const char *value = getenv("MIC_DIRECT");

	if (value && !strcmp(value, "0"))
		return MICDV_PATH_ENGINE;
	if (value && !strcmp(value, "random"))
		return MICDV_PATH_RANDOM;
	return MICDV_PATH_DIRECT;
}

/* The windows file of a context, opened when it is first needed. */
struct mic_windows *mic_context_windows(struct mic_context *ctx)
{
	struct mic_windows *windows = atomic_load(&ctx->windows);

	if (windows)
		return windows;
	pthread_mutex_lock(&ctx->lock);
	windows = atomic_load(&ctx->windows);
	if (!windows) {
		windows = mic_windows_open(ctx->doorbell_fd);
		atomic_store(&ctx->windows, windows);
	}
	pthread_mutex_unlock(&ctx->lock);
	return windows;
}

static void init_random(struct mic_direct *direct)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	direct->random = ((uint32_t)now.tv_nsec ^ (uint32_t)now.tv_sec) | 1;
}

static bool has_direct_path(const struct mic_qp *qp)
{
	return (qp->vqp.qp.qp_type == IBV_QPT_RC ||
		qp->vqp.qp.qp_type == IBV_QPT_UC) &&
	       qp->vqp.qp.send_cq && qp->vqp.qp.pd;
}

static void set_path(struct mic_qp *qp, enum micdv_path path)
{
	struct mic_direct *direct = &qp->direct;

	direct->path = path;
	direct->on = false;
	direct->simple = false;
	if (path == MICDV_PATH_ENGINE || path == MICDV_PATH_WORKER ||
	    !has_direct_path(qp))
		return;
	direct->pd_handle = qp->vqp.qp.pd->handle;
	direct->keys = &to_mctx(qp->vqp.qp.context)->keys;
	direct->key = &mic_no_key;
	if (!direct->table) {
		direct->table = direct->first;
		direct->mask = MIC_DIRECT_FIRST - 1;
	}
	direct->on = true;
	direct->simple = path == MICDV_PATH_DIRECT && qp->sq.max_sge;
}

void mic_direct_init(struct mic_qp *qp, enum micdv_path path)
{
	init_random(&qp->direct);
	set_path(qp, path);
}

static void drop(struct mic_qp *qp, struct mic_direct_entry *entry)
{
	struct mic_context *ctx = to_mctx(qp->vqp.qp.context);

	if (entry->window.access) {
		mic_window_unmap(ctx->windows, &entry->window);
		mic_window_drop(ctx->windows, &entry->window);
		qp->direct.used--;
	}
	if (entry->rkey)
		qp->direct.taken--;
	memset(entry, 0, sizeof(*entry));
}

/* The queue pair is reset or destroyed. */
void mic_direct_reset(struct mic_qp *qp)
{
	struct mic_direct *direct = &qp->direct;
	uint32_t i;

	if (!direct->table)
		return;
	for (i = 0; i <= direct->mask; i++)
		drop(qp, &direct->table[i]);
}

static void free_table(struct mic_direct *direct,
		       struct mic_direct_entry *table)
{
	if (table != direct->first)
		free(table);
}

void mic_direct_destroy(struct mic_qp *qp)
{
	mic_direct_reset(qp);
	free_table(&qp->direct, qp->direct.table);
}

void mic_direct_set_path(struct mic_qp *qp, enum micdv_path path)
{
	mic_lock(&qp->sq.lock);
	set_path(qp, path);
	mic_unlock(&qp->sq.lock);
}

static uint64_t count_executed(const struct mic_qp *qp)
{
	const struct mic_ring_ctl *ctl = qp->sq.ctl;

	if (!qp->sq.entries)
		return 0;
	return ctl->direct[MIC_DIRECT_WRITES] + ctl->direct[MIC_DIRECT_READS] +
	       ctl->direct[MIC_DIRECT_ATOMICS];
}

void mic_direct_query(struct mic_qp *qp, struct micdv_qp_attr *attr)
{
	mic_lock(&qp->sq.lock);
	attr->path = qp->direct.path;
	attr->windows = qp->direct.used;
	attr->direct = count_executed(qp);
	attr->engine = qp->direct.engine;
	mic_unlock(&qp->sq.lock);
}

/* The i-th place where a key may be. */
static struct mic_direct_entry *place(const struct mic_direct *direct,
				      uint32_t rkey, uint32_t i)
{
	/* the table is not smaller than a group of places */
	return &direct->table[(rkey >> 8 & direct->mask) ^ i];
}

static struct mic_direct_entry *find(const struct mic_direct *direct,
				     uint32_t rkey)
{
	uint32_t i;

	for (i = 0; i < PLACES; i++)
		if (place(direct, rkey, i)->rkey == rkey)
			return place(direct, rkey, i);
	return NULL;
}

static struct mic_direct_entry *find_free(const struct mic_direct *direct,
					  uint32_t rkey)
{
	uint32_t i;

	for (i = 0; i < PLACES; i++)
		if (!place(direct, rkey, i)->rkey)
			return place(direct, rkey, i);
	return NULL;
}

/* Twice the places. */
static bool grow(struct mic_qp *qp)
{
	struct mic_direct *direct = &qp->direct;
	struct mic_direct_entry *old = direct->table, *to;
	uint32_t n = direct->mask + 1, i;

	if (n >= TABLE_MAX)
		return false;
	to = aligned_alloc(MIC_CACHE_LINE, 2 * (size_t)n * sizeof(*to));
	if (!to)
		return false;
	memset(to, 0, 2 * (size_t)n * sizeof(*to));
	direct->table = to;
	direct->mask = 2 * n - 1;
	for (i = 0; i < n; i++) {
		if (!old[i].rkey)
			continue;
		to = find_free(direct, old[i].rkey);
		if (to)
			*to = old[i];
		else
			drop(qp, &old[i]);
	}
	free_table(direct, old);
	return true;
}

static bool is_revoked(const struct mic_direct_entry *entry)
{
	return entry->window.access && mic_window_state(&entry->window);
}

/* Windows that are of no use any more are given back. */
static void sweep(struct mic_qp *qp)
{
	struct mic_direct *direct = &qp->direct;
	uint32_t i;

	for (i = 0; i <= direct->mask; i++)
		if (is_revoked(&direct->table[i]))
			drop(qp, &direct->table[i]);
}

/* Is there too little room for what is there? */
static bool is_crowded(const struct mic_direct *direct)
{
	return direct->used > direct->mask / 4 ||
	       (direct->taken > direct->mask / 4 &&
		direct->mask < TABLE_REFUSED - 1);
}

/* Of those where a key may be, the one that is missed least. */
static struct mic_direct_entry *find_victim(const struct mic_direct *direct,
					    uint32_t rkey)
{
	uint32_t i;

	for (i = 0; i < PLACES; i++)
		if (is_revoked(place(direct, rkey, i)))
			return place(direct, rkey, i);
	return place(direct, rkey, 0);
}

/*
 * A place for a key that has none. If need be another one loses its. All are looked at
 * only where the table grows if none of them is revoked, that is seldom.
 */
static struct mic_direct_entry *make_place(struct mic_qp *qp, uint32_t rkey)
{
	struct mic_direct *direct = &qp->direct;
	struct mic_direct_entry *entry = find_free(direct, rkey);

	if (!entry && is_crowded(direct) && direct->mask < TABLE_MAX - 1) {
		sweep(qp);
		entry = find_free(direct, rkey);
		if (!entry && is_crowded(direct) && grow(qp))
			entry = find_free(direct, rkey);
	}
	if (entry)
		return entry;
	entry = find_victim(direct, rkey);
	drop(qp, entry);
	return entry;
}

static int import(struct mic_qp *qp, uint32_t rkey, struct mic_window *window)
{
	struct mic_windows *windows;
	struct mic_window_import req = {
		.qpn = qp->vqp.qp.qp_num,
		.rkey = rkey,
		.access = MIC_WINDOW_BRIEF,
	};

	windows = mic_context_windows(to_mctx(qp->vqp.qp.context));
	if (!windows)
		return errno;
	return mic_window_import(windows, &req, window);
}

static uint32_t retry_after(int err)
{
	switch (err) {
	case ENOTCONN:
		return RETRY_NOT_NOW;
	case ETIMEDOUT:
		return RETRY_SILENT;
	default:
		return RETRY_REFUSED;
	}
}

static struct mic_window *fill(struct mic_qp *qp,
			       struct mic_direct_entry *entry, uint32_t rkey)
{
	int err;

	err = import(qp, rkey, &entry->window);
	if (err == ENOSPC || err == ENOMEM) {
		sweep(qp);
		err = import(qp, rkey, &entry->window);
	}
	entry->rkey = rkey;
	qp->direct.taken++;
	if (err) {
		entry->window.access = 0;
		entry->retry = retry_after(err);
		return NULL;
	}
	qp->direct.used++;
	return mic_window_state(&entry->window) ? NULL : &entry->window;
}

struct mic_window *mic_direct_window(struct mic_qp *qp, uint32_t rkey)
{
	struct mic_direct_entry *entry = find(&qp->direct, rkey);

	if (!rkey)
		return NULL;
	if (!entry)
		return fill(qp, make_place(qp, rkey), rkey);
	if (entry->window.access && !mic_window_state(&entry->window))
		return &entry->window;
	if (entry->retry && --entry->retry)
		return NULL;
	/* there was none, or it was revoked: ask anew */
	drop(qp, entry);
	return fill(qp, entry, rkey);
}
