/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A proxied device, as its own files see it.
 */
#ifndef TESTS_PROXY_CLIENT_H
#define TESTS_PROXY_CLIENT_H

#include <stddef.h>

#include "proxy_call.h"

/* A function as the library has it, and as programs get it. */
#define WRAPPED(name) extern __typeof__(name) __real_##name, __wrap_##name

/* The number of what is on the other side, as a pointer within a structure. */
#define NUMBER(object) ((object) ? proxy_number((object)->handle) : NULL)

static inline void *proxy_number(uint32_t object)
{
	return (void *)(uintptr_t)object;
}

struct proxy_context {
	uint32_t number;
	struct ibv_device device;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint32_t gid_index;
	struct verbs_context verbs; /* the last: as programs see it */
};

static inline struct proxy_context *proxy_context_of(
	const struct ibv_context *ctx)
{
	return (struct proxy_context *)((char *)ctx -
					offsetof(struct proxy_context,
						 verbs.context));
}

/* Have it carried out. Returns @call's ret and sets errno. */
int proxy_do(struct proxy_call *call);

/* What has this number there. */
void *proxy_object(uint32_t object);
/* What stands for the object that @call has made; NULL if it has made none. */
void *proxy_made(const struct proxy_call *call, size_t size);
/* The object with the number @handle ends there, and then @object here. */
int proxy_end(enum proxy_op op, uint32_t handle, void *object);

/* The verbs that programs find by their context. */
void proxy_set_verbs(struct verbs_context *verbs);
void proxy_set_requests(struct ibv_context_ops *ops);

#endif /* TESTS_PROXY_CLIENT_H */
