// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Who executes a request, the process that posts it or the kernel: for each
 * operation, of RC and UC, by both interfaces to post, in all sizes and pieces,
 * with each value of MIC_DIRECT. So a request that could be executed by the
 * process and is given to the kernel is found, too.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"
#include "tap.h"
#include "work.h"

static const struct mode modes[] = {
	{ "without MIC_DIRECT", NULL, MICDV_PATH_DIRECT },
	{ "MIC_DIRECT=1", "1", MICDV_PATH_DIRECT },
	{ "MIC_DIRECT=0", "0", MICDV_PATH_ENGINE },
	{ "MIC_DIRECT=random", "random", MICDV_PATH_RANDOM },
};

static const struct operation operations[] = {
	{ IBV_WR_RDMA_WRITE, .direct = true, .uc = true },
	{ IBV_WR_RDMA_READ, .direct = true },
	{ IBV_WR_ATOMIC_CMP_AND_SWP, .direct = true, .word = true },
	{ IBV_WR_ATOMIC_FETCH_AND_ADD, .direct = true, .word = true },
	{ IBV_WR_ATOMIC_WRITE, .direct = true, .word = true },
	{ IBV_WR_RDMA_WRITE_WITH_IMM, .uc = true },
	{ IBV_WR_SEND, .uc = true },
	{ IBV_WR_SEND_WITH_IMM, .uc = true },
};

static bool runs(struct session *session, const struct operation *op,
		 uint32_t size, unsigned int count, bool is_inline)
{
	struct request request = {
		.op = op,
		.size = size,
		.count = count,
		.is_inline = is_inline,
	};
	const bool direct = op->direct && size;

	if (direct && session->given &&
	    session->mode->path == MICDV_PATH_DIRECT &&
	    !session_is_idle(session))
		return false;
	request_post(session, &request);
	return check(request_complete(session, &request) &&
			     session_took_one(session, direct),
		     "that was %u bytes in %u pieces%s", size, count,
		     is_inline ? ", inline" : "");
}

static bool runs_pieces(struct session *session, const struct operation *op,
			uint32_t size)
{
	static const unsigned int counts[] = { 1, 2, 3, MOST_SGES };
	unsigned int i;

	for (i = 0; i < COUNT(counts); i++)
		if (!runs(session, op, size, counts[i], false))
			return false;
	return true;
}

static bool runs_inline(struct session *session, const struct operation *op)
{
	static const uint32_t sizes[] = { 1, WORD, 64, MOST_INLINE };
	unsigned int i;

	for (i = 0; i < COUNT(sizes); i++)
		if ((!op->word || sizes[i] == WORD) &&
		    (!runs(session, op, sizes[i], 1, true) ||
		     !runs(session, op, sizes[i], 2, true)))
			return false;
	return true;
}

/* The first one is the first to use its key. */
static bool runs_operation(struct session *session, const struct operation *op)
{
	static const uint32_t sizes[] = {
		1, WORD, 4096, 1 << 14, (1 << 14) + 1, 1 << 16, MOST_BYTES, 0,
	};
	unsigned int i;

	for (i = 0; i < COUNT(sizes); i++)
		if ((!op->word || sizes[i] == WORD) &&
		    !runs_pieces(session, op, sizes[i]))
			return false;
	return opcode_writes_local(op->opcode) || runs_inline(session, op);
}

static const char *how(const struct session *session)
{
	return session->extended ? "ibv_wr_start" : "ibv_post_send";
}

static const char *type_name(const struct session *session)
{
	return session->type == IBV_QPT_UC ? "UC" : "RC";
}

static const char *by_whom(const struct session *session,
			   const struct operation *op)
{
	if (!op->direct || session->mode->path == MICDV_PATH_ENGINE)
		return "the kernel";
	return session->mode->path == MICDV_PATH_RANDOM ? "one or the other" :
							  "the process";
}

static void run_operations(struct session *session)
{
	unsigned int i;

	for (i = 0; i < COUNT(operations); i++) {
		const struct operation *op = &operations[i];

		if (session->type == IBV_QPT_UC && !op->uc)
			continue;
		/* a connection may not survive a failure */
		session_connect(session);
		tap_ok(runs_operation(session, op), "%s, %s, %s: %s by %s",
		       session->mode->name, type_name(session), how(session),
		       opcode_name(op->opcode), by_whom(session, op));
		session_disconnect(session);
	}
}

static void run_types(struct session *session)
{
	static const struct {
		enum ibv_qp_type type;
		bool extended;
	} kinds[] = {
		{ IBV_QPT_RC, false },
		{ IBV_QPT_RC, true },
		{ IBV_QPT_UC, false },
		{ IBV_QPT_UC, true },
	};
	unsigned int i;

	for (i = 0; i < COUNT(kinds); i++) {
		session->type = kinds[i].type;
		session->extended = kinds[i].extended;
		run_operations(session);
	}
}

static size_t first_word(const struct region *region)
{
	return (0 - region->rdma_addr) % WORD;
}

static void is_told(struct session *session)
{
	enum micdv_path path;

	session_connect(session);
	path = session_query(session).path;
	tap_ok(check(path == session->mode->path, "the path is %d", path),
	       "%s: new queue pairs are told so", session->mode->name);
	session_disconnect(session);
}

/* The variable is looked at when a device is opened. */
static void run_mode(const struct mode *mode, const char *device,
		     const char *peer)
{
	struct session session = { .mode = mode, .type = IBV_QPT_RC };
	struct setup *setup = &session.setup;
	size_t bytes = MOST_BYTES + WORD;

	if (mode->value ? setenv("MIC_DIRECT", mode->value, 1) :
			  unsetenv("MIC_DIRECT"))
		bail("no environment");
	device_open(&setup->a_dev, device);
	device_open(&setup->b_dev, peer);
	region_create(&setup->a_mem, setup->a_dev.pd, bytes);
	region_create(&setup->b_mem, setup->b_dev.pd, bytes);
	session.from = first_word(&setup->a_mem);
	session.to = first_word(&setup->b_mem);
	is_told(&session);
	run_types(&session);
	if (mode->path == MICDV_PATH_DIRECT && mode->value)
		run_others(&session);
	if (mode->path == MICDV_PATH_RANDOM)
		tap_ok(check(session.direct && session.engine,
			     "%" PRIu64 " by the process, %" PRIu64
			     " by the kernel",
			     session.direct, session.engine),
		       "%s: some by one and some by the other", mode->name);
	setup_close(setup);
}

int main(int argc, char **argv)
{
	const char *device, *peer;
	unsigned int i;

	device_names(&argc, argv, &device, &peer);
	for (i = 0; i < COUNT(modes); i++)
		run_mode(&modes[i], device, peer);
	return tap_end();
}
