// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The PCI device with the shared region: QEMU's ivshmem, 1af4:1110.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/pm.h>
#include <linux/slab.h>

#include "path.h"

#define MIC_IVS_POSITION	0x08	/* this device's own number */
#define MIC_IVS_DOORBELL	0x0c	/* number << 16 | vector */

/*
 * A heart has to beat, and memory to be given back, also without memory. Of each its own:
 * what gives back waits for others that do so, who may want memory.
 */
static struct workqueue_struct *mic_ivs_wq;
struct workqueue_struct *mic_share_wq;

/* What takes a device away waits for others that have no memory set aside. */
static struct workqueue_struct *mic_ivs_release_wq;

/**
 * mic_ivs_ring - interrupt another node
 * @ivs: device
 * @doorbell: the other device's number, 16 bits
 * @vector: vector
 *
 * Context: any. The device ignores numbers that do not exist.
 */
void mic_ivs_ring(struct mic_ivs *ivs, u32 doorbell, u32 vector)
{
	writel(doorbell << 16 | (vector & 0xffff),
	       ivs->regs + MIC_IVS_DOORBELL);
}

/* Whoever rang has the paths of one vector look around. */
static irqreturn_t mic_ivs_interrupt(int irq, void *arg)
{
	struct mic_ivs *ivs = arg;
	u32 i;

	for (i = 0; i < ivs->vectors; i++)
		if (ivs->irq[i] == irq)
			atomic_inc(&ivs->interrupts[i]);
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i] && ivs->irq[i % ivs->vectors] == irq)
			mic_path_wake(ivs->path[i]);
	return IRQ_HANDLED;
}

/* This node's entry is another's now, and so are its channels. */
static void mic_ivs_lose_entry(struct mic_ivs *ivs)
{
	dev_err_ratelimited(&ivs->pdev->dev, "another node took entry %u\n",
			    ivs->slot);
	mic_net_set_carrier(ivs, false);
	ivs->other = 0;
	WRITE_ONCE(ivs->term, 0);
}

static bool mic_ivs_is_idle(struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i] && READ_ONCE(ivs->path[i]->up))
			return false;
	return true;
}

/*
 * Whoever had the entry may have granted what is free here. That is counted before
 * there is a term: by this memory is allocated and paths come up, which grant anew.
 */
static void mic_ivs_begin_term(struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_grant_inherit(ivs->path[i]);
	/* what is inherited, then the term */
	smp_store_release(&ivs->term, ++ivs->terms);
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_share_tell(ivs->path[i]);
}

static void mic_ivs_take_entry_back(struct mic_ivs *ivs)
{
	if (!mic_ivs_is_idle(ivs))
		return;
	if (!mic_region_take_back(ivs))
		return;
	mic_ivs_begin_term(ivs);
	dev_info_ratelimited(&ivs->pdev->dev, "node %u again\n", ivs->slot);
	mic_net_set_carrier(ivs, true);
	WRITE_ONCE(ivs->gids_dirty, true);
}

static void mic_ivs_tick(struct work_struct *work)
{
	struct mic_ivs *ivs = container_of(to_delayed_work(work),
					   struct mic_ivs, tick);
	u32 i;

	if (READ_ONCE(ivs->asleep))
		return;
	if (!ivs->term)
		mic_ivs_take_entry_back(ivs);
	else if (!mic_region_beat(ivs))
		mic_ivs_lose_entry(ivs);
	if (ivs->term) {
		mic_region_restore(ivs);
		mic_region_announce(ivs);
	}
	if (ivs->term && (xchg(&ivs->gids_dirty, false) ||
			  !mic_region_gids_stand(ivs))) {
		mic_region_publish_gids(ivs);
		for (i = 0; i < ivs->geo.nodes; i++)
			if (ivs->path[i])
				mic_path_ring_always(ivs->path[i]);
	}
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_path_look(ivs->path[i]);
	queue_delayed_work(mic_ivs_wq, &ivs->tick,
			   msecs_to_jiffies(MIC_IVS_TICK_MS));
}

