// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * WRITEs between two machines, each waited for until it is complete, into words that
 * the other side looks at without polling a queue.
 *
 * usage: replies serve PORT
 *        replies reply|stop|some|both|notice COUNT ADDRESS:PORT
 *
 * reply: to and fro, one after the other. stop: so, and then the server does not reply
 * to as many. some: so, but the server does not reply to one in ONE_IN. both: the sides
 * do not wait for each other. notice: so to and fro, too, but it is a SEND without data
 * that tells each side of the other's WRITE.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "endpoint.h"
#include "measure.h"
#include "memory.h"
#include "process.h"
#include "tap.h"
#include "work.h"

/* Where the words are that the other side writes, and this one. */
enum { THEIRS = 0, OURS = 64, BYTES = 128 };

/* After so many that came so soon, in a row, another one is likely. */
enum { LIKELY = 4, SOON_US = 1000 };

enum { ONE_IN = 8 };

enum way { REPLY, STOP, SOME, BOTH, NOTICE, WAYS };

static const char *const way_names[WAYS] = { "reply", "stop", "some", "both",
					     "notice" };

struct script {
	uint32_t way; /* enum way */
	uint32_t count;
	struct endpoint_address address;
	uint64_t addr;
	uint32_t rkey;
	uint32_t unused;
};

struct side {
	struct device dev;
	struct endpoint ep;
	struct region mem;
	struct script peer;
};

static uint64_t *word(struct side *side, size_t offset)
{
	return (uint64_t *)(side->mem.addr + offset);
}

static void open_side(struct side *side, const char *name)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	device_open(&side->dev, name);
	endpoint_create(&side->ep, &side->dev, &options);
	region_create(&side->mem, side->dev.pd, BYTES);
	memset(side->mem.addr, 0, BYTES);
}

static void close_side(struct side *side)
{
	endpoint_destroy(&side->ep);
	region_destroy(&side->mem);
	device_close(&side->dev);
}

static void describe(const struct side *side, struct script *script)
{
	script->address = endpoint_address(&side->ep);
	script->addr = side->mem.rdma_addr + THEIRS;
	script->rkey = side->mem.mr->rkey;
}

static bool completes(struct side *side)
{
	const uint64_t limit = deadline();
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(side->ep.send_cq, 1, &wc);
	} while (!n && check(now_ms() < limit, "a WRITE does not complete"));
	return n > 0 && check(wc.status == IBV_WC_SUCCESS, "%s",
			      ibv_wc_status_str(wc.status));
}

/* Write @value, and wait until that is complete. */
static bool put(struct side *side, uint64_t value)
{
	struct ibv_sge sge = region_sge(&side->mem, OURS, sizeof(value));
	struct ibv_send_wr wr = send_wr(value, IBV_WR_RDMA_WRITE, &sge, 1);

	*word(side, OURS) = value;
	wr.wr.rdma.remote_addr = side->peer.addr;
	wr.wr.rdma.rkey = side->peer.rkey;
	post_send(&side->ep, &wr);
	return completes(side);
}

/* Look at the memory, and nowhere else, until it is @value. */
static bool comes(struct side *side, uint64_t value)
{
	const uint64_t limit = deadline();
	uint64_t *theirs = word(side, THEIRS);
	uint32_t n = 0;

	while (__atomic_load_n(theirs, __ATOMIC_ACQUIRE) != value)
		if (!(++n % 4096) &&
		    !check(now_ms() < limit, "%llu does not come",
			   (unsigned long long)value))
			return false;
	return true;
}

/* Who begins says how many of the other side's acknowledgements could wait for replies. */
static bool to_and_fro(struct side *side, uint32_t count, bool begins)
{
	uint32_t i, row = 0, likely = 0;
	uint64_t start;

	for (i = 1; i <= count; i++) {
		likely += row >= LIKELY;
		start = now_us();
		if ((!begins && !comes(side, i)) || !put(side, i) ||
		    (begins && !comes(side, i)))
			return false;
		row = now_us() - start < SOON_US ? row + 1 : 0;
	}
	if (begins)
		tap_note("%u replies were likely", likely);
	return true;
}

