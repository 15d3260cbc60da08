// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Which number means which address.
 *
 * SCIF_NODES in the environment, or else /etc/scif/nodes, says it: entries
 * "NUMBER=ADDRESS", or lines "NUMBER ADDRESS". Without either, the nodes are those
 * of the fabric that the machine is a node of; or else the machine's mic devices in
 * the order of their names, or if it has none, all its RoCE devices. One's own node is
 * the fabric's; or SCIF_NODE, or else the first that has an address of a device here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric.h"

#define NODES_FILE "/etc/scif/nodes"

enum {
	MAX_LOCAL = 4 * SCIF_MAX_NODES,
	MAX_GIDS = 256,
	MIC_VENDOR = 0x1af4, /* udev may rename devices */
	MIC_PART = 0x6d63
};

/* An address of a device of this machine. */
struct local_address {
	char device[IBV_SYSFS_NAME_MAX];
	struct sockaddr_storage address;
	bool first; /* of its device */
	bool mic;
	bool active;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool found; /* what follows does not change any more */
static struct scif_node nodes[SCIF_MAX_NODES];
static unsigned int node_count;
static int own = -1;
static struct scif_fabric fabric; /* in use, if it has a device */

static bool is_same(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((struct sockaddr_in *)a)->sin_addr.s_addr ==
		       ((struct sockaddr_in *)b)->sin_addr.s_addr;
	return !memcmp(&((struct sockaddr_in6 *)a)->sin6_addr,
		       &((struct sockaddr_in6 *)b)->sin6_addr, 16);
}

bool scif_has_address(const struct scif_node *node,
		      const struct sockaddr *address)
{
	return is_same((const struct sockaddr *)&node->address, address);
}

static const struct sockaddr *address_of(const struct local_address *local)
{
	return (const struct sockaddr *)&local->address;
}

/* False for a link-local one, which means nothing without its interface. */
static bool gid_to_address(const union ibv_gid *gid,
			   struct sockaddr_storage *address)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
	struct sockaddr_in *four = (struct sockaddr_in *)address;
	struct in6_addr in6;

	memset(address, 0, sizeof(*address));
	memcpy(&in6, gid->raw, 16);
	if (IN6_IS_ADDR_V4MAPPED(&in6)) {
		four->sin_family = AF_INET;
		memcpy(&four->sin_addr, gid->raw + 12, 4);
		return true;
	}
	if (IN6_IS_ADDR_UNSPECIFIED(&in6) || IN6_IS_ADDR_LINKLOCAL(&in6))
		return false;
	six->sin6_family = AF_INET6;
	six->sin6_addr = in6;
	return true;
}

/* The addresses of a device; those of IPv4 first. */
static unsigned int device_addresses(struct ibv_context *ctx,
				     struct local_address *list,
				     unsigned int room)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct ibv_device_attr attr;
	struct sockaddr_storage address;
	struct ibv_port_attr port;
	unsigned int count = 0, j;
	union ibv_gid gid;
	int i;

	if (ibv_query_device(ctx, &attr) || ibv_query_port(ctx, 1, &port) ||
	    port.link_layer != IBV_LINK_LAYER_ETHERNET)
		return 0;
	for (j = 0; j < 2; j++) {
		for (i = 0; i < port.gid_tbl_len && i < MAX_GIDS; i++) {
			if (count == room || ibv_query_gid(ctx, 1, i, &gid) ||
			    !gid_to_address(&gid, &address) ||
			    address.ss_family != families[j])
				continue;
			snprintf(list[count].device, sizeof(list[count].device),
				 "%s", ibv_get_device_name(ctx->device));
			list[count].address = address;
			list[count].first = count == 0;
			list[count].mic = attr.vendor_id == MIC_VENDOR &&
					  attr.vendor_part_id == MIC_PART;
			list[count].active = port.state == IBV_PORT_ACTIVE;
			count++;
		}
	}
	return count;
}

