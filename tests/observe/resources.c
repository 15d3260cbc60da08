// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * rdma resource show: what this process has is listed under its pid, with the
 * state it is in, and gone when it is gone.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "clock.h"
#include "observe.h"
#include "tap.h"
#include "text.h"

enum { WORD_BYTES = 128 };

static bool passes_one(const char *line, const char *name, const char *expected)
{
	char word[WORD_BYTES];

	return word_after(line, name, word, sizeof(word)) &&
	       strcmp(word, expected) == 0;
}

static bool passes(const char *line, const struct filter *filters)
{
	char pid[16];
	int i;

	snprintf(pid, sizeof(pid), "%d", getpid());
	if (!passes_one(line, "pid", pid))
		return false;
	for (i = 0; i < FILTERS && filters && filters[i].name; i++)
		if (!passes_one(line, filters[i].name, filters[i].word))
			return false;
	return true;
}

/*
 * How many objects of @kind at @dev this process has that pass; the last one
 * goes to @found.
 */
static int list(const struct device *dev, const char *kind,
		const struct filter *filters, char *found)
{
	bool is_link = !strcmp(kind, "qp") || !strcmp(kind, "cm_id");
	char *text = text_of_command("rdma resource show %s %s %s%s -dd", kind,
				     is_link ? "link" : "dev", dev->name,
				     is_link ? "/1" : "");
	char *rest = text, *line;
	int count = 0;

	if (found)
		*found = 0;
	while ((line = next_line(&rest))) {
		if (!passes(line, filters))
			continue;
		count++;
		if (found)
			snprintf(found, LINE_BYTES, "%s", line);
	}
	free(text);
	return count;
}

bool list_is(const struct device *dev, const char *kind,
	     const struct filter *filters, char *found, int expected)
{
	int count = list(dev, kind, filters, found);

	return check(count == expected,
		     "%s: %d objects of kind %s, expected %d", dev->name, count,
		     kind, expected);
}

static bool find_qp(const struct endpoint *ep, char *line)
{
	char number[16];
	const struct filter filters[FILTERS] = { { "lqpn", number } };

	snprintf(number, sizeof(number), "%u", ep->qp->qp_num);
	return list_is(ep->dev, "qp", filters, line, 1);
}

static bool qps_listed(struct setup *setup)
{
	char line[LINE_BYTES];

	return exchange(setup, IBV_WR_SEND, 64, 3) &&
	       find_qp(&setup->a, line) && word_is(line, "type", "RC") &&
	       word_is(line, "state", "RTS") &&
	       number_is(line, "rqpn", setup->b.qp->qp_num) &&
	       word_is(line, "comm", "observe") &&
	       word_is(line, "drv_requester", "idle") &&
	       number_is(line, "drv_sq_entries", 64) &&
	       number_is(line, "drv_sq_producer", 3) &&
	       number_is(line, "drv_sq_consumer", 3) &&
	       number_is(line, "drv_rq_producer", 0) &&
	       find_qp(&setup->b, line) &&
	       number_is(line, "drv_rq_producer", 3) &&
	       number_is(line, "drv_rq_consumer", 3);
}

static bool queues_listed(struct setup *setup)
{
	const struct filter filters[FILTERS] = { { "drv_producer", "3" } };
	char line[LINE_BYTES];

	return list_is(&setup->a_dev, "cq", NULL, NULL, 2) &&
	       list_is(&setup->a_dev, "cq", filters, line, 1) &&
	       number_is(line, "cqe", 64) &&
	       number_is(line, "drv_entries", 64) &&
	       number_is(line, "drv_consumer", 3) &&
	       word_is(line, "drv_armed", "no") &&
	       number_is(line, "drv_overflow", 0);
}

static bool send_queue_empty(const struct endpoint *ep)
{
	uint64_t end = deadline();
	char line[LINE_BYTES];

	do {
		if (!find_qp(ep, line))
			return false;
		if (number_after(line, "drv_sq_producer") ==
		    number_after(line, "drv_sq_consumer"))
			return true;
		sleep_ms(10);
	} while (now_ms() < end);
	return check(false, "requests stay: %s", line);
}

/* One completion more than there is room for, in two helpings. */
static bool overflow_listed(struct setup *setup)
{
	const struct filter filters[FILTERS] = { { "drv_overflow", "1" } };
	uint64_t i;

	for (i = 0; i < 60; i++)
		request(setup, i, IBV_WR_RDMA_WRITE, 1);
	if (!send_queue_empty(&setup->a) ||
	    !list_is(&setup->a_dev, "cq", filters, NULL, 0))
		return false;
	for (; i < 65; i++)
		request(setup, i, IBV_WR_RDMA_WRITE, 1);
	return send_queue_empty(&setup->a) &&
	       list_is(&setup->a_dev, "cq", filters, NULL, 1);
}

static bool region_listed(struct setup *setup)
{
	char key[16], length[16];
	const struct filter filters[FILTERS] = { { "lkey", key } };
	char line[LINE_BYTES];

	snprintf(key, sizeof(key), "0x%x", setup->a_mem.mr->lkey);
	snprintf(length, sizeof(length), "%lu", REGION_BYTES);
	return list_is(&setup->a_dev, "mr", filters, line, 1) &&
	       word_is(line, "mrlen", length) &&
	       word_is(line, "drv_kind", "user") &&
	       number_is(line, "drv_valid", 1) &&
	       number_is(line, "drv_access", ACCESS_ALL) &&
	       number_is(line, "drv_windows", 0) &&
	       check(number_after(line, "drv_blocks") *
				     number_after(line, "drv_block_size") >=
			     REGION_BYTES,
		     "blocks are missing: %s", line);
}

