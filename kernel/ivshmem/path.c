// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A path to another node: how the two agree on a session.
 *
 * Each side publishes one word: its own session, and the other side's that it
 * has seen. Before a side publishes a new session it has emptied the lanes that
 * it writes; before it publishes that it has seen one, those that it reads. So
 * once each has seen the other's, both begin with empty lanes. A side that
 * loses the other, or can't make sense of it, takes a new session, and by that
 * the other side loses it as well.
 */
#include <linux/etherdevice.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "path.h"

/**
 * mic_path_wake - have the thread look at what there is
 * @path: path
 *
 * Context: any.
 */
void mic_path_wake(struct mic_path *path)
{
	wake_up_process(path->task);
}

/**
 * mic_path_ring_always - interrupt the other node
 * @path: path; nothing happens if the other node polls
 *
 * Context: any.
 */
void mic_path_ring_always(struct mic_path *path)
{
	int vector = READ_ONCE(path->vector);

	if (vector < 0)
		return;
	mic_path_count(path, MIC_STAT_RING, 1);
	mic_ivs_ring(path->ivs, READ_ONCE(path->doorbell), vector);
}

/**
 * mic_path_ring - interrupt the other node if it sleeps
 * @path: path
 *
 * Called after something was published. Once for each sleep is enough.
 *
 * Context: any.
 */
void mic_path_ring(struct mic_path *path)
{
	u32 need_kick;

	virt_mb();	/* what was published, then the look at need_kick */
	need_kick = READ_ONCE(path->tx_ch->need_kick);
	if (!need_kick || need_kick == READ_ONCE(path->rung))
		return;
	/* rung first: who finds the note relies on it */
	mic_path_ring_always(path);
	WRITE_ONCE(path->rung, need_kick);
}

/**
 * mic_path_break - the other side wrote nonsense
 * @path: path; the thread takes it down
 */
void mic_path_break(struct mic_path *path)
{
	if (!READ_ONCE(path->broken))
		dev_warn_ratelimited(&path->ivs->pdev->dev,
				     "node %u writes nonsense\n", path->slot);
	WRITE_ONCE(path->broken, true);
	mic_path_wake(path);
}

/**
 * mic_path_is_in_session - is the other node in the session that is known?
 * @path: path that is up
 *
 * It says that it is not before it changes anything in the lanes, so what makes no
 * sense there is nonsense only if this is asked afterwards, and true.
 *
 * Context: any.
 */
bool mic_path_is_in_session(const struct mic_path *path)
{
	virt_rmb();	/* what is in the lanes, then the word */
	return READ_ONCE(path->rx_ch->session) == READ_ONCE(path->word);
}

/**
 * mic_path_room - room in a lane, or word when there is some
 * @path: path
 * @lane: one of @path's lanes; the caller serialises its writers
 * @bytes: as for mic_lane_room()
 *
 * Return: 1; 0: the thread is going to look for room; -EIO: the path is broken, or
 * the other node has begun a new session.
 */
int mic_path_room(struct mic_path *path, struct mic_lane_tx *lane, u32 bytes)
{
	int room = mic_lane_room(lane, bytes);

	if (!room) {
		mic_path_count(path, MIC_STAT_NO_ROOM, 1);
		WRITE_ONCE(path->tx_ch->want_room, 1);
		virt_mb();	/* the wish, then another look */
		room = mic_lane_room(lane, bytes);
	}
	/* in a new session it has not read anything yet */
	if (room < 0 && mic_path_is_in_session(path))
		mic_path_break(path);
	return room;
}

static u64 mic_path_word(const struct mic_path *path)
{
	return (u64)path->seen << 32 | path->mine;
}

static void mic_path_publish(struct mic_path *path)
{
	/* the emptied lanes before the word */
	virt_store_release(&path->tx_ch->session, mic_path_word(path));
	mic_path_ring_always(path);
}