static int mic_ivs_gids_changed(struct notifier_block *nb, unsigned long event,
				void *data)
{
	struct mic_ivs *ivs = container_of(nb, struct mic_ivs, gids_changed);

	WRITE_ONCE(ivs->gids_dirty, true);
	mod_delayed_work(mic_ivs_wq, &ivs->tick, 0);
	return NOTIFY_OK;
}

static int mic_ivs_map(struct mic_ivs *ivs)
{
	struct pci_dev *pdev = ivs->pdev;
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	err = pcim_iomap_regions(pdev, BIT(MIC_IVS_BAR_REGS), "mic_ivshmem");
	if (err)
		return err;
	ivs->regs = pcim_iomap_table(pdev)[MIC_IVS_BAR_REGS];
	ivs->mem_size = pci_resource_len(pdev, MIC_IVS_BAR_REGION);
	ivs->phys = pci_resource_start(pdev, MIC_IVS_BAR_REGION);
	if (!devm_request_mem_region(&pdev->dev, ivs->phys, ivs->mem_size,
				     "mic_ivshmem region"))
		return -EBUSY;
	ivs->mem = devm_memremap(&pdev->dev, ivs->phys, ivs->mem_size,
				 MEMREMAP_WB);
	if (IS_ERR(ivs->mem))
		return PTR_ERR(ivs->mem);
	pci_set_master(pdev);
	ivs->doorbell = readl(ivs->regs + MIC_IVS_POSITION) & 0xffff;
	return 0;
}

/* Without interrupts the threads poll. */
static void mic_ivs_alloc_vectors(struct mic_ivs *ivs)
{
	int n = pci_alloc_irq_vectors(ivs->pdev, 1, MIC_IVS_VECTORS,
				      PCI_IRQ_MSIX);

	ivs->vectors = max(n, 0);
	if (!ivs->vectors)
		dev_info(&ivs->pdev->dev, "no interrupts, polling\n");
}

static int mic_ivs_request_irqs(struct mic_ivs *ivs)
{
	int i, err;

	for (i = 0; i < ivs->vectors; i++) {
		ivs->irq[i] = pci_irq_vector(ivs->pdev, i);
		err = request_irq(ivs->irq[i], mic_ivs_interrupt, 0,
				  "mic_ivshmem", ivs);
		if (err)
			goto err_free;
	}
	return 0;

err_free:
	while (i--)
		free_irq(ivs->irq[i], ivs);
	return err;
}

static void mic_ivs_free_irqs(struct mic_ivs *ivs)
{
	int i;

	for (i = 0; i < ivs->vectors; i++)
		free_irq(ivs->irq[i], ivs);
}

static void mic_ivs_destroy_paths(struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_path_destroy(ivs->path[i]);
}

static int mic_ivs_create_paths(struct mic_ivs *ivs)
{
	struct mic_path *path;
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++) {
		if (i == ivs->slot)
			continue;
		path = mic_path_create(ivs, i);
		if (IS_ERR(path)) {
			mic_ivs_destroy_paths(ivs);
			return PTR_ERR(path);
		}
		ivs->path[i] = path;
	}
	return 0;
}

/* Everything is there: let it begin. */
static void mic_ivs_start(struct mic_ivs *ivs)
{
	u32 i;

	mic_region_announce(ivs);
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_path_wake(ivs->path[i]);
	ivs->gids_dirty = true;
	queue_delayed_work(mic_ivs_wq, &ivs->tick, 0);
	dev_info(&ivs->pdev->dev, "node %u of %u, %s\n", ivs->slot,
		 ivs->geo.nodes, netdev_name(ivs->ndev));
}

