// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Control messages, handled by the progress thread.
 */
#define _GNU_SOURCE
#include <errno.h>

#include "internal.h"
#include "rma.h"

/* What the messages of one endpoint may take (ms) before others have their turn. */
enum { TURN_MS = 2 };

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

/* False if there may be more: other endpoints have their turn first. */
static bool drain(struct scif_endpoint *ep)
{
	const uint64_t began = scif_now_ms();
	struct scif_link *link = &ep->link;
	struct scif_message message;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < SCIF_RX_DEPTH && scif_now_ms() <= began + TURN_MS;
	     i++) {
		if (ibv_poll_cq(link->rx_cq, 1, &wc) <= 0)
			return true;
		if (wc.status != IBV_WC_SUCCESS ||
		    wc.byte_len != sizeof(message) ||
		    wc.wr_id >= SCIF_RX_DEPTH) {
			scif_lost(ep);
			return true;
		}
		message = link->local->in[wc.wr_id];
		if (scif_link_post_recv(link, wc.wr_id)) {
			scif_lost(ep);
			return true;
		}
		handle(ep, &message);
	}
	return false;
}

/*
 * Before it is connected, another attempt may take the link away; what came
 * early is looked at when the endpoint is connected.
 */
void scif_control_event(struct scif_endpoint *ep)
{
	if (scif_state(ep) < SCIF_CONNECTED || !ep->link.rx_cq)
		return;
	if (!drain(ep) ||
	    (!ibv_req_notify_cq(ep->link.rx_cq, 0) && !drain(ep))) {
		atomic_store(&ep->dirty, true);
		scif_process_kick();
	}
	scif_rma_event(ep);
}
