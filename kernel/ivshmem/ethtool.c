// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * ethtool on micnet: counters of the paths, and the device's self-test.
 */
#include <linux/delay.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/sched/signal.h>

#include "path.h"

#define MIC_TEST_MS	2000
#define MIC_TEST_CLOCK_MS	1000
#define MIC_TEST_CLOCK_TRIES	3
#define MIC_TEST_CLOCK_FACTOR	4	/* as often, or as seldom */

static const char mic_stat_names[MIC_PATH_STATS][ETH_GSTRING_LEN] = {
	[MIC_STAT_UP] = "sessions",
	[MIC_STAT_NONSENSE] = "sessions_protocol_errors",
	[MIC_STAT_REQUEST_TX] = "requests_sent",
	[MIC_STAT_REQUEST_RX] = "requests_served",
	[MIC_STAT_RESPONSE_RX] = "responses",
	[MIC_STAT_EXPIRED] = "response_timeouts",
	[MIC_STAT_FRAME_TX] = "frames_sent",
	[MIC_STAT_FRAME_RX] = "frames_received",
	[MIC_STAT_NO_ROOM] = "lane_full",
	[MIC_STAT_SLEEP] = "sleeps",
	[MIC_STAT_RING] = "doorbells",
	[MIC_STAT_POLLED] = "records_polled",
	[MIC_STAT_DELAYED] = "responses_delayed",
	[MIC_STAT_OVERDUE] = "responses_overdue",
};

/* The registers and the header are what they were. */
static int mic_test_header(struct mic_ivs *ivs)
{
	if (ivs->vectors &&
	    (readl(ivs->regs + 8) & 0xffff) != ivs->doorbell)
		return -EIO;
	return mic_region_stands(ivs) ? 0 : -EIO;
}

/*
 * This node's lanes to itself, which nothing else uses, keep what is written. In a
 * region that is another now, or while another node has the entry, they are not.
 */
static int mic_test_memory(struct mic_ivs *ivs)
{
	const struct mic_geometry *geo = &ivs->geo;
	u32 self = ivs->slot * geo->nodes + ivs->slot, i;
	u64 *mem = ivs->mem + geo->lanes +
		   (u64)self * MIC_LANES * geo->lane_size;
	u64 n = MIC_LANES * geo->lane_size / sizeof(*mem);

	if (!mic_ivs_term(ivs) || !mic_region_stands(ivs))
		return -ENODEV;
	for (i = 0; i < n; i++)
		WRITE_ONCE(mem[i], i * 0x9e3779b97f4a7c15ULL);
	for (i = 0; i < n; i++)
		if (READ_ONCE(mem[i]) != i * 0x9e3779b97f4a7c15ULL)
			return -EIO;
	return 0;
}

/* A node can ring itself, by each of its interrupts. */
static int mic_test_interrupt(struct mic_ivs *ivs)
{
	int before[MIC_IVS_VECTORS], i, ms = 0;

	if (!ivs->vectors)
		return -EOPNOTSUPP;
	for (i = 0; i < ivs->vectors; i++) {
		before[i] = atomic_read(&ivs->interrupts[i]);
		mic_ivs_ring(ivs, ivs->doorbell, i);
	}
	for (i = 0; i < ivs->vectors; i++) {
		while (atomic_read(&ivs->interrupts[i]) == before[i]) {
			if (ms++ == MIC_TEST_MS)
				return -ETIMEDOUT;
			usleep_range(1000, 2000);
		}
	}
	return 0;
}

/* The entry is this node's, and its heart beats. */
static int mic_test_heartbeat(struct mic_ivs *ivs)
{
	const struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);
	u64 before = READ_ONCE(entry->heartbeat);
	int ms;

	for (ms = 0; ms < MIC_TEST_MS; ms += MIC_IVS_TICK_MS) {
		msleep(MIC_IVS_TICK_MS);
		if (!READ_ONCE(ivs->term) ||
		    READ_ONCE(entry->owner) != READ_ONCE(ivs->owner))
			break;
		if (READ_ONCE(entry->heartbeat) != before)
			return 0;
	}
	return -EIO;
}

/* This node, or another one that is there. */
static bool mic_test_counts(const struct mic_ivs *ivs, u32 slot)
{
	return slot == ivs->slot ||
	       (ivs->path[slot] && READ_ONCE(ivs->path[slot]->up));
}

static int mic_test_beats(u64 beats, u64 ms)
{
	if (beats < div_u64(ms, MIC_IVS_TICK_MS * MIC_TEST_CLOCK_FACTOR))
		return -ETIMEDOUT;
	if (beats > div_u64(ms * MIC_TEST_CLOCK_FACTOR, MIC_IVS_TICK_MS))
		return -ERANGE;
	return 0;
}

static int mic_test_clocks(struct mic_ivs *ivs)
{
	u64 before[MIC_REGION_NODES], ms;
	ktime_t begin = ktime_get();
	u32 there = 0, i;
	int err = 0;

	for (i = 0; i < ivs->geo.nodes; i++) {
		before[i] = READ_ONCE(mic_region_node(ivs, i)->heartbeat);
		if (mic_test_counts(ivs, i))
			there |= BIT(i);
	}
	msleep(MIC_TEST_CLOCK_MS);
	ms = ktime_ms_delta(ktime_get(), begin);
	for (i = 0; i < ivs->geo.nodes && !err; i++) {
		u64 now = READ_ONCE(mic_region_node(ivs, i)->heartbeat);

		if (there & BIT(i) && mic_test_counts(ivs, i))
			err = mic_test_beats(now - before[i], ms);
	}
	return err;
}

