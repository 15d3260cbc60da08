// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Two machines that format the region at the same moment: each waits for the other in
 * the middle of its driver's probing, by words at the region's end, and both go on at
 * once. Loading the module on each runs one case, in which the driver takes the device,
 * which must have none; that fails if it does not, or if the two have not met.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/device.h>
#include <linux/io.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/ptrace.h>
#include <linux/timekeeping.h>

#include "cases.h"

/* The driver's own; it needs nothing else of the driver. */
#include "../../kernel/ivshmem/layout.h"

#define TEST_NODES	2
#define TEST_REGION_BAR	2
#define TEST_COME_MS	60000	/* so long the other one may take to come */
#define TEST_SPIN_MS	10000	/* and to get to the place */

static unsigned int node;
module_param(node, uint, 0444);
MODULE_PARM_DESC(node, "which of the machines this is, from 0 on");

static unsigned int round;
module_param(round, uint, 0444);
MODULE_PARM_DESC(round, "another number each time, from 1 on");

/* Where a machine is in its round. */
enum stage { COMES = 1, MEETS, STAGES };

/**
 * struct bench - what a case works with
 * @pdev: the PCI device with the region
 * @stage: a word of each machine, at the region's end
 */
struct bench {
	struct pci_dev *pdev;
	u32 *stage;
};

/* For the probes. @looked: the header was, and is blank. */
static u32 *met_at;
static bool looked;
static bool met;

static bool all_are_there(const u32 *stage, enum stage at)
{
	int i;

	for (i = 0; i < TEST_NODES; i++)
		if (READ_ONCE(stage[i]) < round * STAGES + at)
			return false;
	return true;
}

static void say(u32 *stage, enum stage at)
{
	WRITE_ONCE(stage[node], round * STAGES + at);
}

/* All processors of the machine wait: it has one. ktime_get() is not for probes. */
static void meet(void)
{
	u64 end = ktime_get_mono_fast_ns() + TEST_SPIN_MS * NSEC_PER_MSEC;

	say(met_at, MEETS);
	while (!all_are_there(met_at, MEETS) &&
	       ktime_get_mono_fast_ns() < end)
		cpu_relax();
	WRITE_ONCE(met, all_are_there(met_at, MEETS));
	WRITE_ONCE(met_at, NULL);
}

static bool looks_at_header(struct pt_regs *regs)
{
	return is_vmalloc_addr((void *)regs_get_kernel_argument(regs, 0)) &&
	       !regs_get_kernel_argument(regs, 1) &&
	       regs_get_kernel_argument(regs, 2) ==
		       offsetof(struct mic_region_hdr, lock);
}

static int at_the_look(struct kprobe *probe, struct pt_regs *regs)
{
	if (READ_ONCE(met_at) && looks_at_header(regs))
		meet();
	return 0;
}

static int see_the_look(struct kprobe *probe, struct pt_regs *regs)
{
	if (looks_at_header(regs))
		WRITE_ONCE(looked, true);
	return 0;
}

/* What it takes the lock with; it has seen that nobody has it. */
static int at_the_lock(struct kprobe *probe, struct pt_regs *regs)
{
	if (READ_ONCE(met_at) && READ_ONCE(looked))
		meet();
	return 0;
}

static int wait_for_others(struct bench *bench)
{
	int ms;

	say(bench->stage, COMES);
	for (ms = 0; ms < TEST_COME_MS; ms += 20) {
		if (all_are_there(bench->stage, COMES))
			return 0;
		msleep(20);
	}
	pr_err("nobody else comes\n");
	return -ETIMEDOUT;
}

static int attach(struct bench *bench, struct kprobe **probes, int n)
{
	int err, ret = 0;

	WRITE_ONCE(looked, false);
	WRITE_ONCE(met, false);
	WRITE_ONCE(met_at, bench->stage);
	err = register_kprobes(probes, n);
	if (err)
		return err;
	err = wait_for_others(bench);
	if (!err)
		ret = device_attach(&bench->pdev->dev);
	unregister_kprobes(probes, n);
	if (err)
		return err;
	if (ret <= 0) {
		pr_err("the driver does not take it\n");
		return ret ?: -EBUSY;
	}
	if (!READ_ONCE(met)) {
		pr_err("the others were not there\n");
		return -ENODATA;
	}
	return 0;
}

static int bench_open(struct bench *bench, const char *device,
		      const char *peer)
{
	phys_addr_t end;

	/* apertures come behind it */
	bench->pdev = pci_get_device(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110,
				     NULL);
	if (!bench->pdev || node >= TEST_NODES || !round)
		return -ENODEV;
	end = pci_resource_end(bench->pdev, TEST_REGION_BAR) + 1;
	bench->stage = memremap(end - PAGE_SIZE, PAGE_SIZE, MEMREMAP_WB);
	return bench->stage ? 0 : -ENOMEM;
}

static void bench_close(struct bench *bench)
{
	if (bench->stage)
		memunmap(bench->stage);
	pci_dev_put(bench->pdev);
}

/* --- cases ------------------------------------------------------------------- */

/* Both are about to look whether the header is blank. */
static int test_look(struct bench *bench)
{
	struct kprobe look = {
		.symbol_name = "memchr_inv",
		.pre_handler = at_the_look,
	};
	struct kprobe *probes[] = { &look };

	return attach(bench, probes, ARRAY_SIZE(probes));
}

/* Both have seen that nobody has the lock, and are about to take it. */
static int test_lock(struct bench *bench)
{
	struct kprobe look = {
		.symbol_name = "memchr_inv",
		.pre_handler = see_the_look,
	};
	struct kprobe lock = {
		.symbol_name = "get_random_u32",
		.pre_handler = at_the_lock,
	};
	struct kprobe *probes[] = { &look, &lock };

	return attach(bench, probes, ARRAY_SIZE(probes));
}

static const struct test_case tests[] = {
	{ "look", test_look },
	{ "lock", test_lock },
};

const struct cases cases = {
	.of = tests,
	.count = ARRAY_SIZE(tests),
	.bench_size = sizeof(struct bench),
	.open = bench_open,
	.close = bench_close,
};

MODULE_DESCRIPTION("Two machines that format the region at once");
MODULE_LICENSE("Dual BSD/GPL");
