/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Nodes that share a PCI memory region: the device, and this node in it.
 */
#ifndef MIC_IVSHMEM_IVS_H
#define MIC_IVSHMEM_IVS_H

#include <linux/jiffies.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include <mic/fabric.h>
#include <mic/share.h>

#include "lane.h"
#include "layout.h"
#include "wire.h"

#define MIC_IVS_BAR_REGS	0
#define MIC_IVS_BAR_REGION	2

struct mic_aperture;
struct mic_path;

enum mic_ivs_limits {
	MIC_IVS_VECTORS = 8,
	MIC_IVS_PENDING = 1024,		/* answers a path can wait for */
	MIC_IVS_CHUNK = 32 << 10,	/* data of one record */
	MIC_IVS_TICK_MS = 100,		/* between heartbeats */
	MIC_IVS_ANSWER_MS = 10000,	/* after that an answer is lost */
	MIC_IVS_PASS_MS = 20,		/* others go before a waiter no longer */
	MIC_IVS_RECALL_MS = 1000,	/* from recall to recall of the same grant */
	MIC_IVS_STUCK_MS = 1000,	/* without room, so do datagrams */
	MIC_GIDS_UNREAD = 1,		/* odd: no sequence that can be read */
	MIC_IVS_SESSION_MS = 200,	/* from session to session, at least */
};

/**
 * struct mic_silence - how long another node has not changed something
 * @since: since when, in jiffies, or later: see mic_silence_is_over()
 * @looked: when it was looked at last, in jiffies
 */
struct mic_silence {
	unsigned long since;
	unsigned long looked;
};

static inline void mic_silence_begin(struct mic_silence *silence)
{
	silence->since = jiffies;
	silence->looked = silence->since;
}

/**
 * mic_silence_is_over - has it lasted for so long?
 * @silence: silence that is looked at now and then
 * @ms: milliseconds
 *
 * Who has stood still himself can't tell whether the other node has, too, which is what
 * machines of a busy host do: time in which nobody looked counts as two beats.
 *
 * Return: true if it has.
 */
static inline bool mic_silence_is_over(struct mic_silence *silence, unsigned int ms)
{
	const unsigned long most = msecs_to_jiffies(2 * MIC_IVS_TICK_MS);
	unsigned long passed = jiffies - silence->looked;

	silence->looked += passed;
	if (passed > most)
		silence->since += passed - most;
	return time_after(silence->looked, silence->since + msecs_to_jiffies(ms));
}

/**
 * struct mic_geometry - where things are in the region; checked
 * @nodes: entries of the node table
 * @lane_size: bytes
 * @table: offset
 * @channels: offset
 * @lanes: offset
 * @slices: offset
 * @slice_size: bytes
 */
struct mic_geometry {
	u32 nodes;
	u32 lane_size;
	u64 table;
	u64 channels;
	u64 lanes;
	u64 slices;
	u64 slice_size;
};

/**
 * struct mic_ivs - a region, and this node in it
 * @pdev: PCI device
 * @regs: its registers
 * @mem: the region
 * @mem_size: bytes of it that the device has
 * @size: bytes of it, as its header says
 * @phys: where it is
 * @geo: where things are
 * @id: the region's
 * @slot: this node's entry of the node table
 * @owner: what it was taken with
 * @term: how often it was taken; 0 while another has it
 * @terms: how often it was taken, also while another has it
 * @beacon: place in this machine's beacons
 * @other: owner that took it from this node
 * @other_beat: that one's heartbeat
 * @other_silence: since when it has not changed
 * @elsewhere: the region was found to be another one, without this node
 * @lock_holder: whom the header's lock was seen with last
 * @lock_silence: since when that has not changed
 * @vectors: interrupts; 0: poll
 * @irq: their numbers
 * @doorbell: number that rings this node
 * @ndev: network interface
 * @tick: heartbeat, and what is looked at now and then
 * @asleep: the machine is suspended: no tick
 * @interrupts: how many came, of each
 * @gids_changed: tells when GIDs are to be published anew
 * @gids_dirty: they are
 * @gid_seq: of the GIDs that are published
 * @ngid: how many
 * @gids: GIDs
 * @gid_info: room for the tick to list them, which does not wait for memory
 * @path: to the other nodes, by slot; NULL for this one
 * @pool: this node's slice
 * @pool_lock: protects @pool_used
 * @pool_used: pages that are allocated
 * @pool_pages: how many there are
 * @inherited: grants of other owners of @slot that are not over
 */
