// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * debugfs: each queue pair with its state, the sums of the keys; under a new
 * name of the device too, and while queue pairs come and go.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "observe.h"
#include "tap.h"
#include "text.h"

#define DEBUGFS "/sys/kernel/debug"
#define NEW_NAME "observed0"

enum { PATH_BYTES = 128, LINES = 6, READS = 4 };

/* A queue pair's lines: the first names it, the others are indented. */
struct block {
	int count;
	char line[LINES][LINE_BYTES];
};

static char *read_debugfs(const char *device, const char *file)
{
	char path[PATH_BYTES], *text;

	snprintf(path, sizeof(path), DEBUGFS "/ib_mic/%s/%s", device, file);
	text = text_of_file(path);
	if (!text)
		check(false, "%s: %s", path, strerror(errno));
	return text;
}

static bool read_block(const char *device, uint32_t qpn, struct block *block)
{
	char *text = read_debugfs(device, "qps"), *rest = text, *line;
	bool inside = false;

	block->count = 0;
	while (text && (line = next_line(&rest))) {
		if (*line != ' ')
			inside = number_after(line, "qp") == qpn;
		if (inside && block->count < LINES)
			snprintf(block->line[block->count++], LINE_BYTES, "%s",
				 line);
	}
	free(text);
	return check(block->count, "%s: QP %u is missing", device, qpn);
}

/* The line that starts with @name. */
static const char *line_of(const struct block *block, const char *name)
{
	size_t length = strlen(name);
	int i;

	for (i = 0; i < block->count; i++)
		if (!strncmp(block->line[i] + strspn(block->line[i], " "), name,
			     length))
			return block->line[i];
	return "";
}

static bool qp_shown(struct setup *setup)
{
	uint32_t qpn = setup->a.qp->qp_num, peer = setup->b.qp->qp_num;
	struct block block;
	const char *line;

	if (!exchange(setup, IBV_WR_SEND, 64, 3) ||
	    !read_block(setup->a_dev.name, qpn, &block))
		return false;
	line = line_of(&block, "qp");
	if (!word_is(line, "type", "RC") || !word_is(line, "state", "RTS") ||
	    !word_is(line, "owner", "user"))
		return false;
	line = line_of(&block, "peer");
	if (!number_is(line, "peer", peer) ||
	    !number_is(line, "mtu", device_mtu(&setup->a_dev)))
		return false;
	line = line_of(&block, "sq");
	if (!number_is(line, "entries", 64) ||
	    !number_is(line, "producer", 3) ||
	    !number_is(line, "consumer", 3) || !number_is(line, "need_kick", 1))
		return false;
	return word_is(line_of(&block, "requester"), "requester", "idle") &&
	       number_is(line_of(&block, "requester"), "psn",
			 (0xfffff0 + 3) & 0xffffff) &&
	       read_block(setup->b_dev.name, peer, &block) &&
	       number_is(line_of(&block, "rq"), "consumer", 3) &&
	       number_is(line_of(&block, "responder"), "expected_psn",
			 (0xfffff0 + 3) & 0xffffff);
}

/* Five receives at @b, and an event when fewer than two are left. */
static struct ibv_srq *shared_queue(struct setup *setup)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 100,
						    .max_sge = 1 } };
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct ibv_sge sge = region_sge(&setup->b_mem, RECEIVE_OFFSET,
					RECEIVE_BYTES);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_srq *srq = ibv_create_srq(setup->b_dev.pd, &init);
	int i;

	if (!srq || ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT))
		bail("no shared receive queue: %s", strerror(errno));
	for (i = 0; i < 5; i++)
		tap_must(!ibv_post_srq_recv(srq, &wr, &bad),
			 "ibv_post_srq_recv fails");
	return srq;
}

/* Two of the five are taken. */
static bool shared_queue_shown(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint own_a = setup->a, own_b = setup->b;
	struct block block;
	const char *line;
	bool ok;

	endpoint_create(&setup->a, &setup->a_dev, &options);
	options.srq = shared_queue(setup);
	endpoint_create(&setup->b, &setup->b_dev, &options);
	pair_connect(&setup->a, &setup->b);
	ok = request_ends(setup, IBV_WR_SEND, 64, IBV_WC_SUCCESS) &&
	     request_ends(setup, IBV_WR_SEND, 64, IBV_WC_SUCCESS) &&
	     read_block(setup->b_dev.name, setup->b.qp->qp_num, &block);
	line = ok ? line_of(&block, "srq") : "";
	ok = ok && number_is(line, "entries", 128) &&
	     number_is(line, "producer", 5) && number_is(line, "consumer", 2) &&
	     number_is(line, "limit", 2) &&
	     check(!*line_of(&block, "rq"), "it has a queue of its own, too");
	pair_destroy(&setup->a, &setup->b);
	tap_must(!ibv_destroy_srq(options.srq), "ibv_destroy_srq fails");
	setup->a = own_a;
	setup->b = own_b;
	return ok;
}

