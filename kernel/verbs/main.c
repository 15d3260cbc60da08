// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The device: made by "rdma link add NAME type mic netdev DEV".
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <net/addrconf.h>
#include <rdma/ib_verbs.h>
#include <rdma/mic-abi.h>
#include <rdma/rdma_netlink.h>
#include <rdma/uverbs_ioctl.h>

#include <mic/compat.h>

#include "../engine/engine.h"
#include "ah.h"
#include "counters.h"
#include "cq.h"
#include "debugfs.h"
#include "dev.h"
#include "dm.h"
#include "mcast.h"
#include "mr.h"
#include "mw.h"
#include "odp.h"
#include "pd.h"
#include "qp.h"
#include "restrack.h"
#include "srq.h"
#include "uctx.h"
#include "xrc.h"

struct workqueue_struct *mic_wq;
struct workqueue_struct *mic_user_wq;

static const struct mic_node_ops mic_local_node_ops = {
	.submit = mic_resp_submit,
	.test = mic_selftest,
};

/*
 * Are there objects, by the counts that limit them? Not so device memory, which may be
 * mapped when the device is gone.
 */
static bool mic_has_objects(const struct mic_dev *dev)
{
	return atomic_read(&dev->nqp) || atomic_read(&dev->ncq) ||
	       atomic_read(&dev->nmr) || atomic_read(&dev->npd) ||
	       atomic_read(&dev->nah) || atomic_read(&dev->nsrq) ||
	       atomic_read(&dev->nmw);
}

static void mic_dealloc_driver(struct ib_device *ibdev)
{
	struct mic_dev *dev = to_mic_dev(ibdev);

	mic_node_leave(dev->node);
	mic_poller_stop(dev);
	WARN_ON(!xa_empty(&dev->qps));
	WARN_ON(!xa_empty(&dev->mkeys));
	WARN_ON(!xa_empty(&dev->ahs));
	WARN_ON(!xa_empty(&dev->srqs));
	WARN_ON(!xa_empty(&dev->qp_counters));
	WARN_ON(!hash_empty(dev->members));
	WARN_ON(mic_has_objects(dev));
	xa_destroy(&dev->qps);
	xa_destroy(&dev->mkeys);
	xa_destroy(&dev->ahs);
	xa_destroy(&dev->srqs);
	xa_destroy(&dev->qp_counters);
	free_percpu(dev->counters);
	dev_put(dev->ndev);
}

