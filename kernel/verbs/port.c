// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the device and its port are capable of. Everything stated here works
 * and has a test that says so.
 */
#include <linux/if_ether.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_mad.h>

#include <mic/compat.h>

#include "ah.h"
#include "dev.h"
#include "odp.h"
#include "uctx.h"

#define MIC_VENDOR_ID		0x1af4	/* that of virtual devices */
#define MIC_VENDOR_PART_ID	0x6d63
#define MIC_FW_VERSION		1

/* As the provider prints it. */
void mic_get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	u64 version = ibdev->attrs.fw_ver;

	snprintf(str, IB_FW_VERSION_NAME_MAX, "%u.%u.%u",
		 (u16)(version >> 32), (u16)(version >> 16), (u16)version);
}

int mic_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
		     struct ib_udata *udata)
{
	int err = mic_udata_check(udata, 0);

	if (err)
		return err;
	if (udata->outlen)
		return -EINVAL;
	memset(attr, 0, sizeof(*attr));
	attr->fw_ver = MIC_FW_VERSION;
	attr->sys_image_guid = ibdev->node_guid;
	attr->vendor_id = MIC_VENDOR_ID;
	attr->vendor_part_id = MIC_VENDOR_PART_ID;
	attr->hw_ver = 1;
	attr->max_mr_size = U64_MAX;
	attr->page_size_cap = PAGE_SIZE | PMD_SIZE;
	attr->max_qp = MIC_MAX_QP;
	attr->max_qp_wr = MIC_MAX_WR;
	attr->max_send_sge = MIC_MAX_SGE;
	attr->max_recv_sge = MIC_MAX_SGE;
	attr->max_sge_rd = MIC_MAX_SGE;
	attr->max_cq = MIC_MAX_CQ;
	attr->max_cqe = MIC_MAX_CQE;
	attr->max_mr = MIC_MAX_MR;
	attr->max_mw = MIC_MAX_MW;
	attr->max_fast_reg_page_list_len = MIC_MAX_FAST_REG_PAGES;
	attr->max_pd = MIC_MAX_PD;
	attr->max_ah = MIC_MAX_AH;
	attr->max_srq = MIC_MAX_SRQ;
	attr->max_srq_wr = MIC_MAX_WR;
	attr->max_srq_sge = MIC_MAX_SGE;
	attr->max_qp_rd_atom = MIC_MAX_RD_ATOM;
	attr->max_qp_init_rd_atom = MIC_MAX_RD_ATOM;
	attr->max_res_rd_atom = MIC_MAX_RD_ATOM * MIC_MAX_QP;
	/*
	 * More is true, they are the CPU's own instructions; but consumers take
	 * IB_ATOMIC_GLOB for none, so libmic says it by pci_atomic_caps.
	 */
	attr->atomic_cap = IB_ATOMIC_HCA;
	attr->max_mcast_grp = MIC_MAX_MCAST_GROUPS;
	attr->max_mcast_qp_attach = MIC_MAX_MCAST_ATTACH;
	attr->max_total_mcast_qp_attach = MIC_MAX_MCAST_ATTACH;
	attr->cq_caps.max_cq_moderation_count = U16_MAX;
	attr->cq_caps.max_cq_moderation_period = U16_MAX;
	attr->max_dm_size = MIC_MAX_DM;
	attr->max_pkeys = MIC_MAX_PKEY;
	attr->local_ca_ack_delay = 15;
	attr->device_cap_flags = IB_DEVICE_RC_RNR_NAK_GEN |
				 IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_CURR_QP_STATE_MOD |
				 IB_DEVICE_PORT_ACTIVE_EVENT |
				 IB_DEVICE_SRQ_RESIZE |
				 IB_DEVICE_XRC |
				 IB_DEVICE_MEM_WINDOW |
				 IB_DEVICE_MEM_WINDOW_TYPE_2B |
				 IB_DEVICE_MEM_MGT_EXTENSIONS;
	attr->device_cap_flags |= MIC_DEVICE_ATOMIC_WRITE;
	attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG | IBK_BLOCK_MULTICAST_LOOPBACK;
	mic_odp_caps(attr);
	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = NSEC_PER_MSEC;	/* kHz: one tick a nanosecond */
	return 0;
}

