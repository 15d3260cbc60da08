// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Faults on purpose, for the test of the rig itself: a module that, when
 * loaded, does what the rig must notice.
 */
#include <linux/module.h>
#include <linux/smp.h>

static char *fault = "none";
module_param(fault, charp, 0444);
MODULE_PARM_DESC(fault, "warn, oops, spin, or hold");

static char *symbol = "";
module_param(symbol, charp, 0444);
MODULE_PARM_DESC(symbol, "with hold: a symbol of the module to keep loaded");

static void spin(void *unused)
{
	for (;;)
		cpu_relax();
}

static int __init rig_fault_init(void)
{
	int *nowhere = NULL;

	if (!strcmp(fault, "warn"))
		WARN(1, "a warning on purpose\n");
	else if (!strcmp(fault, "oops"))
		WRITE_ONCE(*nowhere, 1);
	else if (!strcmp(fault, "spin"))
		on_each_cpu(spin, NULL, 0);
	else if (!strcmp(fault, "hold") && !__symbol_get(symbol))
		return -ENOENT;
	return 0;
}

static void __exit rig_fault_exit(void)
{
}

module_init(rig_fault_init);
module_exit(rig_fault_exit);

MODULE_DESCRIPTION("Faults on purpose, to test the test rig");
MODULE_LICENSE("Dual BSD/GPL");