/*
 * Every node's heart beats by its own clock. Here the hearts of this node and of
 * those that are there are held against this node's time. They beat more often while
 * GIDs change, and more seldom where a machine is busy, so that is tried again.
 */
static int mic_test_clock(struct mic_ivs *ivs)
{
	int i, err = -ETIMEDOUT;

	for (i = 0; i < MIC_TEST_CLOCK_TRIES && err; i++)
		err = mic_test_clocks(ivs);
	return err;
}

/*
 * Every node that is there answers a message. All are asked at once, and have the same
 * time: the RTNL is held for no longer, however many are late.
 */
static int mic_test_message(struct mic_ivs *ivs)
{
	unsigned long asked = 0, end;
	int err = -ENOTCONN;
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++) {
		if (!ivs->path[i] || !READ_ONCE(ivs->path[i]->up))
			continue;
		err = mic_remote_ping(ivs->path[i]);
		if (err)
			return err;
		asked |= BIT(i);
	}
	end = jiffies + msecs_to_jiffies(MIC_TEST_MS);
	for_each_set_bit(i, &asked, ivs->geo.nodes) {
		err = mic_remote_await_pong(ivs->path[i], end);
		if (err)
			break;
	}
	return err;
}

/* A message of verbs, of each device on the interface to itself. */
static int mic_test_verbs(struct mic_ivs *ivs)
{
	return mic_fabric_test_on(ivs->ndev);
}

/*
 * None of them disturbs anything, so those that may are not told from those that
 * may not. @none is what one returns that has nothing to test.
 */
static const struct {
	char name[ETH_GSTRING_LEN];
	int (*run)(struct mic_ivs *ivs);
	int none;
} mic_tests[] = {
	{ "header", mic_test_header },
	{ "memory", mic_test_memory, -ENODEV },
	{ "interrupt", mic_test_interrupt, -EOPNOTSUPP },
	{ "heartbeat", mic_test_heartbeat },
	{ "clock", mic_test_clock },
	{ "message", mic_test_message, -ENOTCONN },
	{ "verbs", mic_test_verbs, -ENODEV },
};

static void mic_net_self_test(struct net_device *ndev,
			      struct ethtool_test *test, u64 *result)
{
	struct mic_ivs *ivs = mic_net_ivs(ndev);
	int i;

	for (i = 0; i < ARRAY_SIZE(mic_tests); i++) {
		int err = -EINTR;

		/* who is killed does not keep the RTNL for the rest */
		if (!fatal_signal_pending(current))
			err = mic_tests[i].run(ivs);
		if (err && err == mic_tests[i].none) {
			result[i] = err;
			continue;
		}
		result[i] = -err;
		if (err)
			test->flags |= ETH_TEST_FL_FAILED;
	}
}

static int mic_net_sset_count(struct net_device *ndev, int sset)
{
	switch (sset) {
	case ETH_SS_STATS:
		return MIC_PATH_STATS + 1;
	case ETH_SS_TEST:
		return ARRAY_SIZE(mic_tests);
	default:
		return -EOPNOTSUPP;
	}
}

static void mic_net_strings(struct net_device *ndev, u32 sset, u8 *data)
{
	int i;

	if (sset == ETH_SS_STATS) {
		memcpy(data, mic_stat_names, sizeof(mic_stat_names));
		strscpy(data + sizeof(mic_stat_names), "interrupts",
			ETH_GSTRING_LEN);
	} else if (sset == ETH_SS_TEST) {
		for (i = 0; i < ARRAY_SIZE(mic_tests); i++)
			memcpy(data + i * ETH_GSTRING_LEN, mic_tests[i].name,
			       ETH_GSTRING_LEN);
	}
}

static void mic_net_stats(struct net_device *ndev, struct ethtool_stats *stats,
			  u64 *data)
{
	struct mic_ivs *ivs = mic_net_ivs(ndev);
	int stat;
	u32 i;

	memset(data, 0, (MIC_PATH_STATS + 1) * sizeof(*data));
	for (i = 0; i < ivs->geo.nodes; i++)
		for (stat = 0; ivs->path[i] && stat < MIC_PATH_STATS; stat++)
			data[stat] += atomic64_read(&ivs->path[i]->stat[stat]);
	for (i = 0; i < ivs->vectors; i++)
		data[MIC_PATH_STATS] += (u32)atomic_read(&ivs->interrupts[i]);
}

static void mic_net_drvinfo(struct net_device *ndev,
			    struct ethtool_drvinfo *info)
{
	strscpy(info->driver, "mic_ivshmem", sizeof(info->driver));
	strscpy(info->bus_info, pci_name(mic_net_ivs(ndev)->pdev),
		sizeof(info->bus_info));
}

const struct ethtool_ops mic_net_ethtool_ops = {
	.get_drvinfo = mic_net_drvinfo,
	.get_ethtool_stats = mic_net_stats,
	.get_link = ethtool_op_get_link,
	.get_sset_count = mic_net_sset_count,
	.get_strings = mic_net_strings,
	.self_test = mic_net_self_test,
};
