// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What a peer keeps that maps windows, or is stopped while it is asked for them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "behaviour.h"
#include "clock.h"
#include "peer.h"
#include "process.h"
#include "tap.h"

enum {
	PAGE = 4096,
	MUCH = 12 << 20,
	ROUNDS = 50,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	FIXED = SCIF_MAP_FIXED
};

struct mapper {
	int epd;
	void *mem;
	pthread_t thread;
};

static void *map_page(void *argument)
{
	struct mapper *mapper = argument;

	mapper->mem = scif_mmap(NULL, PAGE, RW, 0, mapper->epd, 0);
	return NULL;
}

/* Who waits for the peer to map something keeps no window of its own. */
static bool unregister_beside_mmap(void)
{
	struct mapper mapper;
	size_t before;
	uint8_t *mem;
	int other;
	bool ok;

	mem = fresh_pages(MUCH);
	connect_pair(&mapper.epd, &other);
	peer_register(other, 0, PAGE, 0, RW, FIXED);
	before = pinned();
	ok = succeeds(scif_register(mapper.epd, mem, MUCH, 0, RW, FIXED), 0,
		      "register");
	peer_stop();
	pthread_create(&mapper.thread, NULL, map_page, &mapper);
	sleep_ms(300 * slowness());
	ok = succeeds(scif_unregister(mapper.epd, 0, MUCH), 0, "unregister") &&
	     unpins(before + MUCH / 2) && ok;
	peer_continue();
	pthread_join(mapper.thread, NULL);
	ok = check(mapper.mem != SCIF_MMAP_FAILED, "mmap") &&
	     succeeds(scif_munmap(mapper.mem, PAGE), 0, "munmap") && ok;
	close_pair(mapper.epd, other);
	munmap(mem, MUCH);
	return ok;
}

/* What stays mapped of an endpoint that is closed. */
static bool closed_keeps_no_descriptor(void)
{
	struct peer_call call = { .flags = 0 };
	int own, others[ROUNDS], i;
	uint64_t end;
	unsigned int before = 0;
	uint8_t *page = fresh_pages(PAGE);
	bool ok = true;

	for (i = 0; i < ROUNDS && ok; i++) {
		connect_pair(&own, &others[i]);
		call.op = PEER_MMAP;
		call.epd = others[i];
		call.length = PAGE;
		call.prot = RW;
		ok = succeeds(scif_register(own, page, PAGE, 0, RW, FIXED), 0,
			      "register") &&
		     check(peer_do(&call) != -1, "the peer's mmap");
		scif_close(own);
		/* the first connection may open what all use */
		if (!i)
			before = count_descriptors();
	}
	end = deadline();
	while (count_descriptors() > before && now_ms() < end)
		sleep_ms(50);
	ok = check(count_descriptors() <= before, "%u descriptors, not %u",
		   count_descriptors(), before) &&
	     ok;
	while (i--)
		peer_op_epd(PEER_CLOSE, others[i]);
	peer_kill(); /* with its mappings */
	munmap(page, PAGE);
	return ok;
}

const struct behaviour holding_cases[] = {
	{ 56, "unregister while mmap waits for a peer that is stopped",
	  unregister_beside_mmap },
	{ 56, "a closed endpoint that is mapped keeps no descriptor",
	  closed_keeps_no_descriptor },
	{ 0, NULL, NULL }
};
