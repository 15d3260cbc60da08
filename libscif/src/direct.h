/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * The direct verbs of the mic device.
 */
#ifndef SCIF_DIRECT_H
#define SCIF_DIRECT_H

#include "../../providers/mic/micdv.h"
#include "internal.h"

struct scif_direct {
	bool (*is_supported)(struct ibv_device *device);
	struct micdv_window *(*map)(struct ibv_qp *qp, uint64_t addr,
				    uint32_t rkey, size_t length, int prot,
				    void *place);
	int (*unmap)(struct micdv_window *window);
	int (*release)(struct micdv_window *window); /* NULL: libmic is older */
	bool (*is_valid)(const struct micdv_window *window);
	struct micdv_watch *(*watch)(struct ibv_context *ctx, void *addr,
				     size_t length);
	unsigned int (*watch_state)(const struct micdv_watch *watch);
	void (*unwatch)(struct micdv_watch *watch);
	void *(*dm_addr)(struct ibv_dm *dm); /* NULL: libmic is older */
	int (*query_qp)(struct ibv_qp *qp, struct micdv_qp_attr *attr);
	int (*set_path)(struct ibv_qp *qp, enum micdv_path path);
};

/* Those of a device, or NULL if it has none. */
const struct scif_direct *scif_direct_find(struct ibv_context *ctx);

#endif /* SCIF_DIRECT_H */
