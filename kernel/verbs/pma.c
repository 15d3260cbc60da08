// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The port's counters as IBA 16.1.3 has them. ib_core shows what is answered
 * here in ports/1/counters.
 *
 * Of a packet, of a word on a wire, and of what may happen to them nothing is
 * known. A message counts as a packet, and no error is counted.
 */
#include <linux/minmax.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>

#include "counters.h"
#include "dev.h"

#define MIC_PMA_DATA	40	/* where an attribute begins in ib_mad.data */
#define MIC_PMA_WORD	4	/* data is counted in words of so many bytes */
#define MIC_PMA_ALL	0xff	/* all ports */

struct mic_pma_counts {
	u64 xmit_data;
	u64 rcv_data;
	u64 xmit_packets;
	u64 rcv_packets;
};

/* What processes execute by themselves they count by themselves. */
static u64 mic_pma_direct(const u64 *value, int which)
{
	return value[MIC_CNT_DIRECT + which];
}

static void mic_pma_count(struct mic_dev *dev, struct mic_pma_counts *counts)
{
	u64 value[MIC_CNT_MAX];
	u64 answers;

	mic_count_sum(dev, value);
	mic_count_add_bound(dev, value);
	answers = value[MIC_CNT_READ] + value[MIC_CNT_ATOMIC] +
		  mic_pma_direct(value, MIC_DIRECT_READS) +
		  mic_pma_direct(value, MIC_DIRECT_ATOMICS);
	counts->xmit_packets = value[MIC_CNT_SEND] + value[MIC_CNT_WRITE] +
			       mic_pma_direct(value, MIC_DIRECT_WRITES) +
			       answers;
	counts->rcv_packets = value[MIC_CNT_RECV] + answers;
	counts->xmit_data = (value[MIC_CNT_SEND_BYTES] +
			     value[MIC_CNT_WRITE_BYTES] +
			     value[MIC_CNT_ATOMIC_BYTES] +
			     mic_pma_direct(value, MIC_DIRECT_WRITE_BYTES) +
			     mic_pma_direct(value, MIC_DIRECT_ATOMIC_BYTES)) /
			    MIC_PMA_WORD;
	counts->rcv_data = (value[MIC_CNT_RECV_BYTES] +
			    value[MIC_CNT_READ_BYTES] +
			    value[MIC_CNT_ATOMIC_BYTES] +
			    mic_pma_direct(value, MIC_DIRECT_READ_BYTES) +
			    mic_pma_direct(value, MIC_DIRECT_ATOMIC_BYTES)) /
			   MIC_PMA_WORD;
}

/* These stay where they are when they are full, IBA 16.1.3.5. */
static __be32 mic_pma_narrow(u64 count)
{
	return cpu_to_be32(min_t(u64, count, U32_MAX));
}

static void mic_pma_portcounters(const struct mic_pma_counts *counts,
				 struct ib_pma_portcounters *out)
{
	out->port_select = 1;
	out->port_xmit_data = mic_pma_narrow(counts->xmit_data);
	out->port_rcv_data = mic_pma_narrow(counts->rcv_data);
	out->port_xmit_packets = mic_pma_narrow(counts->xmit_packets);
	out->port_rcv_packets = mic_pma_narrow(counts->rcv_packets);
}

static void mic_pma_portcounters_ext(const struct mic_pma_counts *counts,
				     struct ib_pma_portcounters_ext *out)
{
	out->port_select = 1;
	out->port_xmit_data = cpu_to_be64(counts->xmit_data);
	out->port_rcv_data = cpu_to_be64(counts->rcv_data);
	out->port_xmit_packets = cpu_to_be64(counts->xmit_packets);
	out->port_rcv_packets = cpu_to_be64(counts->rcv_packets);
}

/* An attribute that is read; the status of the answer. */
static u16 mic_pma_get(struct mic_dev *dev, const struct ib_mad *in,
		       struct ib_mad *out)
{
	u8 *data = out->data + MIC_PMA_DATA;
	struct ib_class_port_info *info;
	struct mic_pma_counts counts;
	u8 port;

	if (in->mad_hdr.attr_id == IB_PMA_CLASS_PORT_INFO) {
		info = (struct ib_class_port_info *)data;
		info->base_version = IB_MGMT_BASE_VERSION;
		info->class_version = 1;
		/* the long counters, but not apart for groups */
		info->capability_mask = IB_PMA_CLASS_CAP_EXT_WIDTH_NOIETF;
		return 0;
	}
	port = in->data[MIC_PMA_DATA + 1];
	if (port != 1 && port != MIC_PMA_ALL)
		return IB_MGMT_MAD_STATUS_INVALID_ATTRIB_VALUE;
	mic_pma_count(dev, &counts);
	switch (in->mad_hdr.attr_id) {
	case IB_PMA_PORT_COUNTERS:
		mic_pma_portcounters(&counts, (void *)data);
		return 0;
	case IB_PMA_PORT_COUNTERS_EXT:
		mic_pma_portcounters_ext(&counts, (void *)data);
		return 0;
	default:
		return IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB;
	}
}

/* Only what reads counters is answered. The rest is for ib_mad's clients. */
int mic_process_mad(struct ib_device *ibdev, int flags, u32 port,
		    const struct ib_wc *wc, const struct ib_grh *grh,
		    const struct ib_mad *in, struct ib_mad *out,
		    size_t *out_size, u16 *out_pkey_index)
{
	u16 status;

	if (in->mad_hdr.mgmt_class != IB_MGMT_CLASS_PERF_MGMT ||
	    in->mad_hdr.method != IB_MGMT_METHOD_GET)
		return IB_MAD_RESULT_SUCCESS;
	memset(out, 0, sizeof(*out));
	out->mad_hdr = in->mad_hdr;
	out->mad_hdr.method = IB_MGMT_METHOD_GET_RESP;
	status = in->mad_hdr.class_version == 1 ?
			 mic_pma_get(to_mic_dev(ibdev), in, out) :
			 IB_MGMT_MAD_STATUS_BAD_VERSION;
	out->mad_hdr.status = cpu_to_be16(status);
	return IB_MAD_RESULT_SUCCESS | IB_MAD_RESULT_REPLY;
}
