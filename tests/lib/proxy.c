// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The connection with a proxied device, and the exchange of calls and memory.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "clock.h"
#include "process.h"
#include "proxy.h"
#include "proxy_client.h"
#include "tap.h"

/* Contexts have one connection; threads may use it. */
static int connection = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool lost;

static bool receive_all(int socket, void *data, size_t length)
{
	return !length ||
	       recv(socket, data, length, MSG_WAITALL) == (ssize_t)length;
}

/* Up to the last byte that is not zero: most of a call is for lists. */
static uint32_t used_bytes(const struct proxy_call *call)
{
	const uint8_t *bytes = (const uint8_t *)call;
	uint32_t length = sizeof(*call);

	while (length > sizeof(call->bytes) && !bytes[length - 1])
		length--;
	return length;
}

bool proxy_send(int socket, struct proxy_call *call)
{
	const struct patch *patches = mirror_changes(&call->patches);
	size_t length = call->patches * sizeof(*patches);

	call->bytes = used_bytes(call);
	return send(socket, call, call->bytes,
		    MSG_NOSIGNAL | (length ? MSG_MORE : 0)) == call->bytes &&
	       (!length ||
		send(socket, patches, length, MSG_NOSIGNAL) == (ssize_t)length);
}

bool proxy_receive(int socket, struct proxy_call *call)
{
	struct patch *patches;
	size_t length;
	bool ok;

	memset(call, 0, sizeof(*call));
	if (!receive_all(socket, call, sizeof(call->bytes)) ||
	    !receive_all(socket, (uint8_t *)call + sizeof(call->bytes),
			 call->bytes - sizeof(call->bytes)))
		return false;
	length = call->patches * sizeof(*patches);
	patches = malloc(length);
	if (length && !patches)
		bail("out of memory");
	ok = receive_all(socket, patches, length);
	if (ok)
		mirror_apply(patches, call->patches);
	free(patches);
	return ok;
}

int proxy_do(struct proxy_call *call)
{
	enum proxy_op op = call->op;
	bool ok;

	if (lost)
		return 0;
	pthread_mutex_lock(&mutex);
	ok = proxy_send(connection, call) && becomes_readable(connection) &&
	     proxy_receive(connection, call);
	pthread_mutex_unlock(&mutex);
	if (!ok)
		bail("the proxy is gone or silent in call %d", op);
	errno = call->error;
	return call->ret;
}

bool proxy_shares(const void *addr, size_t length)
{
	return connection >= 0 && mirror_has((uintptr_t)addr, length);
}

void proxy_sync(void)
{
	struct proxy_call call = { .op = PROXY_SYNC };

	if (connection >= 0)
		proxy_do(&call);
}

int proxy_run(const char *command)
{
	struct proxy_call call = { .op = PROXY_RUN };

	if (strlen(command) >= sizeof(call.command))
		bail("too long a command: %s", command);
	strcpy(call.command, command);
	return proxy_do(&call);
}

void proxy_provide(void)
{
	struct proxy_call call = { .op = PROXY_PROVIDE };

	proxy_do(&call);
}

void proxy_lost(void)
{
	lost = true;
}

bool proxy_is_name(const char *name)
{
	return strchr(name, ':');
}

static struct proxy_context *new_context(const char *name)
{
	struct proxy_context *proxy = calloc(1, sizeof(*proxy));
	struct ibv_context *ctx;

	if (!proxy)
		bail("out of memory");
	ctx = &proxy->verbs.context;
	ctx->device = &proxy->device;
	ctx->abi_compat = __VERBS_ABI_IS_EXTENDED;
	/* there may be an event: whoever waits for it has to ask */
	ctx->async_fd = eventfd(1, EFD_CLOEXEC);
	proxy->verbs.sz = sizeof(proxy->verbs);
	strncpy(proxy->device.name, name, sizeof(proxy->device.name) - 1);
	proxy_set_verbs(&proxy->verbs);
	return proxy;
}

struct ibv_context *proxy_open(const char *name)
{
	struct proxy_call call = { .op = PROXY_OPEN };
	struct proxy_context *proxy;

	if (connection < 0)
		connection = connect_to(name);
	proxy_do(&call);
	if (!call.object)
		return NULL;
	proxy = new_context(name);
	proxy->number = call.object;
	proxy->attr = call.device.attr;
	proxy->port = call.device.port;
	proxy->gid = call.device.gid;
	proxy->gid_index = call.device.gid_index;
	return &proxy->verbs.context;
}

void proxy_describe(struct device *dev)
{
	const struct proxy_context *proxy = proxy_context_of(dev->ctx);

	dev->attr = proxy->attr;
	dev->port = proxy->port;
	dev->gid = proxy->gid;
	dev->gid_index = proxy->gid_index;
}