/* A new session: nobody but the thread writes to the lanes now. */
static void mic_path_begin(struct mic_path *path)
{
	int i;

	/* who still looks at the lanes is to see that it is over */
	WRITE_ONCE(path->tx_ch->session, 0);
	virt_wmb();	/* that before the emptied lanes */
	for (i = 0; i < MIC_LANES; i++)
		mic_lane_tx_reset(&path->tx[i]);
	WRITE_ONCE(path->tx_ch->want_room, 0);
	path->mine = get_random_u32() ?: 1;
	path->seen = 0;
	mic_path_publish(path);
}

static void mic_path_set_up(struct mic_path *path, bool up)
{
	mutex_lock(&path->tx_mutex);
	spin_lock_bh(&path->net_lock);
	WRITE_ONCE(path->up, up);
	WRITE_ONCE(path->net_stopped, false);
	path->stuck = false;
	spin_unlock_bh(&path->net_lock);
	mutex_unlock(&path->tx_mutex);
}

static void mic_path_drop_gids(struct mic_path *path)
{
	while (path->ngid)
		mic_node_del_gid(path->gid_entry[--path->ngid]);
}

/**
 * struct mic_path_gids - GIDs of a node
 * @n: how many
 * @info: GIDs
 * @entry: their entries in the fabric
 */
struct mic_path_gids {
	int n;
	struct mic_gid_info info[MIC_REGION_GIDS];
	struct mic_gid_entry *entry[MIC_REGION_GIDS];
};

/* All of them, or none. */
static bool mic_path_add_gids(struct mic_path *path, struct mic_path_gids *gids)
{
	int i;

	for (i = 0; i < gids->n; i++) {
		gids->entry[i] = mic_node_add_remote_gid(path->node,
							 &gids->info[i],
							 path->ivs->ndev);
		if (!IS_ERR(gids->entry[i]))
			continue;
		while (i--)
			mic_node_del_gid(gids->entry[i]);
		return false;
	}
	return true;
}

/*
 * The other node's GIDs have changed, or are looked at for the first time. Those that
 * stay are twice there for a moment: who sends to them always finds them.
 */
static void mic_path_read_gids(struct mic_path *path)
{
	struct mic_path_gids *gids;
	u32 seq = path->gid_seq;

	if (READ_ONCE(path->entry->gid_seq) == seq)
		return;
	gids = kzalloc(sizeof(*gids), GFP_KERNEL);
	if (!gids)
		return;
	gids->n = mic_region_read_gids(path->entry, &seq, gids->info);
	if (gids->n >= 0 && mic_path_add_gids(path, gids)) {
		mic_path_drop_gids(path);
		memcpy(path->gids, gids->info, sizeof(path->gids));
		memcpy(path->gid_entry, gids->entry, sizeof(path->gid_entry));
		path->ngid = gids->n;
		path->gid_seq = seq;
	}
	kfree(gids);
}

/*
 * How the other node is reached. Again and again: anybody can write there, and when
 * its node has repaired it that is to count. Return: whether it has an address.
 */
static bool mic_path_read_entry(struct mic_path *path)
{
	u32 vectors = READ_ONCE(path->entry->vectors);
	u8 mac[ETH_ALEN];

	WRITE_ONCE(path->doorbell, READ_ONCE(path->entry->doorbell) & 0xffff);
	WRITE_ONCE(path->vector, vectors && vectors <= MIC_IVS_VECTORS ?
		   (int)(path->ivs->slot % vectors) : -1);
	memcpy(mac, path->entry->mac, sizeof(mac));
	barrier();	/* one copy, which is then checked */
	if (!is_valid_ether_addr(mac))
		return false;
	/* who looks for an address meanwhile may miss this one once */
	if (memcmp(path->mac, mac, sizeof(mac)))
		memcpy(path->mac, mac, sizeof(mac));
	return true;
}

static void mic_path_go_up(struct mic_path *path)
{
	struct mic_node *node;

	node = mic_node_create(&mic_remote_ops, path);
	if (IS_ERR(node))
		return;
	if (mic_mcast_join_all(node, path->ivs->ndev)) {
		mic_node_leave(node);
		return;
	}
	path->node = node;
	path->group_ack = MIC_ACK_OK;
	path->gid_seq = MIC_GIDS_UNREAD;
	path->up_peer = READ_ONCE(path->peer);
	path->again = jiffies + msecs_to_jiffies(MIC_IVS_SESSION_MS);
	path->rung = 0;
	WRITE_ONCE(path->broken, false);
	mic_path_count(path, MIC_STAT_UP, 1);
	mic_aperture_find(path);
	mic_path_set_up(path, true);
	mic_path_read_gids(path);
	dev_info_ratelimited(&path->ivs->pdev->dev, "node %u is there\n",
			     path->slot);
}

