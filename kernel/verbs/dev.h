/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The RDMA device.
 */
#ifndef MIC_DEV_H
#define MIC_DEV_H

#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

#include <mic/fabric.h>

#include "../engine/poll.h"
#include "counters.h"
#include "keys.h"

enum mic_limits {
	MIC_MAX_QP = 65536,
	MIC_MAX_WR = 32768,		/* elements of a work queue */
	MIC_MAX_SGE = 32,
	MIC_MAX_INLINE = 512,		/* bytes */
	MIC_MAX_CQ = 65536,
	MIC_MAX_CQE = 1 << 22,
	MIC_MAX_MR = 1 << 20,
	MIC_MAX_MW = 1 << 20,
	MIC_MAX_PD = 65536,
	MIC_MAX_AH = 65536,
	MIC_MAX_SRQ = 65536,
	MIC_MAX_RD_ATOM = 128,
	MIC_MAX_FAST_REG_PAGES = 512,
	MIC_MAX_GID = 32,
	MIC_MAX_DM = 256 << 20,		/* bytes of device memory */
	MIC_MAX_PKEY = 1,
	MIC_MAX_MCAST_GROUPS = 8192,
	MIC_MAX_MCAST_ATTACH = 8192,
};

/**
 * struct mic_dev - an RDMA device on a netdev
 * @ibdev: ib_core's part
 * @ndev: the netdev it was made on, a reference is held
 * @port_event: what consumers know of the port, under the RTNL
 * @node: its end of the fabric
 * @qps: QPs by number
 * @mkeys: memory keys by index (key >> 8)
 * @ahs: address handles by index
 * @srqs: XRC SRQs by number
 * @members: QPs in multicast groups, by mic_mgid_hash()
 * @members_lock: serialises changes of @members and @nmembers
 * @nmembers: entries of @members
 * @next_qpn: where the search for a free QP number starts
 * @keys: which memory key is the next one
 * @next_ah: where the search for a free address handle starts, under the lock of @ahs
 * @next_srqn: where the search for a free SRQ number starts
 * @nqp: number of QPs
 * @ncq: number of CQs
 * @nmr: number of MRs
 * @npd: number of PDs
 * @nah: number of address handles
 * @nsrq: number of SRQs
 * @nmw: number of memory windows
 * @dm_bytes: device memory handed out, and still mapped
 * @counters: events counted per CPU
 * @poller: polls send queues
 * @direct_lock: protects @direct, and keeps @qps from losing one
 * @direct: what processes said of queue pairs that are gone, or before they were bound
 *	to a counter
 * @qp_counters: &struct mic_qp_counter by their numbers
 * @counted_before: sums of those that are gone, under @direct_lock
 * @debugfs: its folder there
 * @leaving: to be removed, or to another netns: nobody may wait long any more
 */
struct mic_dev {
	struct ib_device ibdev;
	struct net_device *ndev;
	enum ib_event_type port_event;
	struct mic_node *node;
	struct xarray qps;
	struct xarray mkeys;
	struct xarray ahs;
	struct xarray srqs;
	DECLARE_HASHTABLE(members, MIC_MCAST_HASH_BITS);
	struct mutex members_lock;
	u32 nmembers;
	u32 next_qpn;
	struct mic_keys keys;
	u32 next_ah;
	u32 next_srqn;
	atomic_t nqp;
	atomic_t ncq;
	atomic_t nmr;
	atomic_t npd;
	atomic_t nah;
	atomic_t nsrq;
	atomic_t nmw;
	atomic_long_t dm_bytes;
	struct mic_counters __percpu *counters;
	struct mic_poller poller;
	struct mutex direct_lock;
	u64 direct[MIC_DIRECT_COUNTS];
	struct xarray qp_counters;
	u64 counted_before[MIC_CNT_MAX];
	struct dentry *debugfs;
	bool leaving;
};

static inline struct mic_dev *to_mic_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct mic_dev, ibdev);
}

/* Count one more object; fails at the limit. */
static inline int mic_limit_get(atomic_t *count, int max)
{
	return atomic_add_unless(count, 1, max) ? 0 : -ENOMEM;
}

/**
 * mic_xa_load - xa_load() within an RCU section that there is already
 * @xa: array of pointers
 * @index: unchecked
 *
 * It is on the way of each request, several times, and xa_load() has a section of its
 * own.
 *
 * Return: the entry, or NULL.
 */
static inline void *mic_xa_load(struct xarray *xa, unsigned long index)
{
	XA_STATE(xas, xa, index);
	void *entry;

	do {
		entry = xas_load(&xas);
		if (xa_is_zero(entry))
			entry = NULL;	/* reserved only */
	} while (xas_retry(&xas, entry));
	return entry;
}

int mic_dev_create(const char *name, struct net_device *ndev);

/*
 * What runs queue pairs that nobody else does: of the kernel, and of processes. Of each
 * so many run at once, and a process can have those of its queue pairs wait.
 */
extern struct workqueue_struct *mic_wq;
extern struct workqueue_struct *mic_user_wq;

/* port.c */
void mic_get_dev_fw_str(struct ib_device *ibdev, char *str);
int mic_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
		     struct ib_udata *udata);
int mic_modify_device(struct ib_device *ibdev, int mask,
		      struct ib_device_modify *attr);
int mic_query_port(struct ib_device *ibdev, u32 port,
		   struct ib_port_attr *attr);
int mic_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey);
int mic_get_port_immutable(struct ib_device *ibdev, u32 port,
			   struct ib_port_immutable *immutable);
enum rdma_link_layer mic_get_link_layer(struct ib_device *ibdev, u32 port);
int mic_add_gid(const struct ib_gid_attr *attr, void **context);
int mic_del_gid(const struct ib_gid_attr *attr, void **context);
u32 mic_port_mtu(struct mic_dev *dev);
void mic_port_event(struct mic_dev *dev, enum ib_event_type type);

/* selftest.c */
int mic_selftest(struct mic_node *node);

/* netdev.c */
int mic_enable_driver(struct ib_device *ibdev);
int mic_netdev_init(void);
void mic_netdev_exit(void);

#endif /* MIC_DEV_H */
