/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * On-demand paging: regions whose pages are looked up at each access.
 */
#ifndef MIC_ODP_H
#define MIC_ODP_H

#include <rdma/ib_verbs.h>

#include "mr.h"

/* How long an access rests whose pages are not at hand: 0.64 ms, IBA table 45 */
#define MIC_ODP_RNR_TIMER	12
#define MIC_ODP_REST_NS		(640 * NSEC_PER_USEC)

/**
 * struct mic_pin - pages that are kept in place for one access
 * @next: others of the same access
 * @win: the pages as a window
 * @npages: how many they are
 * @write: they may have been written
 * @page: pages; behind them the table of @win
 */
struct mic_pin {
	struct mic_pin *next;
	struct mic_window win;
	u32 npages;
	bool write;
	struct page *page[];
};

int mic_odp_pin_pages(struct mic_mkey *mkey, struct mic_seg *seg,
		      u32 from, u32 to, bool write, struct mic_pin **pins);
void mic_odp_unpin_pages(struct mic_pin **pins);

/**
 * mic_odp_pin - make a piece of a region fit to be copied
 * @mkey: key of the region, held by the caller
 * @seg: piece, from mic_mkey_seg()
 * @from: first byte of the piece that is going to be copied
 * @to: first byte after
 * @write: it is going to be written
 * @pins: list of what mic_odp_unpin() has to let go
 *
 * Costs nothing where the region is pinned for good.
 *
 * Context: process context; does not wait for the owner of the memory.
 * Return: 0, -EFAULT if there is no such memory, -EAGAIN if it is not at hand,
 * or there is no memory for what it takes.
 */
static inline int mic_odp_pin(struct mic_mkey *mkey, struct mic_seg *seg,
			      u32 from, u32 to, bool write,
			      struct mic_pin **pins)
{
	return likely(!mkey->mm) ? 0 :
		mic_odp_pin_pages(mkey, seg, from, to, write, pins);
}

/**
 * mic_odp_unpin - the access is over
 * @pins: list, empty afterwards
 */
static inline void mic_odp_unpin(struct mic_pin **pins)
{
	if (unlikely(*pins))
		mic_odp_unpin_pages(pins);
}

struct ib_mr *mic_odp_reg_mr(struct ib_pd *ibpd, u64 start, u64 length,
			     u64 iova, int access);
void mic_odp_release(struct mic_mr *mr);
void mic_odp_caps(struct ib_device_attr *attr);
int mic_advise_mr(struct ib_pd *ibpd, enum ib_uverbs_advise_mr_advice advice,
		  u32 flags, struct ib_sge *sg_list, u32 num_sge,
		  struct uverbs_attr_bundle *attrs);

/* odp_fault.c */
int mic_pin_fill(struct mic_mr *mr, struct mic_pin *pin, u64 va);
void mic_fault_advise(struct mic_mr *mr, u64 va, u32 npages, bool write);
kuid_t mic_fault_user(void);
void mic_fault_forget(struct mic_mr *mr);
int mic_fault_init(void);
void mic_fault_exit(void);

/* odp_unpin.c */
void mic_pin_free(struct mic_pin *pin);
void mic_unpin_exit(void);

#endif /* MIC_ODP_H */
