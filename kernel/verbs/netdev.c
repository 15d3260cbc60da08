// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The device follows the netdev it stands on.
 */
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <rdma/ib_verbs.h>
#include <rdma/mic-abi.h>

#include "dev.h"

static enum ib_event_type mic_netdev_state(const struct net_device *ndev)
{
	return netif_running(ndev) && netif_carrier_ok(ndev) ?
		       IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
}

/* An interface changes in many ways; the port comes or goes, or nothing is said. */
static void mic_netdev_tell(struct mic_dev *dev)
{
	enum ib_event_type now = mic_netdev_state(dev->ndev);

	ASSERT_RTNL();
	if (now == dev->port_event)
		return;
	dev->port_event = now;
	mic_port_event(dev, now);
}

static void mic_netdev_changed(struct mic_dev *dev, unsigned long event)
{
	switch (event) {
	case NETDEV_UNREGISTER:
		ib_unregister_device_queued(&dev->ibdev);
		break;
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		mic_netdev_tell(dev);
		break;
	case NETDEV_CHANGEMTU:
		if (mic_netdev_state(dev->ndev) == IB_EVENT_PORT_ACTIVE)
			mic_port_event(dev, IB_EVENT_PORT_ACTIVE);
		break;
	}
}

static int mic_netdev_event(struct notifier_block *nb, unsigned long event,
			    void *info)
{
	struct net_device *ndev = netdev_notifier_info_to_dev(info);
	struct ib_device *ibdev;

	ibdev = ib_device_get_by_netdev(ndev, MIC_DRIVER_ID);
	if (!ibdev)
		return NOTIFY_DONE;
	mic_netdev_changed(to_mic_dev(ibdev), event);
	ib_device_put(ibdev);
	return NOTIFY_OK;
}

/**
 * mic_enable_driver - what the port is before anything changes
 * @ibdev: device that netdev events find from now on, and whose clients come next; it has
 *	been added, or was out of the way while it went to another network namespace
 *
 * Context: process context, takes the RTNL.
 * Return: 0.
 */
int mic_enable_driver(struct ib_device *ibdev)
{
	struct mic_dev *dev = to_mic_dev(ibdev);

	rtnl_lock();
	dev->port_event = mic_netdev_state(dev->ndev);
	rtnl_unlock();
	return 0;
}

static struct notifier_block mic_netdev_notifier = {
	.notifier_call = mic_netdev_event,
};

int mic_netdev_init(void)
{
	return register_netdevice_notifier(&mic_netdev_notifier);
}

void mic_netdev_exit(void)
{
	unregister_netdevice_notifier(&mic_netdev_notifier);
}