struct mic_ivs {
	struct pci_dev *pdev;
	void __iomem *regs;
	void *mem;
	u64 mem_size;
	u64 size;
	phys_addr_t phys;
	struct mic_geometry geo;
	u32 id;
	u32 slot;
	u32 owner;
	u32 term;
	u32 terms;
	u32 beacon;
	u32 other;
	u64 other_beat;
	struct mic_silence other_silence;
	bool elsewhere;
	u32 lock_holder;
	struct mic_silence lock_silence;
	int vectors;
	int irq[MIC_IVS_VECTORS];
	u32 doorbell;
	struct net_device *ndev;
	struct delayed_work tick;
	bool asleep;
	atomic_t interrupts[MIC_IVS_VECTORS];
	struct notifier_block gids_changed;
	bool gids_dirty;
	u32 gid_seq;
	u32 ngid;
	struct mic_region_gid gids[MIC_REGION_GIDS];
	struct mic_gid_info gid_info[MIC_REGION_GIDS];
	struct mic_path *path[MIC_REGION_NODES];
	struct mic_pool pool;
	struct mutex pool_lock;
	unsigned long *pool_used;
	u32 pool_pages;
	atomic_t inherited;
};

/**
 * struct mic_net - an interface's private part
 * @ivs: region
 * @lock: protects @gone, held while the carrier changes
 * @gone: the interface is being unregistered
 */
struct mic_net {
	struct mic_ivs *ivs;
	spinlock_t lock;
	bool gone;
};

static inline struct mic_ivs *mic_net_ivs(const struct net_device *ndev)
{
	return ((struct mic_net *)netdev_priv(ndev))->ivs;
}

static inline struct mic_region_node *mic_region_node(struct mic_ivs *ivs,
						      u32 slot)
{
	return ivs->mem + ivs->geo.table +
	       slot * sizeof(struct mic_region_node);
}

/**
 * mic_ivs_term - does this node hold its entry, and its channels with it?
 * @ivs: device
 *
 * Looks into the region: a machine that was stopped finds out there first, and
 * only with the next tick by &mic_ivs.term.
 *
 * Return: &mic_ivs.term; 0: another node has it.
 */
static inline u32 mic_ivs_term(struct mic_ivs *ivs)
{
	if (READ_ONCE(mic_region_node(ivs, ivs->slot)->owner) != ivs->owner)
		return 0;
	return READ_ONCE(ivs->term);
}

/* Where a node's slice begins. */
static inline u64 mic_slice_offset(const struct mic_ivs *ivs, u32 slot)
{
	return ivs->geo.slices + slot * ivs->geo.slice_size;
}

/* Slices that have room for more than their tables. */
static inline bool mic_ivs_has_slices(const struct mic_ivs *ivs)
{
	return ivs->geo.slice_size > MIC_SLICE_TABLE;
}

/* main.c: the PCI device */
extern struct workqueue_struct *mic_share_wq;
void mic_ivs_ring(struct mic_ivs *ivs, u32 doorbell, u32 vector);

/* sysfs.c: what programs ask of a region */
extern const struct attribute_group *mic_ivs_groups[];

/* header.c: the region's header */
int mic_region_attach(struct mic_ivs *ivs);
bool mic_region_stands(const struct mic_ivs *ivs);
bool mic_region_is_same(struct mic_ivs *ivs);
bool mic_region_take_back(struct mic_ivs *ivs);
void mic_region_restore(struct mic_ivs *ivs);

/* region.c: this node's entry */
extern uint mic_dead_ms;
u32 mic_region_random(void);
int mic_region_join(struct mic_ivs *ivs);
void mic_region_leave(struct mic_ivs *ivs);
void mic_region_announce(struct mic_ivs *ivs);
bool mic_region_beat(struct mic_ivs *ivs);
bool mic_region_retake(struct mic_ivs *ivs);
void mic_region_publish_gids(struct mic_ivs *ivs);
bool mic_region_gids_stand(struct mic_ivs *ivs);
int mic_region_read_gids(const struct mic_region_node *entry, u32 *seq,
			 struct mic_gid_info *info);

/* pool.c: device memory */
int mic_pool_create(struct mic_ivs *ivs);
void mic_pool_destroy(struct mic_ivs *ivs);

/* beacon.c: what other nodes find this one's memory by */
void mic_beacons_create(void);
void mic_beacons_destroy(void);
void mic_beacons_join(struct mic_ivs *ivs);
void mic_beacons_leave(struct mic_ivs *ivs);
void mic_beacons_announce(struct mic_ivs *ivs);

/* net.c: the network interface */
int mic_net_create(struct mic_ivs *ivs);
void mic_net_unregister(struct mic_ivs *ivs);
void mic_net_free(struct mic_ivs *ivs);
void mic_net_set_carrier(struct mic_ivs *ivs, bool on);
void mic_net_receive(struct mic_path *path, const struct mic_rec *rec,
		     const void *at);
void mic_net_room(struct mic_path *path);
void mic_net_wake(struct mic_path *path);

/* ethtool.c: counters and the self-test */
extern const struct ethtool_ops mic_net_ethtool_ops;

#endif /* MIC_IVSHMEM_IVS_H */
