/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Which nodes can be polled.
 */
#ifndef MIC_FABRIC_POLL_H
#define MIC_FABRIC_POLL_H

struct mic_node;

void mic_polled_add(struct mic_node *node);
void mic_polled_del(struct mic_node *node);

#endif /* MIC_FABRIC_POLL_H */