/**
 * mic_path_go_down - the other node is gone
 * @path: path that is up
 *
 * Context: the path's thread, with &mic_path.rx_mutex held.
 */
void mic_path_go_down(struct mic_path *path)
{
	mic_path_set_up(path, false);
	mic_answer_forget(path);
	mic_path_drop_gids(path);
	mic_mcast_leave_all(path->node);
	mic_node_leave(path->node);
	path->node = NULL;
	mic_remote_fail(path);
	mic_net_wake(path);
	mic_share_wake(path);
	mic_path_count(path, MIC_STAT_NONSENSE, path->broken);
	WRITE_ONCE(path->broken, false);
	/* an entry that another has now has its channels, too */
	if (mic_ivs_term(path->ivs) == path->term)
		mic_path_begin(path);
	else
		path->term = 0;
	dev_info_ratelimited(&path->ivs->pdev->dev, "node %u is gone\n",
			     path->slot);
}

/* The other side has a session that was not seen before. */
static void mic_path_see(struct mic_path *path, u32 session)
{
	int i;

	if (!mic_path_read_entry(path))
		return;
	for (i = 0; i < MIC_LANES; i++)
		mic_lane_rx_reset(&path->rx[i]);
	path->seen = session;
	mic_path_publish(path);
}

/* Is all as it was when the path came up? */
static bool mic_path_stands(const struct mic_path *path, u32 term, u64 word)
{
	return term == path->term && READ_ONCE(path->alive) &&
	       !READ_ONCE(path->broken) &&
	       READ_ONCE(path->entry->owner) == path->up_peer &&
	       lower_32_bits(word) == path->seen &&
	       upper_32_bits(word) == path->mine;
}

/**
 * mic_path_control - up or down?
 * @path: path
 *
 * Context: the path's thread, whenever it wakes, with &mic_path.rx_mutex held.
 */
void mic_path_control(struct mic_path *path)
{
	/* the word before the lanes */
	u64 word = virt_load_acquire(&path->rx_ch->session);
	u32 theirs = lower_32_bits(word), seen = upper_32_bits(word);
	u32 term = mic_ivs_term(path->ivs);

	if (path->up) {
		if (mic_path_stands(path, term, word)) {
			WRITE_ONCE(path->word, word);
			mic_path_read_entry(path);
			mic_path_read_gids(path);
			mic_aperture_look(path);
			return;
		}
		/* the old word until then: see mic_path_is_in_session() */
		mic_path_go_down(path);
	}
	WRITE_ONCE(path->word, word);
	if (!term)
		return;
	if (term != path->term) {
		path->term = term;
		mic_path_begin(path);
	}
	/* a new owner counts from its second heartbeat on */
	if (!READ_ONCE(path->alive) || !theirs ||
	    READ_ONCE(path->entry->owner) != READ_ONCE(path->peer))
		return;
	/* somebody else may have written there */
	if (READ_ONCE(path->tx_ch->session) != mic_path_word(path))
		mic_path_publish(path);
	if (theirs != path->seen)
		mic_path_see(path, theirs);
	if (theirs == path->seen && seen == path->mine &&
	    time_after_eq(jiffies, path->again))
		mic_path_go_up(path);
}

/**
 * mic_path_look - is the other node alive?
 * @path: path; called by the tick only
 */