static int by_name(const void *a, const void *b)
{
	const struct local_address *one = a, *two = b;
	int order = strverscmp(one->device, two->device);

	return order ? order : two->first - one->first;
}

/*
 * Without rdma_cm, which would keep the devices open: who asks only for numbers may
 * have children that use the library.
 */
static unsigned int find_local(struct local_address *list)
{
	struct ibv_device **devices;
	struct ibv_context *ctx;
	unsigned int count = 0;
	int i;

	devices = ibv_get_device_list(NULL);
	if (!devices)
		return 0;
	for (i = 0; devices[i]; i++) {
		ctx = ibv_open_device(devices[i]);
		if (!ctx)
			continue;
		count += device_addresses(ctx, list + count, MAX_LOCAL - count);
		ibv_close_device(ctx);
	}
	ibv_free_device_list(devices);
	qsort(list, count, sizeof(*list), by_name);
	return count;
}

static void add(unsigned long number, const struct sockaddr_storage *address)
{
	unsigned int at = node_count;

	if (node_count == SCIF_MAX_NODES || number > UINT16_MAX)
		return;
	while (at && nodes[at - 1].number >= number) {
		if (nodes[at - 1].number == number)
			return;
		at--;
	}
	memmove(&nodes[at + 1], &nodes[at],
		(node_count - at) * sizeof(nodes[0]));
	memset(&nodes[at], 0, sizeof(nodes[at]));
	nodes[at].number = number;
	nodes[at].address = *address;
	node_count++;
}

/* "NUMBER=ADDRESS" or "NUMBER ADDRESS"; other lines are ignored. */
static void add_entry(const char *entry)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST };
	struct sockaddr_storage address = { 0 };
	struct addrinfo *info;
	unsigned long number;
	char text[64], *end;

	entry += strspn(entry, " \t");
	number = strtoul(entry, &end, 10);
	if (end == entry || !*end || !strchr("= \t", *end) ||
	    sscanf(end + 1, " %63s", text) != 1 ||
	    getaddrinfo(text, NULL, &hints, &info))
		return;
	memcpy(&address, info->ai_addr, info->ai_addrlen);
	freeaddrinfo(info);
	add(number, &address);
}

static bool read_environment(void)
{
	const char *value = secure_getenv("SCIF_NODES");
	char *copy, *entry, *rest;

	if (!value || !*value)
		return false;
	copy = strdup(value);
	for (entry = copy ? strtok_r(copy, ",;", &rest) : NULL; entry;
	     entry = strtok_r(NULL, ",;", &rest))
		add_entry(entry);
	free(copy);
	return true;
}

static bool read_file(void)
{
	FILE *file = fopen(NODES_FILE, "re");
	char line[256];

	if (!file)
		return false;
	while (fgets(line, sizeof(line), file))
		add_entry(line);
	fclose(file);
	return true;
}

static void number_devices(const struct local_address *list, unsigned int count)
{
	unsigned int i, number = 0;
	bool mics = false;

	for (i = 0; i < count; i++)
		mics = mics || list[i].mic;
	for (i = 0; i < count; i++)
		if (list[i].first && list[i].active && (!mics || list[i].mic))
			add(number++, &list[i].address);
}

static void own_device(struct scif_node *node,
		       const struct local_address *address)
{
	memcpy(node->device, address->device, sizeof(node->device));
	node->mic = address->mic;
}

static void find_own(const struct local_address *list, unsigned int count)
{
	const char *value = secure_getenv("SCIF_NODE");
	unsigned int i, j;

	for (i = 0; i < node_count; i++)
		for (j = 0; j < count; j++)
			if (scif_has_address(&nodes[i], address_of(&list[j])))
				own_device(&nodes[i], &list[j]);
	for (i = 0; i < node_count && own < 0; i++)
		if (nodes[i].device[0] &&
		    (!value || !*value || atoi(value) == nodes[i].number))
			own = i;
}