static bool counts_windows(struct setup *setup, uint64_t count)
{
	char key[16], line[LINE_BYTES];
	const struct filter filters[FILTERS] = { { "lkey", key } };

	snprintf(key, sizeof(key), "0x%x", setup->b_mem.mr->lkey);
	return find_qp(&setup->a, line) &&
	       number_is(line, "drv_windows_imported", count) &&
	       number_is(line, "drv_windows_exported", 0) &&
	       find_qp(&setup->b, line) &&
	       number_is(line, "drv_windows_imported", 0) &&
	       number_is(line, "drv_windows_exported", count) &&
	       list_is(&setup->b_dev, "mr", filters, line, 1) &&
	       number_is(line, "drv_mapped", count);
}

/* Both sides know of what is mapped, and that it is not any more. */
static bool windows_listed(struct setup *setup)
{
	struct micdv_window *one, *other;
	bool ok;

	one = map_window(setup, PAGE_BYTES);
	ok = counts_windows(setup, 1);
	other = map_window(setup, 3 * PAGE_BYTES);
	ok = counts_windows(setup, 2) && ok;
	return check(!micdv_unmap_window(one) && !micdv_unmap_window(other),
		     "unmapping fails") &&
	       counts_windows(setup, 0) && ok;
}

/* The requester says that it waits, and how often it will still try. */
static bool wait_listed(struct setup *setup)
{
	char line[LINE_BYTES];
	bool ok;

	request(setup, 9, IBV_WR_SEND, 64);
	ok = find_qp(&setup->a, line) &&
	     word_is(line, "drv_requester", "waiting") &&
	     number_is(line, "drv_sq_producer", 4) &&
	     number_is(line, "drv_sq_consumer", 3) &&
	     number_is(line, "drv_rnr_retries_left", 7);
	receive(setup, 9);
	return cq_expect(setup->a.send_cq, 9, IBV_WC_SUCCESS) && ok;
}

static bool error_listed(struct setup *setup)
{
	char line[LINE_BYTES];

	endpoint_set_state(&setup->a, IBV_QPS_ERR);
	return find_qp(&setup->a, line) && word_is(line, "state", "ERR");
}

static bool domain_listed(struct setup *setup)
{
	return list_is(&setup->a_dev, "pd", NULL, NULL, 1);
}

/* From 6.7 on the kernel asks the driver for more. */
static bool kernel_asks_for_srqs(void)
{
	int major = 0, minor = 0;
	struct utsname name;

	if (uname(&name) || sscanf(name.release, "%d.%d", &major, &minor) != 2)
		bail("which kernel is this?");
	return major > 6 || (major == 6 && minor >= 7);
}

static bool shared_queue_listed(struct setup *setup)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 100,
						    .max_sge = 1 } };
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 64);
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_srq *srq = ibv_create_srq(setup->a_dev.pd, &init);
	char line[LINE_BYTES];
	bool ok;

	if (!srq || ibv_post_srq_recv(srq, &wr, &bad))
		bail("no shared receive queue: %s", strerror(errno));
	ok = list_is(&setup->a_dev, "srq", NULL, line, 1) &&
	     word_is(line, "type", "BASIC");
	if (kernel_asks_for_srqs())
		ok = ok && number_is(line, "drv_entries", 128) &&
		     number_is(line, "drv_producer", 1) &&
		     number_is(line, "drv_consumer", 0);
	return check(!ibv_destroy_srq(srq), "ibv_destroy_srq fails") &&
	       list_is(&setup->a_dev, "srq", NULL, NULL, 0) && ok;
}

static bool listener_listed(struct setup *setup)
{
	const struct filter filters[FILTERS] = { { "state", "LISTEN" } };
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	bool ok;

	memcpy(&address.sin_addr, setup->a_dev.gid.raw + 12, 4);
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(id, (struct sockaddr *)&address) ||
	    rdma_listen(id, 1))
		bail("cannot listen: %s", strerror(errno));
	ok = list_is(&setup->a_dev, "cm_id", filters, NULL, 1);
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
	return ok;
}

static bool nothing_listed(struct setup *setup)
{
	return list_is(&setup->a_dev, "qp", NULL, NULL, 0) &&
	       list_is(&setup->a_dev, "cq", NULL, NULL, 0) &&
	       list_is(&setup->b_dev, "qp", NULL, NULL, 0) &&
	       list_is(&setup->a_dev, "mr", NULL, NULL, 1);
}

void test_resources(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.rnr_timer = 0; /* the longest: 0.7 s */
	pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
		    &options);
	tap_ok(qps_listed(setup), "resources: queue pairs with their indices");
	tap_ok(queues_listed(setup), "resources: completion queues");
	tap_ok(wait_listed(setup), "resources: a queue pair that waits");
	tap_ok(overflow_listed(setup), "resources: a full completion queue");
	tap_ok(region_listed(setup), "resources: memory region");
	tap_ok(windows_listed(setup), "resources: windows, on both sides");
	tap_ok(domain_listed(setup), "resources: protection domain");
	tap_ok(shared_queue_listed(setup), "resources: shared receive queue");
	tap_ok(listener_listed(setup), "resources: listener of rdma_cm");
	test_links(setup);
	test_kinds(setup);
	tap_ok(error_listed(setup), "resources: a queue pair in error");
	pair_destroy(&setup->a, &setup->b);
	tap_ok(nothing_listed(setup), "resources: none left behind");
}
