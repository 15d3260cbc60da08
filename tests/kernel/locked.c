// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Pages of a process, locked while the module is loaded, as a file system locks pages
 * that it writes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>

/* Differences of kernels are in one place. */
#include "../../kernel/include/mic/compat.h"

#define TEST_PAGES 64

static int pid;
module_param(pid, int, 0444);
MODULE_PARM_DESC(pid, "the process");

static ulong address;
module_param(address, ulong, 0444);
MODULE_PARM_DESC(address, "of its first page");

static ulong pages;
module_param(pages, ulong, 0444);
MODULE_PARM_DESC(pages, "bit K: its page K after that, up to 63");

/* Those that are locked; NULL: not that one. */
static struct page *locked[TEST_PAGES];

static int test_lock(struct mm_struct *mm, unsigned int k)
{
	struct page *page;
	long n;

	mmap_read_lock(mm);
	n = mic_pin_user_pages_remote(mm, address + k * PAGE_SIZE, 1, 0, &page,
				      NULL);
	mmap_read_unlock(mm);
	if (n != 1)
		return n < 0 ? n : -EFAULT;
	lock_page(page);
	locked[k] = page;
	return 0;
}

static void test_exit(void)
{
	unsigned int k;

	for (k = 0; k < TEST_PAGES; k++) {
		if (!locked[k])
			continue;
		unlock_page(locked[k]);
		unpin_user_page(locked[k]);
	}
}

/* The memory of the process, or NULL. */
static struct mm_struct *test_mm(void)
{
	struct pid *of = find_get_pid(pid);
	struct task_struct *task = get_pid_task(of, PIDTYPE_PID);
	struct mm_struct *mm = NULL;

	put_pid(of);
	if (task) {
		mm = get_task_mm(task);
		put_task_struct(task);
	}
	return mm;
}

static int __init test_init(void)
{
	struct mm_struct *mm = test_mm();
	unsigned int k;
	int err = 0;

	if (!mm)
		return -ESRCH;
	for (k = 0; k < TEST_PAGES && !err; k++)
		if (pages & BIT(k))
			err = test_lock(mm, k);
	mmput(mm);
	if (err)
		test_exit();
	return err;
}

module_init(test_init);
module_exit(test_exit);

MODULE_DESCRIPTION("locked pages, for tests of mic");
MODULE_LICENSE("Dual BSD/GPL");
