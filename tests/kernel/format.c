// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Another node formats the region at the same moment as this one. It is played here,
 * step by step, by what a probe in the middle of this one's probing does; nobody else
 * may be on the region. Loading the module runs one case; that fails if the case does,
 * and the log says why. The region is as the last case has left it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/device.h>
#include <linux/etherdevice.h>
#include <linux/io.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/ptrace.h>
#include <linux/workqueue.h>

#include "cases.h"

/* The driver's own; it needs nothing else of the driver. */
#include "../../kernel/ivshmem/layout.h"

#define TEST_REGION_BAR	2
#define TEST_THEIR_LOCK	0x7e57		/* what the other node takes it with */
#define TEST_THEIR_ID	0x00abcdef
#define TEST_LATER_MS	200		/* so long the other node takes */

/* So much of the header is looked at first, and compared. */
#define TEST_LOOKS_AT	offsetof(struct mic_region_hdr, lock)

/**
 * struct bench - what a case works with
 * @pdev: the PCI device with the region
 * @hdr: the region's header
 * @theirs: what the other node writes there
 * @later: the rest of what the other node does
 * @finishes: the other node does not die
 * @over: this node has attached the region, or not
 * @kept: the lock was the other node's when it had finished
 */
struct bench {
	struct pci_dev *pdev;
	struct mic_region_hdr *hdr;
	struct mic_region_hdr theirs;
	struct work_struct later;
	bool finishes;
	bool over;
	bool kept;
};

/* For the probes. @struck: the moment has come, once. */
static struct mic_region_hdr *probed;
static struct mic_region_hdr *written;
static bool struck;

/* --- what the other node does -------------------------------------------------- */

static void write_all(struct mic_region_hdr *hdr,
		      const struct mic_region_hdr *theirs)
{
	struct mic_region_hdr all = *theirs;

	all.magic = 0;
	all.lock = READ_ONCE(hdr->lock);
	*hdr = all;
	/* the magic last */
	smp_store_release(&hdr->magic, theirs->magic);
}

static void finish(struct work_struct *work)
{
	struct bench *bench = container_of(work, struct bench, later);

	while (!READ_ONCE(struck) && !READ_ONCE(bench->over))
		msleep(20);
	if (!READ_ONCE(struck) || !bench->finishes)
		return;
	msleep(TEST_LATER_MS);
	write_all(bench->hdr, &bench->theirs);
	bench->kept = cmpxchg(&bench->hdr->lock, TEST_THEIR_LOCK, 0) ==
		      TEST_THEIR_LOCK;
}

/* Is this the look whether the header is blank? */
static bool looks_at_header(struct pt_regs *regs)
{
	return !READ_ONCE(struck) &&
	       is_vmalloc_addr((void *)regs_get_kernel_argument(regs, 0)) &&
	       !regs_get_kernel_argument(regs, 1) &&
	       regs_get_kernel_argument(regs, 2) == TEST_LOOKS_AT;
}

/* It begins when this node has seen that nobody has the lock. */
static int begin(struct kprobe *probe, struct pt_regs *regs)
{
	if (!looks_at_header(regs))
		return 0;
	WRITE_ONCE(probed->lock, TEST_THEIR_LOCK);
	smp_wmb();	/* the lock before the rest */
	WRITE_ONCE(probed->version, MIC_REGION_VERSION);
	WRITE_ONCE(struck, true);
	return 0;
}

/* It does all at once then. */
static int begin_and_end(struct kprobe *probe, struct pt_regs *regs)
{
	if (!looks_at_header(regs))
		return 0;
	write_all(probed, written);
	WRITE_ONCE(struck, true);
	return 0;
}

/* It takes this one for dead, which has the lock and is about to write. */
static int take_over(struct kprobe *probe, struct pt_regs *regs)
{
	u32 lock = READ_ONCE(probed->lock);

	if (!READ_ONCE(struck) && lock &&
	    cmpxchg(&probed->lock, lock, TEST_THEIR_LOCK) == lock)
		WRITE_ONCE(struck, true);
	return 0;
}

/* --- what a case is made of ----------------------------------------------------- */

static void leave(struct bench *bench)
{
	device_release_driver(&bench->pdev->dev);
	memset(bench->hdr, 0, MIC_REGION_HDR);
}

/* The driver has the region. */
static int attach(struct bench *bench)
{
	int ret = device_attach(&bench->pdev->dev);

	if (!ret)
		pr_err("the driver does not take it\n");
	return ret > 0 ? 0 : ret ?: -EBUSY;
}

