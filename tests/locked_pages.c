// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Who lets go of a page of an on-demand region that was written has to mark it under its
 * lock, which somebody else may have: those pages are let go later, each of them once.
 *
 * usage: locked_pages MODULE: the file of mic_locked_test, which locks pages
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "setup.h"
#include "tap.h"
#include "text.h"
#include "work.h"

enum {
	MOST_PAGES = 64,
	FILL_BYTE = 0x5c,
};

struct stage {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	const char *module;
};

/* Pages, and which of them are locked, by bits. */
static const struct row {
	unsigned int pages;
	unsigned long locked;
} rows[] = {
	{ 1, 0x1 },	      { 2, 0x1 },  { 2, 0x2 },
	{ 2, 0x3 },	      { 6, 0x8 },  { 6, 0x15 },
	{ 6, 0x2a },	      { 6, 0x3f }, { MOST_PAGES, 1UL << 63 },
	{ MOST_PAGES, ~0UL },
};

/* How many pins of user pages there are in this machine. */
static int64_t pins(void)
{
	char *text, *at, *line;
	int64_t acquired = 0, released = 0;
	int found = 0;

	/* each processor has counted by itself */
	write_file("/proc/sys/vm/stat_refresh", "1");
	text = text_of_file("/proc/vmstat");
	if (!text)
		bail("vmstat: %s", strerror(errno));
	at = text;
	while ((line = next_line(&at)))
		found += sscanf(line, "nr_foll_pin_acquired %" SCNd64,
				&acquired) == 1 ||
			 sscanf(line, "nr_foll_pin_released %" SCNd64,
				&released) == 1;
	free(text);
	if (found != 2)
		bail("pins are not counted");
	return acquired - released;
}

static bool are_let_go(int64_t before)
{
	const uint64_t end = deadline();
	int64_t after;

	while ((after = pins()) != before && now_ms() < end)
		usleep(10000);
	return check(after == before, "%" PRId64 " pins more than before",
		     after - before);
}

static enum ibv_wc_status transfer(struct stage *stage,
				   enum ibv_wr_opcode opcode,
				   struct ibv_sge sge, uint64_t addr,
				   uint32_t rkey)
{
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	send_wr_aim(&wr, addr, rkey);
	post_send(&stage->a, &wr);
	cq_wait(stage->a.send_cq, &wc);
	return wc.status;
}

/* The requester's memory is written by a READ, the responder's by a WRITE. */
static bool is_written(struct stage *stage, bool read, const struct row *row)
{
	struct setup *setup = &stage->setup;
	const struct region *from = read ? &setup->b_mem : &setup->a_mem;
	size_t bytes = row->pages * PAGE_BYTES;
	struct ibv_mr *mr;
	enum ibv_wc_status status;
	uint8_t *addr;
	bool good;

	addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (addr == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	memset(addr, 1, bytes);
	mr = ibv_reg_mr(read ? setup->a_dev.pd : setup->b_dev.pd, addr, bytes,
			ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	tap_must(mr, "ibv_reg_mr: %s", strerror(errno));
	good = command_runs("insmod %s pid=%d address=%lu pages=%lu",
			    stage->module, getpid(), (unsigned long)addr,
			    row->locked);
	if (!good)
		goto unmap;
	if (read)
		status = transfer(stage, IBV_WR_RDMA_READ,
				  (struct ibv_sge){ (uintptr_t)addr, bytes,
						    mr->lkey },
				  from->rdma_addr, from->mr->rkey);
	else
		status = transfer(stage, IBV_WR_RDMA_WRITE,
				  region_sge(from, 0, bytes), (uintptr_t)addr,
				  mr->rkey);
	good = command_runs("rmmod mic_locked_test") &&
	       check(!status, "status %s", ibv_wc_status_str(status)) &&
	       check(!memcmp(addr, from->addr, bytes), "other bytes");
unmap:
	tap_must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	munmap(addr, bytes);
	return good;
}

static void locked(struct stage *stage, bool read, const struct row *row)
{
	const int64_t before = pins();

	tap_ok(is_written(stage, read, row) && are_let_go(before),
	       "%s: %u pages, locked %#lx", read ? "READ" : "WRITE", row->pages,
	       row->locked);
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	static struct stage stage;
	unsigned int i;

	if (argc < 2)
		bail("usage: locked_pages MODULE");
	setup_open(&stage.setup, &argc, argv, MOST_PAGES * PAGE_BYTES);
	stage.module = argv[1];
	memset(stage.setup.a_mem.addr, FILL_BYTE, MOST_PAGES * PAGE_BYTES);
	memset(stage.setup.b_mem.addr, FILL_BYTE, MOST_PAGES * PAGE_BYTES);
	pair_create(&stage.a, &stage.setup.a_dev, &stage.b, &stage.setup.b_dev,
		    &options);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		locked(&stage, false, &rows[i]);
		locked(&stage, true, &rows[i]);
	}
	pair_destroy(&stage.a, &stage.b);
	setup_close(&stage.setup);
	return tap_end();
}