/* It waits for a receive of its peer for 0.7 s, and starts over, perhaps late. */
static bool wait_shown(struct setup *setup)
{
	char due[32] = "";
	struct block block;
	const char *line;
	bool ok;

	request(setup, 0x99, IBV_WR_SEND, 64);
	ok = read_block(setup->a_dev.name, setup->a.qp->qp_num, &block);
	line = line_of(&block, "requester");
	ok = ok && word_is(line, "requester", "waiting") &&
	     word_is(line, "request", "SEND") &&
	     number_is(line, "wr_id", 0x99) && number_is(line, "done", 0) &&
	     number_is(line, "of", 64) &&
	     number_is(line, "rnr_retries_left", 7) &&
	     check(word_after(line, "due_in_us", due, sizeof(due)) &&
			   atoll(due) <= 655360,
		   "due: %s", line);
	receive(setup, 1);
	return cq_expect(setup->a.send_cq, 0x99, IBV_WC_SUCCESS) && ok;
}

static bool datagrams_shown(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct endpoint ep;
	struct block block;
	bool ok;

	endpoint_create(&ep, &setup->a_dev, &options);
	endpoint_to_init(&ep);
	ok = read_block(setup->a_dev.name, ep.qp->qp_num, &block) &&
	     word_is(line_of(&block, "qp"), "type", "UD") &&
	     word_is(line_of(&block, "qp"), "state", "INIT");
	endpoint_destroy(&ep);
	return ok;
}

/* It has neither queues nor a protection domain. */
static bool target_shown(struct setup *setup)
{
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};
	struct block block;
	struct ibv_qp *qp;
	bool ok;

	init.xrcd = ibv_open_xrcd(setup->a_dev.ctx, &domain);
	qp = init.xrcd ? ibv_create_qp_ex(setup->a_dev.ctx, &init) : NULL;
	if (!qp)
		bail("no XRC target: %s", strerror(errno));
	ok = read_block(setup->a_dev.name, qp->qp_num, &block) &&
	     word_is(line_of(&block, "qp"), "type", "XRC_TGT") &&
	     word_is(line_of(&block, "qp"), "state", "RESET") &&
	     command_runs("rdma resource show qp lqpn %u | grep -q XRC_TGT",
			  qp->qp_num);
	return check(!ibv_destroy_qp(qp) && !ibv_close_xrcd(init.xrcd),
		     "the XRC target can't be destroyed") &&
	       ok;
}

static bool management_shown(struct setup *setup)
{
	struct block block;

	return read_block(setup->a_dev.name, 1, &block) &&
	       word_is(line_of(&block, "qp"), "type", "GSI") &&
	       word_is(line_of(&block, "qp"), "owner", "kernel");
}

/* What "@kind keys N valid N bytes N blocks N" says of a value. */
static uint64_t key_sum(struct setup *setup, const char *kind,
			const char *value)
{
	char *text = read_debugfs(setup->a_dev.name, "mkeys");
	char *rest = text, *line;
	uint64_t number = UINT64_MAX;

	while (text && (line = next_line(&rest)))
		if (!strncmp(line, kind, strlen(kind)))
			number = number_after(line, value);
	free(text);
	return number;
}

static bool keys_shown(struct setup *setup)
{
	uint64_t keys = key_sum(setup, "user", "keys");
	uint64_t bytes = key_sum(setup, "user", "bytes");
	uint64_t windows = key_sum(setup, "window", "keys");
	struct region region;
	struct ibv_mw *mw;
	bool ok;

	region_create(&region, setup->a_dev.pd, 12345);
	mw = ibv_alloc_mw(setup->a_dev.pd, IBV_MW_TYPE_2);
	if (!mw)
		bail("ibv_alloc_mw: %s", strerror(errno));
	ok = check(key_sum(setup, "user", "keys") == keys + 1, "keys") &&
	     check(key_sum(setup, "user", "bytes") == bytes + 12345, "bytes") &&
	     check(key_sum(setup, "window", "keys") == windows + 1 &&
			   key_sum(setup, "window", "valid") == 0,
		   "windows");
	tap_must(!ibv_dealloc_mw(mw), "ibv_dealloc_mw fails");
	region_destroy(&region);
	return check(key_sum(setup, "user", "keys") == keys &&
			     key_sum(setup, "user", "bytes") == bytes &&
			     key_sum(setup, "window", "keys") == windows,
		     "keys stay") &&
	       ok;
}

