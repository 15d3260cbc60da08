/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * Two sides of a connection as they should be, and random steps: each does a
 * call on one of them and says if the model agrees.
 */
#ifndef SCIF_TESTS_MODEL_H
#define SCIF_TESTS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "peer.h"

enum {
	PAGE = 4096,
	RING = 4095,
	SPACE = 80, /* pages of registered address space */
	ARENA = 64, /* pages of memory */
	WINDOWS = SPACE,
	MAPS = 4,
	MAP_PAGES = 4,
	FIXED = SCIF_MAP_FIXED
};

struct window {
	unsigned int page, pages, place; /* @place in the arena, in pages */
	int prot;
	unsigned int id;
};

/* What a side has mapped of the other's memory, page by page. */
struct mapping {
	int64_t addr;
	unsigned int pages;
	int prot;
	unsigned int places[MAP_PAGES];
	unsigned int ids[MAP_PAGES]; /* of the windows */
};

struct side {
	int epd;
	struct window windows[WINDOWS];
	unsigned int count, last_id;
	/* unregistered, and mapped by the other side */
	struct window gone[WINDOWS];
	unsigned int gone_count;
	bool late; /* the other unmapped; this one may not know it yet */
	struct mapping maps[MAPS];
	unsigned int map_count;
	uint8_t memory[ARENA * PAGE];
	uint8_t queue[RING]; /* on its way to this side */
	unsigned int queued;
};

extern struct side sides[2];
extern struct peer_call call;

/* model.c */
uint32_t below(uint32_t limit);
uint32_t random_word(void);
void clear(enum peer_op op);
/* The call on side 0, which is this process, or 1, the peer. */
int64_t on(int side);
bool expect(int64_t ret, int error, const char *what);

/* model_copies.c */
bool do_register(int side);
bool do_unregister(int side);
bool do_copy(int side);
/* Several copies of both sides, which are under way together. */
bool do_copies(int side);
bool do_poke(int side);
bool do_peek(int side);
/* All of a side's memory is as it should be. */
bool memory_agrees(int side);
const struct window *window_at(const struct side *side, unsigned int page);
/* A place in the registered space, most often in a window. */
unsigned int random_offset(const struct side *side, unsigned int length);
/* 0, ENXIO or EACCES. */
int check_range(const struct side *side, unsigned int from, unsigned int length,
		int prot);
uint8_t *byte_at(struct side *side, unsigned int offset);

/* model_fences.c */
bool do_fence(int side);
bool do_signal(int side);
/* Wait, in one of the ways there are, until what @side began is done. */
bool settle(int side);

/* model_maps.c */
bool do_map(int side);
bool do_touch(int side);
bool do_unmap(int side);
/* When the connection has ended; @alive: both processes are there. */
bool end_maps(int side, bool alive);

/* model_death.c: the peer is killed, this side notices, and closes. */
bool do_death(void);

#endif /* SCIF_TESTS_MODEL_H */
