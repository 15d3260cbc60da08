// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Direct verbs: what other devices do not have.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* What this header declares is seen outside, unlike the rest of the library. */
#pragma GCC visibility push(default)
#include "micdv.h"
#pragma GCC visibility pop

#include "direct.h"
#include "mic.h"
#include "windows.h"

static_assert((int)MICDV_WATCH_CHANGED == (int)MIC_WATCH_CHANGED &&
		      (int)MICDV_WATCH_PROTECTED == (int)MIC_WATCH_PROTECTED,
	      "the kernel's states are handed out");

struct window {
	struct micdv_window user;
	struct mic_windows *windows;
	struct mic_window window;
};

static struct window *to_window(const struct micdv_window *window)
{
	return container_of(window, struct window, user);
}

bool micdv_is_supported(struct ibv_device *device)
{
	return mic_is_device(device);
}

int micdv_query_device(struct ibv_context *context,
		       struct micdv_device_attr *attr)
{
	if (!mic_is_device(context->device))
		return EOPNOTSUPP;
	if (attr->comp_mask)
		return EINVAL;
	*attr = (struct micdv_device_attr){
		.caps = MICDV_CAP_DIRECT | MICDV_CAP_MAP_WINDOW |
			MICDV_CAP_WATCH,
		.max_windows = MIC_WINDOW_SLOTS,
		.max_window_size = 1ULL << MIC_WINDOW_CLASS_MAX,
	};
	return 0;
}

static int map_window(struct ibv_qp *qp, struct window *window,
		      struct mic_window_import *req, int prot, void *place)
{
	int ret;

	window->windows = mic_context_windows(to_mctx(qp->context));
	if (!window->windows)
		return errno;
	ret = mic_window_map_alone(window->windows, req, prot, place,
				   &window->window);
	if (ret)
		return ret;
	mic_windows_get(window->windows);
	window->user = (struct micdv_window){
		.addr = window->window.addr,
		.remote_addr = window->window.start,
		.length = window->window.length,
		.prot = prot,
	};
	return 0;
}

struct micdv_window *micdv_map_window_at(struct ibv_qp *qp,
					 uint64_t remote_addr, uint32_t rkey,
					 size_t length, int prot, void *addr)
{
	struct mic_window_import req = {
		.qpn = qp->qp_num,
		.rkey = rkey,
		.addr = remote_addr,
		.length = length,
		.access = IBV_ACCESS_REMOTE_READ,
	};
	struct window *window;
	int ret;

	if (!mic_is_device(qp->context->device)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!length ||
	    (prot != PROT_READ && prot != (PROT_READ | PROT_WRITE))) {
		errno = EINVAL;
		return NULL;
	}
	if (prot & PROT_WRITE)
		req.access |= IBV_ACCESS_REMOTE_WRITE;
	window = calloc(1, sizeof(*window));
	if (!window)
		return NULL;
	ret = map_window(qp, window, &req, prot, addr);
	if (ret) {
		free(window);
		errno = ret;
		return NULL;
	}
	return &window->user;
}

struct micdv_window *micdv_map_window(struct ibv_qp *qp, uint64_t remote_addr,
				      uint32_t rkey, size_t length, int prot)
{
	return micdv_map_window_at(qp, remote_addr, rkey, length, prot, NULL);
}

bool micdv_window_valid(const struct micdv_window *window)
{
	return !mic_window_state(&to_window(window)->window);
}

static int drop(struct window *window)
{
	mic_window_drop(window->windows, &window->window);
	mic_windows_put(window->windows);
	free(window);
	return 0;
}

int micdv_unmap_window(struct micdv_window *user)
{
	mic_window_unmap(to_window(user)->windows, &to_window(user)->window);
	return drop(to_window(user));
}

int micdv_release_window(struct micdv_window *user)
{
	return drop(to_window(user));
}

struct micdv_watch {
	struct mic_windows *windows;
	uint32_t slot;
};

struct micdv_watch *micdv_watch_memory(struct ibv_context *context, void *addr,
				       size_t length)
{
	struct micdv_watch *watch;
	int ret;

	if (!mic_is_device(context->device)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return NULL;
	watch->windows = mic_context_windows(to_mctx(context));
	ret = watch->windows ? mic_windows_watch(watch->windows, addr, length,
						 &watch->slot) :
			       errno;
	if (ret) {
		free(watch);
		errno = ret;
		return NULL;
	}
	mic_windows_get(watch->windows);
	return watch;
}

unsigned int micdv_watch_state(const struct micdv_watch *watch)
{
	return mic_windows_state(watch->windows, watch->slot);
}

void micdv_unwatch(struct micdv_watch *watch)
{
	mic_windows_unwatch(watch->windows, watch->slot);
	mic_windows_put(watch->windows);
	free(watch);
}

void *micdv_dm_addr(struct ibv_dm *dm)
{
	if (mic_is_device(dm->context->device))
		return to_mdm(dm)->map.addr;
	errno = EOPNOTSUPP;
	return NULL;
}

int micdv_query_qp(struct ibv_qp *qp, struct micdv_qp_attr *attr)
{
	if (!mic_is_device(qp->context->device))
		return EOPNOTSUPP;
	if (attr->comp_mask)
		return EINVAL;
	mic_direct_query(to_mqp(qp), attr);
	return 0;
}

int micdv_set_path(struct ibv_qp *qp, enum micdv_path path)
{
	if (!mic_is_device(qp->context->device))
		return EOPNOTSUPP;
	if (path != MICDV_PATH_ENGINE && path != MICDV_PATH_DIRECT &&
	    path != MICDV_PATH_RANDOM && path != MICDV_PATH_WORKER)
		return EINVAL;
	mic_direct_set_path(to_mqp(qp), path);
	return 0;
}