static const struct ib_device_ops mic_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = MIC_DRIVER_ID,
	.uverbs_abi_ver = MIC_UVERBS_ABI_VERSION,

	.add_gid = mic_add_gid,
	.advise_mr = mic_advise_mr,
	.alloc_hw_port_stats = mic_alloc_hw_port_stats,
	.alloc_mr = mic_alloc_mr,
	.alloc_mw = mic_alloc_mw,
	.alloc_pd = mic_alloc_pd,
	.alloc_ucontext = mic_alloc_ucontext,
	.alloc_xrcd = mic_alloc_xrcd,
	.attach_mcast = mic_attach_mcast,
	.alloc_dm = mic_alloc_dm,
	.counter_alloc_stats = mic_counter_alloc_stats,
	.counter_bind_qp = mic_counter_bind_qp,
	.counter_dealloc = mic_counter_dealloc,
	.counter_unbind_qp = mic_counter_unbind_qp,
	.counter_update_stats = mic_counter_update_stats,
	.create_ah = mic_create_ah,
	.create_cq = mic_create_cq,
	.create_qp = mic_create_qp,
	.create_srq = mic_create_srq,
	.create_user_ah = mic_create_ah,
	.dealloc_dm = mic_dealloc_dm,
	.dealloc_driver = mic_dealloc_driver,
	.dealloc_mw = mic_dealloc_mw,
	.dealloc_pd = mic_dealloc_pd,
	.dealloc_ucontext = mic_dealloc_ucontext,
	.dealloc_xrcd = mic_dealloc_xrcd,
	.del_gid = mic_del_gid,
	.dereg_mr = mic_dereg_mr,
	.destroy_ah = mic_destroy_ah,
	.destroy_cq = mic_destroy_cq,
	.destroy_qp = mic_destroy_qp,
	.destroy_srq = mic_destroy_srq,
	.detach_mcast = mic_detach_mcast,
	.disassociate_ucontext = mic_disassociate_ucontext,
	.enable_driver = mic_enable_driver,
	.fill_res_cq_entry = mic_fill_res_cq,
	.fill_res_mr_entry = mic_fill_res_mr,
	.fill_res_qp_entry = mic_fill_res_qp,
	MIC_FILL_RES_SRQ(mic_fill_res_srq)
	.get_dev_fw_str = mic_get_dev_fw_str,
	.get_dma_mr = mic_get_dma_mr,
	.get_hw_stats = mic_get_hw_stats,
	.get_link_layer = mic_get_link_layer,
	.get_port_immutable = mic_get_port_immutable,
	.map_mr_sg = mic_map_mr_sg,
	.mmap = mic_mmap,
	.mmap_free = mic_mmap_free,
	.modify_cq = mic_modify_cq,
	.modify_device = mic_modify_device,
	.modify_qp = mic_modify_qp,
	.modify_srq = mic_modify_srq,
	.poll_cq = mic_poll_cq,
	.post_recv = mic_post_recv,
	.post_send = mic_post_send,
	.post_srq_recv = mic_post_srq_recv,
	.process_mad = mic_process_mad,
	.query_ah = mic_query_ah,
	.query_device = mic_query_device,
	.query_pkey = mic_query_pkey,
	.query_port = mic_query_port,
	.query_qp = mic_query_qp,
	.query_srq = mic_query_srq,
	.query_ucontext = mic_query_ucontext,
	.reg_dm_mr = mic_reg_dm_mr,
	.reg_user_mr = mic_reg_user_mr,
	.reg_user_mr_dmabuf = mic_reg_user_mr_dmabuf,
	.req_notify_cq = mic_req_notify_cq,
	.rereg_user_mr = mic_rereg_user_mr,
	.resize_cq = mic_resize_cq,

	INIT_RDMA_OBJ_SIZE(ib_ah, mic_ah, ibah),
	INIT_RDMA_OBJ_SIZE(ib_cq, mic_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_mw, mic_mw, ibmw),
	INIT_RDMA_OBJ_SIZE(ib_pd, mic_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, mic_ibqp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_srq, mic_srq, ibsrq),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, mic_uctx, ibuctx),
	INIT_RDMA_OBJ_SIZE(ib_xrcd, mic_xrcd, ibxrcd),
};

static const struct uapi_definition mic_defs[] = {
	UAPI_DEF_CHAIN(mic_uctx_defs),
	UAPI_DEF_CHAIN(mic_dm_defs),
	{},
};