static int mic_ivs_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct mic_ivs *ivs;
	int err;

	if (mic_is_aperture(pdev))
		return mic_aperture_probe(pdev);
	ivs = devm_kzalloc(&pdev->dev, sizeof(*ivs), GFP_KERNEL);
	if (!ivs)
		return -ENOMEM;
	ivs->pdev = pdev;
	INIT_DELAYED_WORK(&ivs->tick, mic_ivs_tick);
	ivs->gids_changed.notifier_call = mic_ivs_gids_changed;
	pci_set_drvdata(pdev, ivs);

	err = mic_ivs_map(ivs);
	if (!err)
		err = mic_region_attach(ivs);
	if (err)
		return err;
	mic_ivs_alloc_vectors(ivs);
	err = mic_region_join(ivs);
	if (err)
		goto err_vectors;
	mic_beacons_join(ivs);
	err = mic_ivs_create_paths(ivs);
	if (err)
		goto err_leave;
	err = mic_net_create(ivs);
	if (err)
		goto err_paths;
	err = mic_pool_create(ivs);
	if (err)
		goto err_net;
	err = mic_ivs_request_irqs(ivs);
	if (err)
		goto err_pool;
	err = mic_fabric_register_notifier(&ivs->gids_changed);
	if (err)
		goto err_irqs;
	mic_ivs_start(ivs);
	return 0;

err_irqs:
	mic_ivs_free_irqs(ivs);
err_pool:
	mic_net_unregister(ivs);
	mic_ivs_destroy_paths(ivs);
	mic_pool_destroy(ivs);
	mic_net_free(ivs);
	goto err_leave;
err_net:
	mic_net_unregister(ivs);
	mic_ivs_destroy_paths(ivs);
	mic_net_free(ivs);
	goto err_leave;
err_paths:
	mic_ivs_destroy_paths(ivs);
err_leave:
	mic_beacons_leave(ivs);
	mic_region_leave(ivs);
err_vectors:
	pci_free_irq_vectors(pdev);
	return err;
}

static void mic_ivs_park_paths(struct mic_ivs *ivs)
{
	u32 i;

	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_path_park(ivs->path[i]);
}

static void mic_ivs_remove(struct pci_dev *pdev)
{
	struct mic_ivs *ivs = pci_get_drvdata(pdev);

	if (mic_is_aperture(pdev)) {
		mic_aperture_remove(pdev);
		return;
	}
	/* devices on the interface go with it */
	mic_net_unregister(ivs);
	mic_fabric_unregister_notifier(&ivs->gids_changed);
	cancel_delayed_work_sync(&ivs->tick);
	mic_ivs_free_irqs(ivs);
	/* if it is, the machine has found another region when it woke up */
	if (!READ_ONCE(ivs->asleep))
		mic_ivs_park_paths(ivs);
	/* what a device has lent that stays, as it is on a bridge */
	mic_share_await(ivs);
	mic_ivs_destroy_paths(ivs);
	mic_pool_destroy(ivs);
	mic_beacons_leave(ivs);
	/* only now may another node have the entry, and its channels */
	mic_region_leave(ivs);
	mic_net_free(ivs);
	pci_free_irq_vectors(pdev);
}

/*
 * Others are to see the node leave, and it must not use what they have granted
 * when it wakes up: the paths go down in order. The entry stays, as processes have
 * device memory of its slice mapped; who needs one takes it only if all have owners.
 */
static int mic_ivs_suspend(struct device *dev)
{
	struct mic_ivs *ivs = dev_get_drvdata(dev);

	/* what is mapped of an aperture goes with the paths */
	if (mic_is_aperture(to_pci_dev(dev)))
		return 0;
	/* it has not come back from the last time */
	if (READ_ONCE(ivs->asleep))
		return 0;
	WRITE_ONCE(ivs->asleep, true);
	cancel_delayed_work_sync(&ivs->tick);
	mic_ivs_park_paths(ivs);
	mic_net_set_carrier(ivs, false);
	WRITE_ONCE(ivs->term, 0);
	return 0;
}

/*
 * The machine reboots, and has the entry anew when it is back. No process runs any
 * more, so nothing is left to be mapped; what others have mapped they give back.
 */
static void mic_ivs_shutdown(struct pci_dev *pdev)
{
	struct mic_ivs *ivs = pci_get_drvdata(pdev);

	if (!ivs || mic_is_aperture(pdev))
		return;
	mic_ivs_suspend(&pdev->dev);
	mic_share_await(ivs);
	mic_region_leave(ivs);
}

