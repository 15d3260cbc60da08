// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What the driver mic_ivshmem says of a fabric: in the folder "fabric" of the PCI
 * device. The hardware addresses of its interfaces differ in the last byte only, which
 * is the node's number and one; and an interface has, unless somebody chose other ones,
 * the link-local address that follows from it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <glob.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric.h"

#define DEVICES "/sys/class/infiniband"

/* The first line of a file, without its end. */
static bool read_line(const char *folder, const char *name, const char *file,
		      char *line, size_t size)
{
	char path[256];
	FILE *stream;
	bool ok;

	snprintf(path, sizeof(path), "%s/%s/%s", folder, name, file);
	stream = fopen(path, "re");
	if (!stream)
		return false;
	ok = fgets(line, size, stream);
	fclose(stream);
	if (ok)
		line[strcspn(line, "\n")] = '\0';
	return ok;
}

void scif_fabric_address(const struct scif_fabric *fabric, uint16_t node,
			 struct sockaddr_storage *address)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
	const uint8_t *mac = fabric->mac;
	uint8_t bytes[16] = { 0xfe, 0x80, [11] = 0xff, [12] = 0xfe };

	memcpy(bytes + 8, mac, 3);
	memcpy(bytes + 13, mac + 3, 3);
	bytes[8] ^= 2;
	bytes[15] = node + 1;
	memset(address, 0, sizeof(*address));
	six->sin6_family = AF_INET6;
	six->sin6_scope_id = fabric->index;
	memcpy(&six->sin6_addr, bytes, sizeof(bytes));
}

/* Does this node have its address? */
static bool has_address(const struct scif_fabric *fabric)
{
	struct sockaddr_storage address;
	struct sockaddr_in6 *own = (struct sockaddr_in6 *)&address, *other;
	struct ifaddrs *list, *entry;
	bool found = false;

	scif_fabric_address(fabric, fabric->self, &address);
	if (getifaddrs(&list))
		return false;
	for (entry = list; entry && !found; entry = entry->ifa_next) {
		other = (struct sockaddr_in6 *)entry->ifa_addr;
		found = other && other->sin6_family == AF_INET6 &&
			!strcmp(entry->ifa_name, fabric->interface) &&
			!memcmp(&other->sin6_addr, &own->sin6_addr,
				sizeof(own->sin6_addr));
	}
	freeifaddrs(list);
	return found;
}

static bool look_at(struct scif_fabric *fabric, const char *device)
{
	unsigned int mac[6], i;
	char line[64];

	memset(fabric, 0, sizeof(*fabric));
	snprintf(fabric->device, sizeof(fabric->device), "%s", device);
	if (!read_line(DEVICES, device, "device/fabric/node", line,
		       sizeof(line)))
		return false;
	fabric->self = atoi(line);
	if (!read_line(DEVICES, device, "ports/1/gid_attrs/ndevs/0",
		       fabric->interface, sizeof(fabric->interface)) ||
	    !read_line("/sys/class/net", fabric->interface, "address", line,
		       sizeof(line)) ||
	    sscanf(line, "%x:%x:%x:%x:%x:%x", mac, mac + 1, mac + 2, mac + 3,
		   mac + 4, mac + 5) != 6)
		return false;
	for (i = 0; i < 6; i++)
		fabric->mac[i] = mac[i];
	fabric->index = if_nametoindex(fabric->interface);
	return fabric->self < SCIF_FABRIC_NODES && fabric->index &&
	       fabric->mac[5] == fabric->self + 1 && has_address(fabric);
}

bool scif_fabric_find(struct scif_fabric *fabric)
{
	glob_t folders;
	bool found = false;
	size_t i;

	if (glob(DEVICES "/*", 0, NULL, &folders))
		return false;
	for (i = 0; i < folders.gl_pathc && !found; i++)
		found = look_at(fabric, folders.gl_pathv[i] + sizeof(DEVICES));
	globfree(&folders);
	return found;
}

int scif_fabric_nodes(const struct scif_fabric *fabric, const char *file,
		      uint16_t *nodes, int room)
{
	char line[128], path[32], *at = line, *end;
	unsigned long node;
	int count = 0;

	snprintf(path, sizeof(path), "device/fabric/%s", file);
	if (!read_line(DEVICES, fabric->device, path, line, sizeof(line)))
		return 0;
	for (; count < room; at = end) {
		node = strtoul(at, &end, 10);
		if (end == at)
			break;
		nodes[count++] = node;
	}
	return count;
}
