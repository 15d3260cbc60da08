// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "cases.h"

static char *device = "mic0";
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "the device that sends, writes and reads");

static char *peer = "mic1";
module_param(peer, charp, 0444);
MODULE_PARM_DESC(peer, "the device that has the queue or the region");

static char *test = "";
module_param(test, charp, 0444);
MODULE_PARM_DESC(test, "the case");

static bool scarce;
module_param(scarce, bool, 0444);
MODULE_PARM_DESC(scarce, "again and again, each time another allocation fails");

static int run_case(const struct test_case *one)
{
	struct bench *bench = kzalloc(cases.bench_size, GFP_KERNEL);
	int err;

	if (!bench)
		return -ENOMEM;
	err = cases.open(bench, device, peer);
	if (err)
		pr_err("no connection from %s to %s: %d\n", device, peer, err);
	else
		err = one->run(bench);
	cases.close(bench);
	kfree(bench);
	pr_info("%s of %s: %d\n", one->name, peer, err);
	return err > 0 ? -EIO : err;
}

#ifdef CONFIG_FAULT_INJECTION
/*
 * The first allocation that the case makes in this thread fails, then the second and so
 * on, until it makes no more. Either it does without, or it says that memory is short.
 */
static int run_scarce(const struct test_case *one)
{
	unsigned int n, refused = 0;
	int err;

	for (n = 1;; n++) {
		current->fail_nth = n;
		err = run_case(one);
		if (current->fail_nth)
			break;
		if (err && err != -ENOMEM) {
			pr_err("%s: failure %u is %d\n", one->name, n, err);
			return err;
		}
		refused += !!err;
	}
	current->fail_nth = 0;
	pr_info("%s: %u failures, %u of them passed on\n", one->name, n - 1,
		refused);
	if (!err && n == 1)
		return -ENODATA;
	return err;
}
#else
static int run_scarce(const struct test_case *one)
{
	return -EOPNOTSUPP;
}
#endif

static int __init cases_init(void)
{
	unsigned int i;

	for (i = 0; i < cases.count; i++) {
		if (strcmp(test, cases.of[i].name))
			continue;
		if (scarce)
			return run_scarce(&cases.of[i]);
		return run_case(&cases.of[i]);
	}
	return -EINVAL;
}

static void __exit cases_exit(void)
{
}

module_init(cases_init);
module_exit(cases_exit);
