// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "proxy.h"
#include "tap.h"

enum { PORT = 1 };

struct ibv_context *device_open_context(const char *name)
{
	struct ibv_context *ctx = NULL;
	struct ibv_device **list;
	int count, i;

	if (proxy_is_name(name))
		return proxy_open(name);
	list = ibv_get_device_list(&count);
	if (!list)
		return NULL;
	for (i = 0; i < count && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return ctx;
}

static bool is_ipv4_gid(const struct ibv_gid_entry *entry)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return entry->gid_type == IBV_GID_TYPE_ROCE_V2 &&
	       !memcmp(entry->gid.raw, prefix, sizeof(prefix));
}

static void pick_gid(struct device *dev)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; i < dev->port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(dev->ctx, PORT, i, &entry, 0) ||
		    !is_ipv4_gid(&entry))
			continue;
		dev->gid = entry.gid;
		dev->gid_index = i;
		return;
	}
	bail("%s has no RoCE v2 GID of an IPv4 address", dev->name);
}

static void describe(struct device *dev)
{
	if (ibv_query_device(dev->ctx, &dev->attr) ||
	    ibv_query_port(dev->ctx, PORT, &dev->port))
		bail("cannot query device %s", dev->name);
	pick_gid(dev);
}

void device_open(struct device *dev, const char *name)
{
	memset(dev, 0, sizeof(*dev));
	dev->name = name;
	dev->ctx = device_open_context(name);
	if (!dev->ctx)
		bail("cannot open device %s: %s", name, strerror(errno));
	if (proxy_is(dev->ctx))
		proxy_describe(dev);
	else
		describe(dev);
	dev->pd = ibv_alloc_pd(dev->ctx);
	if (!dev->pd)
		bail("%s: ibv_alloc_pd: %s", name, strerror(errno));
}

void device_close(struct device *dev)
{
	tap_must(!ibv_dealloc_pd(dev->pd), "%s: ibv_dealloc_pd fails",
		 dev->name);
	tap_must(!ibv_close_device(dev->ctx), "%s: ibv_close_device fails",
		 dev->name);
}

unsigned int device_mtu(const struct device *dev)
{
	return 128U << dev->port.active_mtu;
}

int device_run(const struct device *dev, const char *command)
{
	if (proxy_is(dev->ctx))
		return proxy_run(command);
	setenv("DEVICE", dev->name, 1);
	return system(command);
}

static void remove_arguments(int *argc, char **argv, int at, int count)
{
	int i;

	for (i = at; i + count <= *argc; i++)
		argv[i] = argv[i + count];
	*argc -= count;
}

static const char *name_of(const char *variable, const char *otherwise)
{
	const char *value = getenv(variable);

	return value && *value ? value : otherwise;
}

void device_names(int *argc, char **argv, const char **device,
		  const char **peer)
{
	const char **name;
	int i = 1;

	*device = name_of("MIC_TEST_DEVICE", "mic0");
	*peer = name_of("MIC_TEST_PEER", "mic1");
	while (i < *argc) {
		if (!strcmp(argv[i], "--device"))
			name = device;
		else if (!strcmp(argv[i], "--peer"))
			name = peer;
		else
			name = NULL;
		if (!name || i + 1 >= *argc) {
			i++;
			continue;
		}
		*name = argv[i + 1];
		remove_arguments(argc, argv, i, 2);
	}
}
