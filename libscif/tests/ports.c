// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Ports that are used up, and port 0.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "behaviour.h"
#include "peer.h"
#include "tap.h"

#define RANGE "/proc/sys/net/ipv4/ip_local_port_range"
#define LOCK "/run/scif-ports.lock"

enum { ENDPOINTS = 8 };

/* Those that the kernel gives; false if it can't be read or said. */
static bool get_range(char *range, int room)
{
	FILE *file = fopen(RANGE, "re");
	bool ok = file && fgets(range, room, file);

	if (file)
		fclose(file);
	return check(ok, "%s: %s", RANGE, strerror(errno));
}

static bool set_range(const char *range)
{
	FILE *file = fopen(RANGE, "we");
	bool ok = file && fputs(range, file) >= 0;

	if (file && fclose(file))
		ok = false;
	return check(ok, "%s: %s", RANGE, strerror(errno));
}

/* More than the kernel has to give. */
static bool bind_many(void)
{
	int epds[ENDPOINTS], ports[ENDPOINTS], i, j;
	bool ok = true;

	for (i = 0; i < ENDPOINTS; i++) {
		epds[i] = scif_open();
		ports[i] = scif_bind(epds[i], 0);
		ok = check(ports[i] >= 1089, "bind %d: %d, %s", i, ports[i],
			   strerrorname_np(errno)) &&
		     ok;
		for (j = 0; j < i; j++)
			ok = check(ports[i] != ports[j], "%d twice",
				   ports[i]) &&
			     ok;
	}
	for (i = 0; i < ENDPOINTS; i++)
		scif_close(epds[i]);
	return ok;
}

/* One process at a time: others would take the small range for the one that was. */
static bool range_used_up(void)
{
	int lock = open(LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	char range[64] = "";
	bool ok;

	if (!check(!flock(lock, LOCK_EX), "%s: %s", LOCK, strerror(errno)))
		return false;
	ok = get_range(range, sizeof(range)) && set_range("21000 21003") &&
	     bind_many();
	ok = set_range(range) && ok;
	close(lock);
	return ok;
}

static bool port_zero_of_the_dead(void)
{
	/* It has an address where nobody is. */
	struct scif_port_id port = { 998, 0 };
	int epd = scif_open();
	bool ok = fails(scif_connect(epd, &port), ENODEV, "a dead node");

	port.node = own_node;
	ok = fails(scif_connect(epd, &port), EINVAL, "one's own") && ok;
	port.node = peer_node;
	ok = fails(scif_connect(epd, &port), EINVAL, "the peer's") && ok;
	scif_close(epd);
	return ok;
}

const struct behaviour port_cases[] = {
	{ 6, "port 0: when the kernel has none left", range_used_up },
	{ 11, "port 0 of a dead node: ENODEV", port_zero_of_the_dead },
	{ 0, NULL, NULL }
};