/* The description is for people, rdma-ndd writes the host's name there. */
int mic_modify_device(struct ib_device *ibdev, int mask,
		      struct ib_device_modify *attr)
{
	if (mask & ~IB_DEVICE_MODIFY_NODE_DESC)
		return -EOPNOTSUPP;
	if (mask & IB_DEVICE_MODIFY_NODE_DESC)
		memcpy(ibdev->node_desc, attr->node_desc,
		       sizeof(ibdev->node_desc));
	return 0;
}

/* The largest MTU of RDMA that fits the netdev's, beside RoCE's headers. */
static enum ib_mtu mic_mtu(const struct net_device *ndev)
{
	return iboe_get_mtu(READ_ONCE(ndev->mtu)) ?: IB_MTU_256;
}

/**
 * mic_port_mtu - the port's active MTU
 * @dev: device
 *
 * Return: bytes.
 */
u32 mic_port_mtu(struct mic_dev *dev)
{
	return ib_mtu_enum_to_int(mic_mtu(dev->ndev));
}

static bool mic_port_up(const struct net_device *ndev)
{
	return netif_running(ndev) && netif_carrier_ok(ndev);
}

int mic_query_port(struct ib_device *ibdev, u32 port,
		   struct ib_port_attr *attr)
{
	struct net_device *ndev = to_mic_dev(ibdev)->ndev;
	bool up = mic_port_up(ndev);

	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP :
				IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = mic_mtu(ndev);
	attr->gid_tbl_len = MIC_MAX_GID;
	attr->pkey_tbl_len = MIC_MAX_PKEY;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->ip_gids = true;
	attr->max_msg_sz = MIC_MAX_MSG;
	attr->max_vl_num = 1;
	/* memory has no line rate; this is the most that can be said */
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_HDR;
	return 0;
}

int mic_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	if (index >= MIC_MAX_PKEY)
		return -EINVAL;
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

int mic_get_port_immutable(struct ib_device *ibdev, u32 port,
			   struct ib_port_immutable *immutable)
{
	struct ib_port_attr attr;
	int err;

	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	err = ib_query_port(ibdev, port, &attr);
	if (err)
		return err;
	immutable->pkey_tbl_len = attr.pkey_tbl_len;
	immutable->gid_tbl_len = attr.gid_tbl_len;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

enum rdma_link_layer mic_get_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

/*
 * ib_core keeps the GID table; the fabric learns which node answers to which
 * GID. The netdev of a GID may be another than the device's (a VLAN on it) and
 * is no longer known when the GID goes, so the fabric's entry is remembered,
 * and holds it.
 */
struct mic_gid {
	struct mic_gid_entry *entry;
	struct net_device *ndev;
};

int mic_add_gid(const struct ib_gid_attr *attr, void **context)
{
	struct mic_gid *gid;
	int err;

	gid = kzalloc(sizeof(*gid), GFP_KERNEL);
	if (!gid)
		return -ENOMEM;
	gid->ndev = rcu_access_pointer(attr->ndev);
	gid->entry = mic_node_add_gid(to_mic_dev(attr->device)->node,
				      &attr->gid, gid->ndev);
	if (IS_ERR(gid->entry)) {
		err = PTR_ERR(gid->entry);
		kfree(gid);
		return err;
	}
	dev_hold(gid->ndev);
	mic_ah_add_gid(attr);
	*context = gid;
	return 0;
}

int mic_del_gid(const struct ib_gid_attr *attr, void **context)
{
	struct mic_gid *gid = *context;

	*context = NULL;
	mic_ah_del_gid(attr);
	mic_node_del_gid(gid->entry);
	synchronize_rcu_expedited();	/* look-ups see the netdev, too */
	dev_put(gid->ndev);
	kfree(gid);
	return 0;
}

/**
 * mic_port_event - tell consumers of a change at the port
 * @dev: device
 * @type: unaffiliated asynchronous event
 */
void mic_port_event(struct mic_dev *dev, enum ib_event_type type)
{
	struct ib_event event = {
		.device = &dev->ibdev,
		.element.port_num = 1,
		.event = type,
	};

	mic_count(dev, MIC_CNT_ASYNC_EVENT);
	ib_dispatch_event(&event);
}
