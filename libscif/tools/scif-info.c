// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Shows the nodes, their devices, and what their paths can do.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "../src/internal.h"

enum { PROBE_PORT = 1, PROBE_MS = 2000 };

static const char *address_text(const struct sockaddr_storage *address,
				char *text, size_t size)
{
	const void *bytes = &((const struct sockaddr_in *)address)->sin_addr;

	if (address->ss_family == AF_INET6)
		bytes = &((const struct sockaddr_in6 *)address)->sin6_addr;
	return inet_ntop(address->ss_family, bytes, text, size);
}

/* Is there a way to the node, and something that answers for its address? */
static int is_up(const struct scif_node *self, const struct scif_node *node)
{
	struct sockaddr_storage from = self->address, to = node->address;
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int up = 0;

	if (!channel)
		return 0;
	((struct sockaddr_in *)&to)->sin_port = htons(PROBE_PORT);
	if (!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		if (!rdma_resolve_addr(id, (struct sockaddr *)&from,
				       (struct sockaddr *)&to, PROBE_MS) &&
		    !rdma_get_cm_event(channel, &event)) {
			up = event->event == RDMA_CM_EVENT_ADDR_RESOLVED;
			rdma_ack_cm_event(event);
		}
		rdma_destroy_id(id);
	}
	rdma_destroy_event_channel(channel);
	return up;
}

/* What can be done, after the number. */
static const char *maps_text(const struct scif_node *node, bool up)
{
	switch (up ? scif_maps(node) : SCIF_MAPS_NOT) {
	case SCIF_MAPS:
		return ", scif_mmap";
	case SCIF_MAPS_DM:
		return ", scif_mmap of scif_alloc_dm";
	case SCIF_MAPS_PERHAPS:
		return ", scif_mmap with an aperture";
	default:
		return "; no scif_mmap";
	}
}

static void print_node(const struct scif_node *node, bool self, bool up)
{
	char text[INET6_ADDRSTRLEN];

	printf("%5u %-6s %-24s %-12s %s\n", node->number, self ? "self" : "",
	       address_text(&node->address, text, sizeof(text)),
	       node->device[0] ? node->device : "-", up ? "up" : "down");
}

static void print_all(const struct scif_node *self, const uint16_t *numbers,
		      int count)
{
	bool up[SCIF_MAX_NODES];
	int i;

	printf("node         address                  device       state\n");
	for (i = 0; i < count; i++) {
		up[i] = is_up(self, scif_node(numbers[i]));
		print_node(scif_node(numbers[i]), numbers[i] == self->number,
			   up[i]);
	}
	printf("\npath from %u by %s\n", self->number, self->device);
	for (i = 0; i < count; i++)
		printf("%5u        messages, windows, copies, fences%s\n",
		       numbers[i], maps_text(scif_node(numbers[i]), up[i]));
}

/* It has no options but the one that asks for this. */
static int usage(int argc, char **argv)
{
	bool help = argc == 2 &&
		    (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"));

	fprintf(help ? stdout : stderr,
		"usage: scif-info\n"
		"Shows the nodes, and what their paths can do: scif-info(1).\n");
	return help ? 0 : 2;
}

int main(int argc, char **argv)
{
	uint16_t numbers[SCIF_MAX_NODES];
	const struct scif_node *nodes;
	unsigned int self;

	if (argc > 1)
		return usage(argc, argv);
	if (scif_nodes(&nodes, &self) < 0) {
		fprintf(stderr,
			"scif-info: no node: no active RDMA device, or "
			"none with an address in the list of nodes\n"
			"scif-info: what to do: see rdma link show, and "
			"NODES in scif(7)\n");
		return 1;
	}
	print_all(&nodes[self], numbers,
		  scif_nodes_there(numbers, SCIF_MAX_NODES));
	return 0;
}
