/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A path to another node of a region.
 */
#ifndef MIC_IVSHMEM_PATH_H
#define MIC_IVSHMEM_PATH_H

#include <linux/bitmap.h>
#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/wait.h>

#include "ivs.h"
#include "lane.h"
#include "wire.h"

/**
 * struct mic_sought - what a node's beacons are looked for by
 * @id: all of them have it
 * @addr: of each, in that machine; 0: there is none
 */
struct mic_sought {
	u8 id[16];
	u64 addr[MIC_REGION_BEACONS];
};

/**
 * struct mic_pending - an operation that waits for its answer
 * @op: operation, NULL if the slot is free
 * @gen: tells the slot's users apart
 * @copying: the data of a READ is copied, without the lock
 * @since: when it was sent, in jiffies
 * @got: bytes of a READ that have arrived
 */
struct mic_pending {
	struct mic_op *op;
	u16 gen;
	bool copying;
	u32 got;
	unsigned long since;
};

/* What a path counts. */
enum mic_path_stat {
	MIC_STAT_UP,			/* sessions */
	MIC_STAT_NONSENSE,		/* sessions that ended with nonsense */
	MIC_STAT_REQUEST_TX,		/* segments */
	MIC_STAT_REQUEST_RX,		/* records */
	MIC_STAT_RESPONSE_RX,		/* records */
	MIC_STAT_EXPIRED,		/* answers that did not come */
	MIC_STAT_FRAME_TX,
	MIC_STAT_FRAME_RX,
	MIC_STAT_NO_ROOM,		/* times that a lane was full */
	MIC_STAT_SLEEP,			/* times that the thread went to sleep */
	MIC_STAT_RING,			/* interrupts raised */
	MIC_STAT_POLLED,		/* records that programs took which poll */
	MIC_STAT_DELAYED,		/* answers that waited for a request */
	MIC_STAT_OVERDUE,		/* of these, in vain */
	MIC_PATH_STATS
};

/**
 * struct mic_served - a request of the other node, as it is carried out
 * @op: operation
 * @addr: its addresses
 * @seg: its data: one piece, in a lane
 * @data: list of @seg
 * @map: what is granted with MIC_OP_MAP
 * @extents: where the extents of that go, in a lane
 * @nextents: how many they are
 * @path: where it came from
 * @payload: bytes that came with it
 * @tag: to be returned
 * @flags: enum mic_rec_flags
 * @sent: how far the lane of requests was filled before
 */
struct mic_served {
	struct mic_op op;
	struct mic_addr addr;
	struct mic_seg seg;
	struct mic_sgl data;
	struct mic_map map;
	void *extents;
	u32 nextents;
	struct mic_path *path;
	u32 payload;
	u32 tag;
	u8 flags;
	u32 sent;
};

/**
 * enum mic_reap - which grants end
 * @MIC_REAP_OVER: what the other node has given back
 * @MIC_REAP_ALL: all
 * @MIC_REAP_LOST: all, as the region is not there any more; what is in its place says
 *	nothing of them, and is not written to
 */
enum mic_reap {
	MIC_REAP_OVER,
	MIC_REAP_ALL,
	MIC_REAP_LOST,
};

/**
 * struct mic_share - memory of this node that the other node may map
 * @grant: the holder's; NULL if that waits no longer
 * @piece: pages of the slice, with a reference
 * @extents: or others, with references; if there is neither, it is a part of the
 *	slice that another owner of the entry had granted
 * @gen: number of the grant, or of the last one
 * @owner: of the other node's entry
 * @used: there is a grant
 * @revoked: the other node has been told to give it back
 * @since: when, in jiffies
 * @told: when that was last, in jiffies
 */
struct mic_share {
	struct mic_grant *grant;
	struct mic_piece *piece;
	struct mic_extents *extents;
	u32 gen;
	u32 owner;
	bool used;
	bool revoked;
	unsigned long since;
	unsigned long told;
};

/**
 * struct mic_range - memory of another node that can be mapped
 * @aperture: where; NULL: nowhere
 * @start: first byte, as the other node has it
 * @end: behind the last
 * @offset: of @start in the aperture
 */
struct mic_range {
	struct mic_aperture *aperture;
	u64 start;
	u64 end;
	u64 offset;
};