static int attach_at_once(struct bench *bench, struct kprobe *probe)
{
	int err;

	leave(bench);
	probed = bench->hdr;
	written = &bench->theirs;
	WRITE_ONCE(struck, false);
	err = register_kprobe(probe);
	if (err)
		return err;
	schedule_work(&bench->later);
	err = attach(bench);
	WRITE_ONCE(bench->over, true);
	flush_work(&bench->later);
	unregister_kprobe(probe);
	if (!err && !READ_ONCE(struck)) {
		pr_err("the moment has not come\n");
		return -ENODATA;
	}
	return err;
}

/* Does the interface have an address of the region with this id? */
static bool address_is_of(u32 id)
{
	struct net_device *ndev = dev_get_by_name(&init_net, "micnet0");
	bool is = false;

	if (ndev)
		is = ndev->dev_addr[2] == (u8)(id >> 16) &&
		     ndev->dev_addr[3] == (u8)(id >> 8) &&
		     ndev->dev_addr[4] == (u8)id;
	dev_put(ndev);
	return is;
}

/* The region is as one node has formatted it, and this one has attached that. */
static int region_is_of(struct bench *bench, u32 id)
{
	bench->theirs.id = id;
	if (memcmp(bench->hdr, &bench->theirs, TEST_LOOKS_AT)) {
		pr_err("the header is not as it was written\n");
		return -EIO;
	}
	if (bench->hdr->lock) {
		pr_err("somebody still has the lock\n");
		return -EDEADLK;
	}
	if (!address_is_of(id)) {
		pr_err("the driver is in another region\n");
		return -EXDEV;
	}
	return 0;
}

static int region_is_theirs(struct bench *bench)
{
	int err = region_is_of(bench, TEST_THEIR_ID);

	if (!err && bench->finishes && !bench->kept) {
		pr_err("the other node's lock was taken away\n");
		return -ENOLCK;
	}
	return err;
}

static void bench_close(struct bench *bench)
{
	if (bench->hdr)
		memunmap(bench->hdr);
	pci_dev_put(bench->pdev);
}

/* The header that the other node writes is one that this node has written once. */
static int bench_open(struct bench *bench, const char *device,
		      const char *peer)
{
	int err;

	INIT_WORK(&bench->later, finish);
	bench->finishes = true;
	/* apertures come behind it */
	bench->pdev = pci_get_device(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110,
				     NULL);
	if (!bench->pdev)
		return -ENODEV;
	bench->hdr = memremap(pci_resource_start(bench->pdev, TEST_REGION_BAR),
			      MIC_REGION_HDR, MEMREMAP_WB);
	if (!bench->hdr)
		return -ENOMEM;
	leave(bench);
	err = attach(bench);
	if (err)
		return err;
	bench->theirs = *bench->hdr;
	bench->theirs.id = TEST_THEIR_ID;
	return 0;
}

/* --- cases ------------------------------------------------------------------- */

/* What is half written is nothing of somebody else's: it waits. */
static int test_begins(struct bench *bench)
{
	struct kprobe probe = {
		.symbol_name = "memchr_inv",
		.pre_handler = begin,
	};

	return attach_at_once(bench, &probe) ?: region_is_theirs(bench);
}

static int test_is_faster(struct bench *bench)
{
	struct kprobe probe = {
		.symbol_name = "memchr_inv",
		.pre_handler = begin_and_end,
	};

	bench->finishes = false;
	return attach_at_once(bench, &probe) ?: region_is_theirs(bench);
}

/* What is half written, and stays that, this node formats when it has waited. */
static int test_stalls(struct bench *bench)
{
	struct kprobe probe = {
		.symbol_name = "memchr_inv",
		.pre_handler = begin,
	};

	bench->finishes = false;
	return attach_at_once(bench, &probe) ?:
		       region_is_of(bench, bench->hdr->id);
}

/* This node was stopped for so long that the other one formats, and has the lock. */
static int test_takes_over(struct bench *bench)
{
	struct kprobe probe = {
		.symbol_name = "get_random_u32",
		.pre_handler = take_over,
	};

	return attach_at_once(bench, &probe) ?: region_is_theirs(bench);
}

static const struct test_case tests[] = {
	{ "begins", test_begins },
	{ "is_faster", test_is_faster },
	{ "stalls", test_stalls },
	{ "takes_over", test_takes_over },
};

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("Two nodes that format the region at once");
MODULE_LICENSE("Dual BSD/GPL");
