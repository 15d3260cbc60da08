// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Control messages, handled by the progress thread.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "internal.h"
#include "rma.h"

static void handle(struct scif_endpoint *ep, const struct scif_message *message)
{
	switch (message->type) {
	case SCIF_WAKE_DATA:
		atomic_store(&ep->armed_data, false);
		scif_refresh(ep, -1);
		break;
	case SCIF_WAKE_ROOM:
		atomic_store(&ep->armed_room, false);
		scif_refresh(ep, -1);
		break;
	default:
		scif_rma_message(ep, message);
	}
}

static void drain(struct scif_endpoint *ep)
{
	struct scif_link *link = &ep->link;
	struct scif_message message;
	struct ibv_wc wc;

	while (ibv_poll_cq(link->rx_cq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS ||
		    wc.byte_len != sizeof(message) ||
		    wc.wr_id >= SCIF_RX_DEPTH) {
			scif_lost(ep);
			return;
		}
		message = link->local->in[wc.wr_id];
		if (scif_link_post_recv(link, wc.wr_id)) {
			scif_lost(ep);
			return;
		}
		handle(ep, &message);
	}
}

/*
 * Before it is connected, another attempt may take the link away; what came
 * early is looked at when the endpoint is connected.
 */
void scif_control_event(struct scif_endpoint *ep)
{
	if (scif_state(ep) < SCIF_CONNECTED || !ep->link.rx_cq)
		return;
	drain(ep);
	if (!ibv_req_notify_cq(ep->link.rx_cq, 0))
		drain(ep);
	scif_rma_event(ep);
}