/* Those that are not there may come. */
static bool number_fabric(void)
{
	struct sockaddr_storage address;
	unsigned int i;

	if (!scif_fabric_find(&fabric)) {
		fabric.device[0] = '\0';
		return false;
	}
	for (i = 0; i < SCIF_FABRIC_NODES; i++) {
		scif_fabric_address(&fabric, i, &address);
		add(i, &address);
	}
	own = fabric.self;
	memcpy(nodes[own].device, fabric.device, sizeof(fabric.device));
	nodes[own].mic = true;
	return true;
}

static void find_nodes(void)
{
	struct local_address *list = calloc(MAX_LOCAL, sizeof(*list));
	unsigned int count;

	if (!list)
		return;
	node_count = 0;
	count = find_local(list);
	if (read_environment() || read_file()) {
		find_own(list, count);
	} else if (!number_fabric()) {
		number_devices(list, count);
		find_own(list, count);
	}
	free(list);
}

/* Is there a node of one's own? What is missing may come. */
static bool find_once(void)
{
	if (atomic_load_explicit(&found, memory_order_acquire))
		return true;
	pthread_mutex_lock(&lock);
	if (!atomic_load(&found)) {
		find_nodes();
		atomic_store(&found, own >= 0);
	}
	pthread_mutex_unlock(&lock);
	return atomic_load(&found);
}

void scif_nodes_abandon(void)
{
	pthread_mutex_init(&lock, NULL);
}

int scif_nodes(const struct scif_node **result, unsigned int *self)
{
	if (!find_once())
		return -ENODEV;
	*result = nodes;
	*self = own;
	return node_count;
}

const struct scif_node *scif_node(uint16_t number)
{
	unsigned int i;

	if (!find_once())
		return NULL;
	for (i = 0; i < node_count; i++)
		if (nodes[i].number == number)
			return &nodes[i];
	return NULL;
}

const struct scif_node *scif_own_node(void)
{
	return find_once() ? &nodes[own] : NULL;
}

int scif_nodes_there(uint16_t *list, int room)
{
	unsigned int i;

	if (fabric.device[0])
		return scif_fabric_nodes(&fabric, "nodes", list, room);
	for (i = 0; i < node_count && i < (unsigned int)room; i++)
		list[i] = nodes[i].number;
	return i;
}

static bool is_in_fabric(const char *file, uint16_t number)
{
	uint16_t list[SCIF_FABRIC_NODES];
	int i, count;

	count = scif_fabric_nodes(&fabric, file, list, SCIF_FABRIC_NODES);
	for (i = 0; i < count; i++)
		if (list[i] == number)
			return true;
	return false;
}

bool scif_is_there(const struct scif_node *node)
{
	return !fabric.device[0] || is_in_fabric("nodes", node->number);
}

enum scif_maps scif_maps(const struct scif_node *node)
{
	if (!nodes[own].mic)
		return SCIF_MAPS_NOT;
	if (node->device[0])
		return node->mic ? SCIF_MAPS : SCIF_MAPS_NOT;
	if (!fabric.device[0])
		return SCIF_MAPS_PERHAPS;
	return is_in_fabric("apertures", node->number) ? SCIF_MAPS :
							 SCIF_MAPS_DM;
}

SCIF_EXPORT int scif_get_node_ids(uint16_t *list, int len, uint16_t *self)
{
	SCIF_NO_CANCEL;
	uint16_t there[SCIF_MAX_NODES];
	const struct scif_node *all;
	unsigned int self_index;
	int i, count;

	if (!self || (!list && len))
		return scif_fail(EFAULT);
	if (len < 0)
		return scif_fail(EINVAL);
	count = scif_nodes(&all, &self_index);
	if (count < 0)
		return scif_fail(-count);
	count = scif_nodes_there(there, SCIF_MAX_NODES);
	for (i = 0; i < count && i < len; i++)
		list[i] = there[i];
	*self = all[self_index].number;
	return count;
}

SCIF_EXPORT int scif_get_nodeIDs(uint16_t *list, int len, uint16_t *self)
{
	return scif_get_node_ids(list, len, self);
}
