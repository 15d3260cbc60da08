/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * The short way of messages, hot.c, and the long one, message.c.
 */
#ifndef SCIF_HOT_H
#define SCIF_HOT_H

#include "internal.h"

static inline void scif_end_turn(atomic_bool *turn)
{
	atomic_store_explicit(turn, false, memory_order_release);
}

/* As scif_send() and scif_recv(). */
int scif_send_long(scif_epd_t epd, const void *msg, int length, int flags);
int scif_recv_long(scif_epd_t epd, void *msg, int length, int flags);
/* Nothing refers to @ep: keep out those who take its turns without asking. */
void scif_hot_keep_out(struct scif_endpoint *ep);

#endif /* SCIF_HOT_H */