/* The line of the windows of @qpn; the caller frees it. NULL if there is none. */
static char *window_line(struct setup *setup, uint32_t qpn)
{
	char *text = read_debugfs(setup->a_dev.name, "windows");
	char *rest = text, *line, *found = NULL;

	while (text && !found && (line = next_line(&rest)))
		if (number_after(line, "qp") == qpn)
			found = strdup(line);
	free(text);
	return found;
}

static bool windows_shown(struct setup *setup)
{
	uint32_t qpn = setup->a.qp->qp_num;
	struct micdv_window *window = map_window(setup, PAGE_BYTES);
	char *line = window_line(setup, qpn);
	bool ok;

	ok = check(line, "the window is not listed") &&
	     number_is(line, "rkey", setup->b_mem.mr->rkey) &&
	     number_is(line, "addr", setup->b_mem.rdma_addr) &&
	     number_is(line, "length", PAGE_BYTES) &&
	     number_is(line, "pages", 2);
	free(line);
	ok = check(!micdv_unmap_window(window), "unmapping fails") && ok;
	line = window_line(setup, qpn);
	ok = check(!line, "it stays: %s", line) && ok;
	free(line);
	return ok;
}

/* The folder follows the name; a file that was open is at its end. */
static bool rename_followed(struct setup *setup)
{
	const char *name = setup->a_dev.name;
	char path[PATH_BYTES], byte;
	struct block block;
	int fd;
	bool ok;

	snprintf(path, sizeof(path), DEBUGFS "/ib_mic/%s/qps", name);
	fd = open(path, O_RDONLY);
	ok = check(fd >= 0, "%s: %s", path, strerror(errno)) &&
	     command_runs("rdma dev set %s name " NEW_NAME, name) &&
	     read_block(NEW_NAME, setup->a.qp->qp_num, &block) &&
	     check(access(path, F_OK), "%s stays", path) &&
	     check(read(fd, &byte, 1) < 0 && errno == EIO,
		   "an old file can be read");
	close(fd);
	return command_runs("rdma dev set " NEW_NAME " name %s", name) &&
	       read_block(name, setup->a.qp->qp_num, &block) && ok;
}

/* Read everything, several times; returns an exit status. */
static int read_all(struct setup *setup)
{
	int i;

	for (i = 0; i < READS; i++) {
		free(read_debugfs(setup->a_dev.name, "qps"));
		free(read_debugfs(setup->a_dev.name, "mkeys"));
		free(read_debugfs(setup->a_dev.name, "windows"));
		free(text_of_command("rdma resource show qp -dd"));
		free(text_of_command("rdma resource show cq -dd"));
		free(text_of_command("rdma resource show mr -dd"));
	}
	return 0;
}

/* Objects come and go until the reader has enough. */
static bool churn(struct setup *setup, pid_t reader)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct region region;
	int status;
	bool ok;

	do {
		pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
			    &options);
		region_create(&region, setup->a_dev.pd, PAGE_BYTES);
		ok = exchange(setup, IBV_WR_RDMA_WRITE, 64, 3);
		region_destroy(&region);
		pair_destroy(&setup->a, &setup->b);
	} while (ok && !waitpid(reader, &status, WNOHANG));
	return ok && check(!status, "the reader ends with status %d", status);
}

static bool readers_survive(struct setup *setup)
{
	struct endpoint own_a = setup->a, own_b = setup->b;
	pid_t pid;
	bool ok;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(read_all(setup));
	if (pid < 0)
		bail("fork: %s", strerror(errno));
	ok = churn(setup, pid);
	setup->a = own_a;
	setup->b = own_b;
	return ok;
}

void test_debugfs(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	if (access(DEBUGFS "/ib_mic", F_OK) &&
	    mount("debugfs", DEBUGFS, "debugfs", 0, NULL))
		bail("cannot mount debugfs: %s", strerror(errno));
	options.rnr_timer = 0; /* the longest */
	pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
		    &options);
	tap_ok(qp_shown(setup), "debugfs: a queue pair and its queues");
	tap_ok(wait_shown(setup), "debugfs: a queue pair that waits");
	tap_ok(shared_queue_shown(setup), "debugfs: a shared receive queue");
	tap_ok(datagrams_shown(setup), "debugfs: a datagram queue pair");
	tap_ok(target_shown(setup), "debugfs: an XRC target");
	tap_ok(management_shown(setup), "debugfs: the management queue pair");
	tap_ok(keys_shown(setup), "debugfs: sums of the keys");
	tap_ok(windows_shown(setup), "debugfs: windows");
	tap_ok(rename_followed(setup), "debugfs: under a new name");
	tap_ok(readers_survive(setup), "debugfs: read while objects go");
	pair_destroy(&setup->a, &setup->b);
}