void mic_path_look(struct mic_path *path)
{
	u32 owner = READ_ONCE(path->entry->owner);
	/* the beat before what was announced before it */
	u64 heartbeat = virt_load_acquire(&path->entry->heartbeat);

	if (owner != path->peer) {
		WRITE_ONCE(path->peer, owner);
		WRITE_ONCE(path->alive, false);
		path->heartbeat = heartbeat;
	} else if (owner && heartbeat != path->heartbeat) {
		path->heartbeat = heartbeat;
		mic_silence_begin(&path->silence);
		WRITE_ONCE(path->alive, true);
	} else if (mic_silence_is_over(&path->silence, mic_dead_ms)) {
		WRITE_ONCE(path->alive, false);
	}
	if (READ_ONCE(path->nshares) || READ_ONCE(path->nleases))
		mic_share_wake(path);
	mic_path_wake(path);
}

/**
 * mic_path_park - take a path down, until mic_path_unpark()
 * @path: path
 *
 * On return nothing of the other node's is mapped, which it has been told.
 *
 * Context: the tick does not run.
 */
void mic_path_park(struct mic_path *path)
{
	kthread_park(path->task);
	mic_share_flush(path);
}

/**
 * mic_path_unpark - let a path come up again
 * @path: path
 */
void mic_path_unpark(struct mic_path *path)
{
	/* it has slept, the other node perhaps not */
	mic_silence_begin(&path->silence);
	kthread_unpark(path->task);
}

static void mic_path_init_lanes(struct mic_path *path)
{
	struct mic_ivs *ivs = path->ivs;
	const struct mic_geometry *geo = &ivs->geo;
	u32 tx = ivs->slot * geo->nodes + path->slot;
	u32 rx = path->slot * geo->nodes + ivs->slot;
	struct mic_region_channel *ch = ivs->mem + geo->channels;
	int i;

	path->tx_ch = ch + tx;
	path->rx_ch = ch + rx;
	for (i = 0; i < MIC_LANES; i++) {
		path->tx[i] = (struct mic_lane_tx) {
			.base = ivs->mem + geo->lanes +
				((u64)tx * MIC_LANES + i) * geo->lane_size,
			.size = geo->lane_size,
			.prod = &path->tx_ch->prod[i],
			.cons = &path->tx_ch->cons[i],
		};
		path->rx[i] = (struct mic_lane_rx) {
			.base = ivs->mem + geo->lanes +
				((u64)rx * MIC_LANES + i) * geo->lane_size,
			.size = geo->lane_size,
			.prod = &path->rx_ch->prod[i],
			.cons = &path->rx_ch->cons[i],
		};
	}
}

/**
 * mic_path_create - a path to a node
 * @ivs: region
 * @slot: the node's entry, whether it is taken or not
 *
 * Return: the path, or an ERR_PTR.
 */
struct mic_path *mic_path_create(struct mic_ivs *ivs, u32 slot)
{
	struct task_struct *task;
	struct mic_path *path;
	int err;

	path = kvzalloc(sizeof(*path), GFP_KERNEL);
	if (!path)
		return ERR_PTR(-ENOMEM);
	path->ivs = ivs;
	path->slot = slot;
	path->entry = mic_region_node(ivs, slot);
	path->vector = -1;
	mic_silence_begin(&path->silence);
	path->again = jiffies;
	mutex_init(&path->rx_mutex);
	mutex_init(&path->tx_mutex);
	spin_lock_init(&path->net_lock);
	spin_lock_init(&path->lock);
	INIT_LIST_HEAD(&path->waiters);
	init_waitqueue_head(&path->copied);
	init_completion(&path->pong);
	mic_answer_init(path);
	mic_path_init_lanes(path);
	err = mic_share_init(path);
	if (err) {
		kvfree(path);
		return ERR_PTR(err);
	}

	task = kthread_create(mic_path_thread, path, "mic_path%u/%u",
			      ivs->slot, slot);
	if (IS_ERR(task)) {
		mic_share_exit(path);
		kvfree(path);
		return ERR_CAST(task);
	}
	path->task = task;
	mic_aperture_add_path(path);
	return path;
}

/**
 * mic_path_destroy - the end of a path
 * @path: path that nobody else can find any more
 */
void mic_path_destroy(struct mic_path *path)
{
	kthread_stop(path->task);
	mic_answer_exit(path);
	/* who takes an aperture away has to find what is mapped of it */
	mic_share_exit(path);
	mic_aperture_del_path(path);
	kvfree(path);
}
