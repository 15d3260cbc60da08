// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Messages to and fro between two machines, received in one of several ways. Who
 * polls a completion queue in vain receives what the other machine has sent himself;
 * who waits for an event has to be woken, also if he has polled before.
 *
 * usage: busy serve PORT
 *        busy WAY COUNT ADDRESS:PORT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "endpoint.h"
#include "process.h"
#include "tap.h"
#include "work.h"

enum { DEPTH = 8 };

/* How completions are waited for. */
enum way { POLL, EXTENDED, EVENT, MIXED, WAYS };

static const char *const way_names[WAYS] = {
	[POLL] = "poll",
	[EXTENDED] = "extended",
	[EVENT] = "event",
	[MIXED] = "mixed",
};

struct script {
	uint32_t way; /* enum way */
	uint32_t count;
	struct endpoint_address address;
};

struct side {
	struct device dev;
	struct endpoint ep;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	enum way way;
	uint32_t sent;
	uint32_t received;
};

static void create_cq(struct side *side)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 2 * DEPTH,
		.channel = side->channel,
	};

	if (side->way == EXTENDED) {
		side->cq_ex = ibv_create_cq_ex(side->dev.ctx, &attr);
		side->cq = side->cq_ex ? ibv_cq_ex_to_cq(side->cq_ex) : NULL;
	} else {
		side->cq = ibv_create_cq(side->dev.ctx, attr.cqe, NULL,
					 side->channel, 0);
	}
	tap_must(side->cq, "a completion queue");
}

static void open_side(struct side *side, const char *name, enum way way)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	memset(side, 0, sizeof(*side));
	side->way = way;
	device_open(&side->dev, name);
	side->channel = ibv_create_comp_channel(side->dev.ctx);
	tap_must(side->channel, "a completion channel");
	create_cq(side);
	options.depth = DEPTH;
	options.send_cq = side->cq;
	options.recv_cq = side->cq;
	endpoint_create(&side->ep, &side->dev, &options);
}

static void close_side(struct side *side)
{
	endpoint_destroy(&side->ep);
	tap_must(!ibv_destroy_cq(side->cq), "the queue is destroyed");
	ibv_destroy_comp_channel(side->channel);
	device_close(&side->dev);
}

/* Like ibv_poll_cq() for one completion. */
static int poll_extended(struct side *side, struct ibv_wc *wc)
{
	struct ibv_poll_cq_attr attr = {};

	if (ibv_start_poll(side->cq_ex, &attr))
		return 0;
	wc->status = side->cq_ex->status;
	wc->opcode = ibv_wc_read_opcode(side->cq_ex);
	ibv_end_poll(side->cq_ex);
	return 1;
}

static bool poll_for_long(struct side *side, struct ibv_wc *wc)
{
	const uint64_t limit = deadline();

	for (;;) {
		int n = side->way == EXTENDED ? poll_extended(side, wc) :
						ibv_poll_cq(side->cq, 1, wc);

		if (n)
			return n > 0;
		if (!check(now_ms() < limit, "nothing comes"))
			return false;
	}
}

static bool wait_for_event(struct side *side)
{
	struct ibv_cq *cq;
	void *context;

	if (!check(becomes_readable(side->channel->fd), "no event comes") ||
	    ibv_get_cq_event(side->channel, &cq, &context))
		return false;
	ibv_ack_cq_events(cq, 1);
	return true;
}

/* Polls @times, in vain perhaps, and then waits for an event. */
static bool poll_then_sleep(struct side *side, struct ibv_wc *wc, int times)
{
	for (;;) {
		while (times-- > 0)
			if (ibv_poll_cq(side->cq, 1, wc))
				return true;
		tap_must(!ibv_req_notify_cq(side->cq, 0), "it is armed");
		if (ibv_poll_cq(side->cq, 1, wc))
			return true;
		if (!wait_for_event(side))
			return false;
		times = 1;
	}
}

static bool take(struct side *side)
{
	struct ibv_wc wc = {};
	bool ok;

	if (side->way == EVENT)
		ok = poll_then_sleep(side, &wc, 1);
	else if (side->way == MIXED)
		ok = poll_then_sleep(side, &wc, rand() % (1 << rand() % 14));
	else
		ok = poll_for_long(side, &wc);
	if (!ok || !check(wc.status == IBV_WC_SUCCESS, "%s",
			  ibv_wc_status_str(wc.status)))
		return false;
	if (wc.opcode == IBV_WC_RECV)
		side->received++;
	else
		side->sent++;
	return true;
}

static bool wait_until(struct side *side, uint32_t sent, uint32_t received)
{
	while (side->sent < sent || side->received < received)
		if (!take(side))
			return false;
	return true;
}

/* @begins: this side sends first. */
static bool to_and_fro(struct side *side, uint32_t count, bool begins)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (!begins && !wait_until(side, i, i + 1))
			return false;
		post_recv(&side->ep, i, NULL, 0);
		post_empty_send(&side->ep, i, IBV_SEND_SIGNALED);
		if (begins && !wait_until(side, i + 1, i + 1))
			return false;
	}
	return wait_until(side, count, count);
}

static int serve(int socket, void *name)
{
	struct script script;
	struct side side;
	bool ok;

	message_receive(socket, &script, sizeof(script));
	tap_must(script.way < WAYS, "a way that is known");
	open_side(&side, name, script.way);
	endpoint_connect(&side.ep, &script.address);
	post_recv(&side.ep, 0, NULL, 0);
	script.address = endpoint_address(&side.ep);
	message_send(socket, &script, sizeof(script));
	ok = to_and_fro(&side, script.count, false);
	close_side(&side);
	return !ok;
}

static int use(const char *name, struct script script, const char *where)
{
	struct process server;
	struct side side;
	bool ok;

	srand(2); /* not as the other side */
	process_connect(&server, where);
	open_side(&side, name, script.way);
	script.address = endpoint_address(&side.ep);
	message_send(server.socket, &script, sizeof(script));
	message_receive(server.socket, &script, sizeof(script));
	endpoint_connect(&side.ep, &script.address);
	ok = to_and_fro(&side, script.count, true);
	tap_ok(ok, "%s: %u messages to and fro", way_names[script.way],
	       script.count);
	tap_ok(process_end(&server), "the other side ends well");
	close_side(&side);
	return tap_end();
}

int main(int argc, char **argv)
{
	struct script script = {};
	const char *name, *peer;

	device_names(&argc, argv, &name, &peer);
	if (argc == 3 && !strcmp(argv[1], "serve"))
		process_serve(argv[2], serve, (void *)name);
	if (argc != 4)
		bail("usage: busy serve PORT | WAY COUNT ADDRESS:PORT");
	while (script.way < WAYS && strcmp(way_names[script.way], argv[1]))
		script.way++;
	script.count = atoi(argv[2]);
	if (script.way == WAYS || !script.count)
		bail("not a way and a count: %s %s", argv[1], argv[2]);
	return use(name, script, argv[3]);
}