/**
 * struct mic_path - to another node
 * @ivs: region
 * @slot: the other node's entry of the node table
 * @entry: that entry
 * @task: the thread
 * @rx_mutex: held by who receives, the thread or a program that polls; what follows
 *	is under it, but what has a lock of its own or is said to be the thread's.
 *	Only the thread changes @up
 * @polls: how often programs have polled
 * @polls_seen: the thread's: that, when it looked last
 * @leave_us: the thread's: for how long it leaves the path to them
 * @idle: the thread's, polling: since when nothing happens, or 0
 * @look: the thread's, polling: processor time of a look that finds nothing, ns
 * @cpu_time: the thread's, polling: processor time up to the last pause, ns
 * @term: &mic_ivs.term that the channels are used in
 *
 * @peer: owner of the entry, seen by the tick
 * @heartbeat: last seen, by the tick
 * @silence: since then
 * @alive: written by the tick
 *
 * @tx_ch: channel to the other node
 * @rx_ch: channel from it
 * @tx: lanes of @tx_ch; of requests under @tx_mutex, of responses under @rx_mutex,
 *	of frames under @net_lock
 * @rx: lanes of @rx_ch
 * @tx_mutex: serialises requests
 * @net_lock: serialises frames
 * @up: both sides agree on a session; changed under @tx_mutex and @net_lock
 * @broken: the other side wrote nonsense: begin anew
 * @stalled: a request waits for room for its answer
 * @cons: how far the other side had read its lanes when room was last looked for
 * @word: what the other side published when it was last looked at
 * @mine: this side's session
 * @seen: the other side's
 * @up_peer: owner of the entry when the path came up
 * @again: it does not come up before that, in jiffies
 * @doorbell: number to ring
 * @vector: vector to ring; -1: the other node polls
 * @rung: value of need_kick that was answered
 * @sleeps: value of need_kick given out last
 * @served: the request that is carried out
 * @group_ack: answer to the records that will have one answer
 * @group_rnr: when to try again, if that is RNR
 * @answer_lock: protects what follows, and the index published of the lane of responses
 * @answers: that index, when none waits any more
 * @delayed: there are some that wait for a request to go with; read anywhere
 * @delayed_until: no longer than that
 * @delay_timer: sees to that
 * @expire: when to look for what is overdue, in jiffies
 * @stuck: there has been no room in the request lane for long; under @tx_mutex
 * @net_stopped: the queue of the interface waits for room
 * @net_full: since when, in jiffies
 *
 * @node: the node while the path is up
 * @mac: address of its network interface
 * @gid_seq: of the GIDs that are known
 * @ngid: how many
 * @gids: GIDs
 * @gid_entry: their entries in the fabric
 *
 * @stat: counters
 * @ping: tag of the ping that is waited for; 0: none
 * @pong: its answer is there
 *
 * @lock: protects what follows
 * @used: slots in @pending that are taken
 * @pending: operations that wait for answers
 * @waiters: operations that wait for room
 * @waiting: since when the first of them does, in jiffies
 * @copied: a copy to the memory of an operation has ended
 *
 * @share_work: looks at @granted and @leased
 * @share_lock: protects @share, @nshares, @silent and what is written to @granted
 * @granted: table of what the other node may map; NULL if there are no slices
 * @share: what is behind it
 * @nshares: how many are in use
 * @silent: the other node has not acknowledged a grant in time
 * @leased: table of what the other node lets this one map
 * @lease: what is behind it, under mic_lease_lock
 * @nleases: how many there are, likewise
 * @unwanted: grants that nobody waits for, by their numbers; written under @rx_mutex
 * @maps: what was last written to the channel's word of that name
 * @maps_seen: the other node's, by the thread
 * @maps_at: when that was, in jiffies
 *
 * @range: the other node's memory in apertures, under mic_lease_lock
 * @reach: there is some
 * @sought: what was looked for, by the thread
 * @sought_at: when, in jiffies
 * @apertures: &mic_aperture_changes then
 * @aperture_entry: in the list of all paths, under mic_lease_lock
 */
struct mic_path {
	struct mic_ivs *ivs;
	u32 slot;
	const struct mic_region_node *entry;
	struct task_struct *task;
	struct mutex rx_mutex;
	u32 polls;
	u32 polls_seen;
	u32 leave_us;
	ktime_t idle;
	u64 look;
	u64 cpu_time;
	u32 term;

	u32 peer;
	u64 heartbeat;
	struct mic_silence silence;
	bool alive;

	struct mic_region_channel *tx_ch;
	struct mic_region_channel *rx_ch;
	struct mic_lane_tx tx[MIC_LANES];
	struct mic_lane_rx rx[MIC_LANES];
	struct mutex tx_mutex;
	spinlock_t net_lock;
	bool up;
	bool broken;
	bool stalled;
	u32 cons[MIC_LANES];
	u64 word;
	u32 mine;
	u32 seen;
	u32 up_peer;
	unsigned long again;
	u32 doorbell;
	int vector;
	u32 rung;
	u32 sleeps;
	struct mic_served served;
	u8 group_ack;
	u8 group_rnr;
	spinlock_t answer_lock;
	u32 answers;
	bool delayed;
	ktime_t delayed_until;
	struct hrtimer delay_timer;
	unsigned long expire;
	bool stuck;
	bool net_stopped;
	unsigned long net_full;

	struct mic_node *node;
	u8 mac[ETH_ALEN];
	u32 gid_seq;
	int ngid;
	struct mic_gid_info gids[MIC_REGION_GIDS];
	struct mic_gid_entry *gid_entry[MIC_REGION_GIDS];

	atomic64_t stat[MIC_PATH_STATS];
	u32 ping;
	struct completion pong;

