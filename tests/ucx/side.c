// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How two processes with UCP begin, meet, share memory and end.
 */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "process.h"
#include "side.h"
#include "tap.h"

void *zeroed(size_t bytes)
{
	void *data = calloc(1, bytes ? bytes : 1);

	if (!data)
		bail("no memory");
	return data;
}

/* UCX goes on only while someone calls it. */
static void progress(struct side *side)
{
	if (!ucp_worker_progress(side->worker))
		sched_yield();
}

static void tell(struct side *side, const void *data, size_t bytes)
{
	if (!message_send(side->socket, data, bytes))
		bail("the other side is gone");
}

static void hear(struct side *side, void *data, size_t bytes)
{
	struct pollfd poller = { .fd = side->socket, .events = POLLIN };
	uint64_t end = deadline();

	while (!poll(&poller, 1, 0)) {
		progress(side);
		if (now_ms() > end)
			bail("the other side does not come");
	}
	if (!message_receive(side->socket, data, bytes))
		bail("the other side is gone");
}

void meet(struct side *side)
{
	char sign = 0;

	tell(side, &sign, sizeof(sign));
	hear(side, &sign, sizeof(sign));
}

bool agree(struct side *side, bool good)
{
	bool theirs;

	tell(side, &good, sizeof(good));
	hear(side, &theirs, sizeof(theirs));
	return good && theirs;
}

/* A piece of data whose length the other side does not know. */
static void tell_sized(struct side *side, const void *data, size_t bytes)
{
	tell(side, &bytes, sizeof(bytes));
	tell(side, data, bytes);
}

static void *hear_sized(struct side *side)
{
	size_t bytes;
	void *data;

	hear(side, &bytes, sizeof(bytes));
	data = zeroed(bytes);
	hear(side, data, bytes);
	return data;
}

ucs_status_t outcome(struct side *side, void *request)
{
	uint64_t end = deadline();
	ucs_status_t status;

	if (!request)
		return UCS_OK;
	if (UCS_PTR_IS_ERR(request))
		return UCS_PTR_STATUS(request);
	while (status = ucp_request_check_status(request),
	       status == UCS_INPROGRESS) {
		progress(side);
		if (now_ms() > end)
			bail("a request does not end");
	}
	ucp_request_free(request);
	return status;
}

bool done(struct side *side, void *request, const char *what)
{
	ucs_status_t status = outcome(side, request);

	return check(status == UCS_OK, "%s: %s", what,
		     ucs_status_string(status));
}

bool flush(struct side *side)
{
	ucp_request_param_t param = { 0 };

	return done(side, ucp_ep_flush_nbx(side->ep, &param), "flush");
}

static void on_failure(void *argument, ucp_ep_h ep, ucs_status_t status)
{
	struct side *side = argument;

	(void)ep;
	side->failure = status;
}

bool is_told(struct side *side)
{
	uint64_t end = deadline();

	while (side->failure == UCS_OK && now_ms() < end)
		progress(side);
	return side->failure != UCS_OK;
}

static void must(ucs_status_t status, const char *what)
{
	if (status != UCS_OK)
		bail("%s: %s", what, ucs_status_string(status));
}

static void connect_ep(struct side *side)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = { .cb = on_failure, .arg = side },
	};
	ucp_address_t *mine, *theirs;
	size_t bytes;

	must(ucp_worker_get_address(side->worker, &mine, &bytes),
	     "ucp_worker_get_address");
	tell_sized(side, mine, bytes);
	theirs = hear_sized(side);
	params.address = theirs;
	must(ucp_ep_create(side->worker, &params, &side->ep), "ucp_ep_create");
	ucp_worker_release_address(side->worker, mine);
	free(theirs);
}

void side_open(struct side *side, const char *device, int socket, bool active)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_STREAM |
			    UCP_FEATURE_RMA | UCP_FEATURE_AMO64,
	};
	ucp_worker_params_t worker = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	char port[64]; /* UCX's word for it */

	*side = (struct side){ .active = active, .socket = socket };
	snprintf(port, sizeof(port), "%s:1", device);
	setenv("UCX_NET_DEVICES", port, 1);
	must(ucp_init(&params, NULL, &side->context), "ucp_init");
	must(ucp_worker_create(side->context, &worker, &side->worker),
	     "ucp_worker_create");
	connect_ep(side);
	meet(side);
}

static void close_ep(struct side *side, uint32_t flags)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
		.flags = flags,
	};

	outcome(side, ucp_ep_close_nbx(side->ep, &param));
}

static void close_worker(struct side *side)
{
	ucp_worker_destroy(side->worker);
	ucp_cleanup(side->context);
}

void side_close(struct side *side)
{
	meet(side);
	close_ep(side, 0);
	meet(side);
	close_worker(side);
}

void side_force_close(struct side *side)
{
	close_ep(side, UCP_EP_CLOSE_FLAG_FORCE);
	close_worker(side);
}

void share(struct side *side, struct memory *mine, struct window *theirs,
	   size_t bytes)
{
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
	};
	void *rkey;

	mine->bytes = bytes;
	mine->data = zeroed(bytes);
	memset(mine->data, GUARD, bytes);
	params.address = mine->data;
	params.length = bytes;
	must(ucp_mem_map(side->context, &params, &mine->handle), "ucp_mem_map");
	must(ucp_rkey_pack(side->context, mine->handle, &rkey, &bytes),
	     "ucp_rkey_pack");
	tell(side, &mine->data, sizeof(mine->data));
	tell_sized(side, rkey, bytes);
	ucp_rkey_buffer_release(rkey);
	hear(side, &theirs->address, sizeof(theirs->address));
	rkey = hear_sized(side);
	must(ucp_ep_rkey_unpack(side->ep, rkey, &theirs->rkey),
	     "ucp_ep_rkey_unpack");
	free(rkey);
}

void unshare(struct side *side, struct memory *mine, struct window *theirs)
{
	ucp_rkey_destroy(theirs->rkey);
	meet(side);
	must(ucp_mem_unmap(side->context, mine->handle), "ucp_mem_unmap");
	free(mine->data);
}

/* Each byte tells where it is from: whose, and where in it. */
static uint8_t byte_of(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 13 + (i >> 8) * 7 + (i >> 16));
}

void fill(uint8_t *data, size_t bytes, uint32_t seed, size_t offset)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		data[i] = byte_of(seed, offset + i);
}

bool is_filled(const uint8_t *data, size_t bytes, uint32_t seed, size_t offset)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		if (data[i] != byte_of(seed, offset + i))
			return check(false, "byte %zu of %zu (%u, %zu) is %u",
				     i, bytes, seed, offset, data[i]);
	return true;
}

bool is_guard(const uint8_t *data, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		if (data[i] != GUARD)
			return check(false, "byte %zu of %zu was written to", i,
				     bytes);
	return true;
}
