/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Address handles.
 */
#ifndef MIC_AH_H
#define MIC_AH_H

#include <rdma/ib_verbs.h>

#include <mic/op.h>

struct mic_av;
struct mic_dev;

/**
 * struct mic_ah - address handle
 * @ibah: ib_core's part
 * @av: the engine's part, found by number under RCU
 * @handle: number, index in &mic_dev.ahs
 * @static_rate: what its maker asked for, to be queried only
 */
struct mic_ah {
	struct ib_ah ibah;
	struct mic_av *av;
	u32 handle;
	u8 static_rate;
};

static inline struct mic_ah *to_mic_ah(struct ib_ah *ibah)
{
	return container_of(ibah, struct mic_ah, ibah);
}

int mic_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *init,
		  struct ib_udata *udata);
int mic_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int mic_destroy_ah(struct ib_ah *ibah, u32 flags);
void mic_ah_add_gid(const struct ib_gid_attr *attr);
void mic_ah_del_gid(const struct ib_gid_attr *attr);

int mic_addr_from_attr(struct mic_addr *addr, const struct rdma_ah_attr *attr);
int mic_av_get(struct mic_dev *dev, u32 handle, const struct ib_pd *pd,
	       struct mic_addr *addr);

#endif /* MIC_AH_H */