	spinlock_t lock;
	DECLARE_BITMAP(used, MIC_IVS_PENDING);
	struct mic_pending pending[MIC_IVS_PENDING];
	struct list_head waiters;
	unsigned long waiting;
	wait_queue_head_t copied;

	struct work_struct share_work;
	spinlock_t share_lock;
	struct mic_region_map *granted;
	struct mic_share *share;
	u32 nshares;
	bool silent;
	struct mic_region_map *leased;
	struct mic_lease *lease[MIC_MAP_SLOTS];
	u32 nleases;
	u32 unwanted[MIC_MAP_SLOTS];
	atomic_t maps;
	u32 maps_seen;
	unsigned long maps_at;

	struct mic_range range[MIC_REGION_BEACONS];
	bool reach;
	struct mic_sought sought;
	unsigned long sought_at;
	u32 apertures;
	struct list_head aperture_entry;
};

static inline void mic_path_count(struct mic_path *path,
				  enum mic_path_stat stat, u32 by)
{
	atomic64_add(by, &path->stat[stat]);
}

/*
 * Is the path up, with channels that are this node's? A machine that was stopped may
 * have lost them, and processes run before the path's thread does.
 */
static inline bool mic_path_may_send(struct mic_path *path)
{
	return READ_ONCE(path->up) && mic_ivs_term(path->ivs) == path->term;
}

/* path.c: one path and its session */
struct mic_path *mic_path_create(struct mic_ivs *ivs, u32 slot);
void mic_path_destroy(struct mic_path *path);
void mic_path_park(struct mic_path *path);
void mic_path_unpark(struct mic_path *path);
void mic_path_look(struct mic_path *path);
void mic_path_wake(struct mic_path *path);
void mic_path_ring(struct mic_path *path);
void mic_path_ring_always(struct mic_path *path);
void mic_path_break(struct mic_path *path);
void mic_path_control(struct mic_path *path);
void mic_path_go_down(struct mic_path *path);
bool mic_path_is_in_session(const struct mic_path *path);
int mic_path_room(struct mic_path *path, struct mic_lane_tx *lane, u32 bytes);

/* receive.c: what the other node has sent */
int mic_path_thread(void *arg);
int mic_path_poll(struct mic_node *node);

/* remote.c: operations at the other node */
extern const struct mic_node_ops mic_remote_ops;
int mic_remote_response(struct mic_path *path, const struct mic_rec *rec,
			const void *at);
void mic_remote_room(struct mic_path *path);
void mic_remote_expire(struct mic_path *path);
void mic_remote_fail(struct mic_path *path);
int mic_remote_ping(struct mic_path *path);
int mic_remote_await_pong(struct mic_path *path, unsigned long end);

/* answer.c: what it is answered */
void mic_answer_init(struct mic_path *path);
void mic_answer_exit(struct mic_path *path);
u64 mic_answer_delay_ns(void);
void mic_answer_commit(struct mic_path *path, u32 bytes);
void mic_answer_commit_later(struct mic_path *path, u32 bytes, u64 ns, u32 sent);
void mic_answer_flush(struct mic_path *path);
void mic_answer_forget(struct mic_path *path);

/* serve.c: what the other node asks for */
int mic_serve_request(struct mic_path *path, const struct mic_rec *rec,
		      const void *at);

/* share.c: what nodes let each other map */
int mic_share_init(struct mic_path *path);
void mic_share_tell(struct mic_path *path);
void mic_share_abandon(struct mic_path *path);
void mic_share_exit(struct mic_path *path);
void mic_share_wake(struct mic_path *path);
void mic_share_await(struct mic_ivs *ivs);
void mic_share_flush(struct mic_path *path);
void mic_share_look(struct mic_path *path);

/* grant.c: what this node lets the other one map */
int mic_grant_open(struct mic_path *path, struct mic_grant *grant,
		   struct mic_map *map);
bool mic_grant_reap(struct mic_path *path, u32 slot, enum mic_reap reap);
bool mic_grant_any(struct mic_path *path);
void mic_grant_inherit(struct mic_path *path);

/* lease.c: what the other node lets this one map */
int mic_lease_attach(struct mic_node *node, struct mic_lease *lease,
		     const struct mic_map *map);
void mic_lease_disown(struct mic_path *path, const struct mic_map *map);
void mic_lease_take_away(struct mic_path *path, phys_addr_t start,
			 phys_addr_t end);
bool mic_lease_obey(struct mic_path *path);

/* aperture.c: other nodes' memory as it is */
bool mic_has_apertures(void);
int mic_aperture_names_check(void);
bool mic_is_aperture(const struct pci_dev *pdev);
int mic_aperture_probe(struct pci_dev *pdev);
void mic_aperture_remove(struct pci_dev *pdev);
void mic_aperture_add_path(struct mic_path *path);
void mic_aperture_del_path(struct mic_path *path);
void mic_aperture_find(struct mic_path *path);
void mic_aperture_look(struct mic_path *path);
int mic_aperture_lease(const struct mic_path *path, struct mic_lease *lease,
		       const struct mic_map *map);

#endif /* MIC_IVSHMEM_PATH_H */
