/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * Machines that share a PCI region are nodes of a fabric, with numbers of its own.
 */
#ifndef SCIF_FABRIC_H
#define SCIF_FABRIC_H

#include <net/if.h>

#include "internal.h"

enum { SCIF_FABRIC_NODES = 16 };

struct scif_fabric {
	char device[IBV_SYSFS_NAME_MAX];
	char interface[IF_NAMESIZE];
	unsigned int index; /* of the interface */
	uint8_t mac[6];
	uint16_t self;
};

/* The first fabric that this process can use; false if there is none. */
bool scif_fabric_find(struct scif_fabric *fabric);
void scif_fabric_address(const struct scif_fabric *fabric, uint16_t node,
			 struct sockaddr_storage *address);
/*
 * What @file lists: "nodes" are those that are there now, "apertures" those of them
 * whose memory can be mapped. Up to @room; how many.
 */
int scif_fabric_nodes(const struct scif_fabric *fabric, const char *file,
		      uint16_t *nodes, int room);

#endif /* SCIF_FABRIC_H */