static int mic_dev_init(struct mic_dev *dev, struct net_device *ndev)
{
	struct ib_device *ibdev = &dev->ibdev;
	int err;

	dev->ndev = ndev;
	xa_init_flags(&dev->qps, XA_FLAGS_ALLOC);
	xa_init_flags(&dev->mkeys, XA_FLAGS_ALLOC);
	mic_keys_init(&dev->keys);
	xa_init_flags(&dev->srqs, XA_FLAGS_ALLOC);
	hash_init(dev->members);
	mutex_init(&dev->members_lock);
	mutex_init(&dev->direct_lock);
	xa_init_flags(&dev->qp_counters, XA_FLAGS_ALLOC1);
	xa_init_flags(&dev->ahs, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);

	strscpy(ibdev->node_desc, "mic", sizeof(ibdev->node_desc));
	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = num_possible_cpus();
	/* rdma_cm looks for the netdev below the parent */
	ibdev->dev.parent = ndev->dev.parent;
	addrconf_addr_eui48((u8 *)&ibdev->node_guid, ndev->dev_addr);
	/* for exporters of dma-bufs that map them when they are attached */
	err = dma_coerce_mask_and_coherent(&ibdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;

	dev->counters = alloc_percpu(struct mic_counters);
	if (!dev->counters)
		return -ENOMEM;
	err = mic_poller_start(dev);
	if (err)
		goto err_counters;
	dev->node = mic_node_create(&mic_local_node_ops, dev);
	if (IS_ERR(dev->node)) {
		err = PTR_ERR(dev->node);
		goto err_poller;
	}
	dev_hold(ndev);
	return 0;

err_poller:
	mic_poller_stop(dev);
err_counters:
	free_percpu(dev->counters);
	return err;
}

/**
 * mic_dev_create - make a device on a netdev and register it
 * @name: name, may contain %d
 * @ndev: Ethernet netdev
 *
 * Context: process context, under the RTNL-free part of a netlink request.
 * Return: 0 or an error.
 */
int mic_dev_create(const char *name, struct net_device *ndev)
{
	struct mic_dev *dev;
	int err;

	dev = ib_alloc_device(mic_dev, ibdev);
	if (!dev)
		return -ENOMEM;
	err = mic_dev_init(dev, ndev);
	if (err)
		goto err_dealloc;
	/* from here on ib_dealloc_device() calls mic_dealloc_driver() */
	ib_set_device_ops(&dev->ibdev, &mic_dev_ops);
	dev->ibdev.driver_def = mic_defs;
	err = ib_device_set_netdev(&dev->ibdev, ndev, 1);
	if (err)
		goto err_dealloc;
	err = ib_register_device(&dev->ibdev, name, NULL);
	if (err)
		goto err_dealloc;
	/* others may have deleted it */
	return 0;

err_dealloc:
	ib_dealloc_device(&dev->ibdev);
	return err;
}

/* From the look whether a netdev has a device until it has. */
static DEFINE_MUTEX(mic_newlink_lock);

static int mic_newlink_locked(const char *name, struct net_device *ndev)
{
	struct ib_device *ibdev;

	ibdev = ib_device_get_by_netdev(ndev, MIC_DRIVER_ID);
	if (ibdev) {
		ib_device_put(ibdev);
		return -EEXIST;
	}
	/* ib_core's own answer is ENFILE, which says nothing */
	ibdev = ib_device_get_by_name(name, RDMA_DRIVER_UNKNOWN);
	if (ibdev) {
		ib_device_put(ibdev);
		return -EEXIST;
	}
	return mic_dev_create(name, ndev);
}

static int mic_newlink(const char *name, struct net_device *ndev)
{
	int err;

	if (ndev->flags & IFF_LOOPBACK || ndev->type != ARPHRD_ETHER)
		return -EINVAL;
	/* rtnetlink's RDMA twin lets several at it */
	mutex_lock(&mic_newlink_lock);
	err = mic_newlink_locked(name, ndev);
	mutex_unlock(&mic_newlink_lock);
	return err;
}

static struct rdma_link_ops mic_link_ops = {
	.type = "mic",
	.newlink = mic_newlink,
};

static int __init mic_init(void)
{
	int err;

	mic_wq = alloc_workqueue("mic", WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	if (!mic_wq)
		return -ENOMEM;
	mic_user_wq = alloc_workqueue("mic_user", WQ_UNBOUND | WQ_MEM_RECLAIM,
				      0);
	if (!mic_user_wq) {
		err = -ENOMEM;
		goto err_wq;
	}
	err = mic_fault_init();
	if (err)
		goto err_user_wq;
	err = mic_debugfs_init();
	if (err)
		goto err_fault;
	err = mic_netdev_init();
	if (err)
		goto err_debugfs;
	rdma_link_register(&mic_link_ops);
	return 0;

err_debugfs:
	mic_debugfs_exit();
err_fault:
	mic_fault_exit();
	mic_unpin_exit();
err_user_wq:
	destroy_workqueue(mic_user_wq);
err_wq:
	destroy_workqueue(mic_wq);
	return err;
}

static void __exit mic_exit(void)
{
	rdma_link_unregister(&mic_link_ops);
	ib_unregister_driver(MIC_DRIVER_ID);
	mic_netdev_exit();
	mic_debugfs_exit();
	mic_fault_exit();
	mic_unpin_exit();
	destroy_workqueue(mic_user_wq);
	destroy_workqueue(mic_wq);
	rcu_barrier();
}

module_init(mic_init);
module_exit(mic_exit);

MODULE_DESCRIPTION("RDMA device whose wire is memory");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(MIC_VERSION);
MODULE_ALIAS_RDMA_LINK("mic");
