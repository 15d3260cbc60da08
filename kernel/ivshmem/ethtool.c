// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * ethtool on micnet: counters of the paths, and the device's self-test.
 */
#include <linux/delay.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>

#include "ivs.h"

#define MIC_TEST_MS	2000

static const char mic_stat_names[MIC_PATH_STATS][ETH_GSTRING_LEN] = {
	[MIC_STAT_UP] = "sessions",
	[MIC_STAT_NONSENSE] = "sessions_nonsense",
	[MIC_STAT_REQUEST_TX] = "requests_sent",
	[MIC_STAT_REQUEST_RX] = "requests_served",
	[MIC_STAT_RESPONSE_RX] = "responses",
	[MIC_STAT_EXPIRED] = "answers_missing",
	[MIC_STAT_FRAME_TX] = "frames_sent",
	[MIC_STAT_FRAME_RX] = "frames_received",
	[MIC_STAT_NO_ROOM] = "lane_full",
	[MIC_STAT_SLEEP] = "sleeps",
	[MIC_STAT_RING] = "doorbells",
};

/* The registers and the header are what they were. */
static int mic_test_header(struct mic_ivs *ivs)
{
	if (ivs->vectors &&
	    (readl(ivs->regs + 8) & 0xffff) != ivs->doorbell)
		return -EIO;
	return mic_region_stands(ivs) ? 0 : -EIO;
}

/* This node's lanes to itself, which nothing else uses, keep what is written. */
static int mic_test_memory(struct mic_ivs *ivs)
{
	const struct mic_geometry *geo = &ivs->geo;
	u32 self = ivs->slot * geo->nodes + ivs->slot, i;
	u64 *mem = ivs->mem + geo->lanes +
		   (u64)self * MIC_LANES * geo->lane_size;
	u64 n = MIC_LANES * geo->lane_size / sizeof(*mem);

	for (i = 0; i < n; i++)
		WRITE_ONCE(mem[i], i * 0x9e3779b97f4a7c15ULL);
	for (i = 0; i < n; i++)
		if (READ_ONCE(mem[i]) != i * 0x9e3779b97f4a7c15ULL)
			return -EIO;
	return 0;
}

/* A node can ring itself. */
static int mic_test_interrupt(struct mic_ivs *ivs)
{
	int before = atomic_read(&ivs->interrupts), ms;

	if (!ivs->vectors)
		return 0;
	mic_ivs_ring(ivs, ivs->doorbell, 0);
	for (ms = 0; ms < MIC_TEST_MS; ms++) {
		if (atomic_read(&ivs->interrupts) != before)
			return 0;
		usleep_range(1000, 2000);
	}
	return -ETIMEDOUT;
}

/* The heart beats. */
static int mic_test_heartbeat(struct mic_ivs *ivs)
{
	const struct mic_region_node *entry = mic_region_node(ivs, ivs->slot);
	u64 before = READ_ONCE(entry->heartbeat);

	msleep(5 * MIC_IVS_TICK_MS);
	return READ_ONCE(entry->heartbeat) != before &&
	       READ_ONCE(entry->owner) == ivs->owner ? 0 : -EIO;
}

/* Every node that is there answers a message. */
static int mic_test_message(struct mic_ivs *ivs)
{
	int err;
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++) {
		if (!ivs->path[i] || !READ_ONCE(ivs->path[i]->up))
			continue;
		err = mic_remote_ping(ivs->path[i]);
		if (err)
			return err;
	}
	return 0;
}

static const struct {
	char name[ETH_GSTRING_LEN];
	int (*run)(struct mic_ivs *ivs);
} mic_tests[] = {
	{ "header", mic_test_header },
	{ "memory", mic_test_memory },
	{ "interrupt", mic_test_interrupt },
	{ "heartbeat", mic_test_heartbeat },
	{ "message", mic_test_message },
};

static void mic_net_self_test(struct net_device *ndev,
			      struct ethtool_test *test, u64 *result)
{
	struct mic_ivs *ivs = mic_net_ivs(ndev);
	int i;

	for (i = 0; i < ARRAY_SIZE(mic_tests); i++) {
		int err = mic_tests[i].run(ivs);

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

	memset(data, 0, MIC_PATH_STATS * sizeof(*data));
	for (i = 0; i < ivs->geo.nodes; i++)
		for (stat = 0; ivs->path[i] && stat < MIC_PATH_STATS; stat++)
			data[stat] += READ_ONCE(ivs->path[i]->stat[stat]);
	data[MIC_PATH_STATS] = (u32)atomic_read(&ivs->interrupts);
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