/* What is not replied to need not be seen either. */
static bool some_to_and_fro(struct side *side, uint32_t count, bool begins)
{
	uint32_t i;

	for (i = 1; i <= count; i++) {
		bool replied = i % ONE_IN;

		if (begins && !put(side, i))
			return false;
		if (replied && !comes(side, i))
			return false;
		if (!begins && replied && !put(side, i))
			return false;
	}
	return true;
}

static bool all_at_once(struct side *side, uint32_t from, uint32_t to)
{
	uint32_t i;

	for (i = from; i <= to; i++)
		if (!put(side, i))
			return false;
	return true;
}

/* Write @value, and when that is complete say so. */
static bool put_and_tell(struct side *side, uint64_t value)
{
	if (!put(side, value))
		return false;
	post_empty_send(&side->ep, value, IBV_SEND_SIGNALED);
	return completes(side);
}

/* Hear that there is @value. */
static bool hears(struct side *side, uint64_t value)
{
	struct ibv_wc wc;

	return cq_success(side->ep.recv_cq, value, &wc) &&
	       check(*word(side, THEIRS) == value, "not %llu",
		     (unsigned long long)value);
}

static bool told_to_and_fro(struct side *side, uint32_t count, bool begins)
{
	uint32_t i;

	post_recv(&side->ep, 1, NULL, 0);
	for (i = 1; i <= count; i++) {
		if (!begins && !hears(side, i))
			return false;
		/* before the other side is told to go on */
		post_recv(&side->ep, i + 1, NULL, 0);
		if (!put_and_tell(side, i) || (begins && !hears(side, i)))
			return false;
	}
	return true;
}

static bool run(struct side *side, const struct script *script, bool begins)
{
	uint32_t count = script->count;

	switch (script->way) {
	case REPLY:
		return to_and_fro(side, count, begins);
	case STOP:
		if (!to_and_fro(side, count, begins))
			return false;
		return begins ? all_at_once(side, count + 1, 2 * count) :
				comes(side, 2 * count);
	case SOME:
		return some_to_and_fro(side, count, begins);
	case NOTICE:
		return told_to_and_fro(side, count, begins);
	default:
		return all_at_once(side, 1, count) && comes(side, count);
	}
}

static int serve(int socket, void *name)
{
	struct script script;
	struct side side;
	bool ok;

	open_side(&side, name);
	message_receive(socket, &side.peer, sizeof(side.peer));
	tap_must(side.peer.way < WAYS, "a way that is known");
	endpoint_connect(&side.ep, &side.peer.address);
	script = side.peer;
	describe(&side, &script);
	message_send(socket, &script, sizeof(script));
	ok = run(&side, &side.peer, false);
	/* until the other side is through, it needs this one */
	message_receive(socket, &script, sizeof(script));
	close_side(&side);
	return !ok;
}

static int use(const char *name, struct script script, const char *where)
{
	struct process server;
	struct side side;
	bool ok;

	process_connect(&server, where);
	open_side(&side, name);
	describe(&side, &script);
	message_send(server.socket, &script, sizeof(script));
	message_receive(server.socket, &side.peer, sizeof(side.peer));
	endpoint_connect(&side.ep, &side.peer.address);
	ok = run(&side, &script, true);
	tap_ok(ok, "%s: %u WRITEs", way_names[script.way], script.count);
	message_send(server.socket, &script, sizeof(script));
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
		bail("usage: replies serve PORT | WAY COUNT ADDRESS:PORT");
	while (script.way < WAYS && strcmp(way_names[script.way], argv[1]))
		script.way++;
	script.count = atoi(argv[2]);
	if (script.way == WAYS || !script.count)
		bail("not a way and a count: %s %s", argv[1], argv[2]);
	return use(name, script, argv[3]);
}