struct mic_ivs_release {
	struct work_struct work;
	struct device *dev;
};

static void mic_ivs_release(struct work_struct *work)
{
	struct mic_ivs_release *release =
		container_of(work, struct mic_ivs_release, work);

	/* which waits until the device's resume is over */
	device_release_driver(release->dev);
	put_device(release->dev);
	kfree(release);
}

/*
 * Another region: what is mapped of this node's old slice is somebody else's memory
 * there, so the device goes, and with it all that is mapped.
 */
static int mic_ivs_is_lost(struct mic_ivs *ivs)
{
	struct mic_ivs_release *release;
	u32 i;

	dev_err(&ivs->pdev->dev, "this is another region now\n");
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_share_abandon(ivs->path[i]);
	release = kmalloc(sizeof(*release), GFP_KERNEL);
	if (!release)
		return -ENOMEM;
	INIT_WORK(&release->work, mic_ivs_release);
	release->dev = get_device(&ivs->pdev->dev);
	queue_work(mic_ivs_release_wq, &release->work);
	return -ENODEV;
}

/* The tick takes the entry again, as if somebody else had taken it meanwhile. */
static int mic_ivs_resume(struct device *dev)
{
	struct mic_ivs *ivs = dev_get_drvdata(dev);
	u32 i;

	if (mic_is_aperture(to_pci_dev(dev)))
		return 0;
	if (!mic_region_is_same(ivs))
		return mic_ivs_is_lost(ivs);
	ivs->doorbell = readl(ivs->regs + MIC_IVS_POSITION) & 0xffff;
	ivs->other = 0;
	WRITE_ONCE(ivs->asleep, false);
	for (i = 0; i < ivs->geo.nodes; i++)
		if (ivs->path[i])
			mic_path_unpark(ivs->path[i]);
	queue_delayed_work(mic_ivs_wq, &ivs->tick, 0);
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(mic_ivs_pm, mic_ivs_suspend, mic_ivs_resume);

static const struct pci_device_id mic_ivs_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{}
};
MODULE_DEVICE_TABLE(pci, mic_ivs_ids);

static struct pci_driver mic_ivs_driver = {
	.name = "mic_ivshmem",
	.id_table = mic_ivs_ids,
	.probe = mic_ivs_probe,
	.remove = mic_ivs_remove,
	.shutdown = mic_ivs_shutdown,
	.driver.pm = pm_sleep_ptr(&mic_ivs_pm),
	.dev_groups = mic_ivs_groups,
};

static int __init mic_ivs_init(void)
{
	int err = mic_aperture_names_check();

	if (err)
		return err;
	mic_ivs_wq = alloc_workqueue("mic_ivs", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!mic_ivs_wq)
		return -ENOMEM;
	err = -ENOMEM;
	mic_share_wq = alloc_workqueue("mic_share", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!mic_share_wq)
		goto err_wq;
	mic_ivs_release_wq = alloc_workqueue("mic_ivs_release", WQ_UNBOUND, 0);
	if (!mic_ivs_release_wq)
		goto err_share;
	mic_beacons_create();
	err = pci_register_driver(&mic_ivs_driver);
	if (err)
		goto err_beacons;
	return 0;

err_beacons:
	mic_beacons_destroy();
	destroy_workqueue(mic_ivs_release_wq);
err_share:
	destroy_workqueue(mic_share_wq);
err_wq:
	destroy_workqueue(mic_ivs_wq);
	return err;
}
module_init(mic_ivs_init);

static void __exit mic_ivs_exit(void)
{
	pci_unregister_driver(&mic_ivs_driver);
	destroy_workqueue(mic_ivs_release_wq);
	mic_beacons_destroy();
	destroy_workqueue(mic_share_wq);
	destroy_workqueue(mic_ivs_wq);
}
module_exit(mic_ivs_exit);

MODULE_DESCRIPTION("Nodes of the memory fabric that share a PCI region");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(MIC_VERSION);
