// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Device memory that nobody writes to: it stays what it was, until this is killed.
 *
 * usage: blank [--device NAME]
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "device.h"
#include "memory.h"
#include "tap.h"

/* More than a process of "slice" has. */
enum { PIECES = 4, BYTES = 64 * PAGE_BYTES };

static bool is_blank(struct ibv_dm *dm)
{
	static uint8_t copy[BYTES];

	return !ibv_memcpy_from_dm(copy, dm, 0, BYTES) &&
	       all_are(copy, BYTES, 0);
}

int main(int argc, char **argv)
{
	struct ibv_alloc_dm_attr attr = { .length = BYTES };
	struct ibv_dm *piece[PIECES];
	const char *name, *peer;
	struct device dev;
	unsigned int i;

	device_names(&argc, argv, &name, &peer);
	device_open(&dev, name);
	for (i = 0; i < PIECES; i++) {
		piece[i] = ibv_alloc_dm(dev.ctx, &attr);
		if (!piece[i])
			bail("ibv_alloc_dm: %s", strerror(errno));
	}
	for (i = 0; is_blank(piece[i % PIECES]); i++) {
		if (i == PIECES) {
			tap_note("it is blank");
			fflush(stdout);
		}
		sleep_ms(1);
	}
	return 1;
}
