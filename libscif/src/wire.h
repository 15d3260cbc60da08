/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What the two sides of a connection agree on: memory that the peer writes or
 * reads, what is said when connecting, and control messages. Everything in
 * the byte order of the machine; the magic number tells if the peer's differs.
 */
#ifndef SCIF_WIRE_H
#define SCIF_WIRE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SCIF_MAGIC 0x53434946U
#define SCIF_PROTOCOL 3

/* One byte of the ring stays free. */
#define SCIF_RING_BYTES 4096U
#define SCIF_RING_ROOM (SCIF_RING_BYTES - 1)

/* What fits beside the count of bytes. */
#define SCIF_RECENT_WORDS 6

#define SCIF_MAX_WINDOWS 65536U

/* Private data of the connection request and of the answer. */
struct scif_hello {
	uint32_t magic;
	uint16_t protocol;
	uint16_t node;
	uint16_t port;
	uint16_t reserved;
	uint32_t rma_qpn;
	uint32_t rma_psn;
	uint32_t shared_rkey;
	uint64_t shared_addr;
};

/* A window as the peer sees it. The directory is sorted by offset. */
struct scif_dir_entry {
	uint64_t offset;
	uint64_t length;
	uint64_t addr; /* RDMA address of the first byte */
	uint64_t id;   /* never used again on this connection */
	uint32_t rkey;
	uint32_t prot;
};

/*
 * Where the directory is. A reader takes this, the entries, and this again:
 * if @end before equals @begin after, what it read belongs together.
 */
struct scif_dir_head {
	_Atomic uint32_t begin;
	_Atomic uint32_t end;
	uint32_t count;
	uint32_t rkey;
	uint64_t addr;
};

/*
 * The block of an endpoint that its peer can reach. Counters of bytes run
 * freely; the place in the ring is the counter modulo its size. What is written
 * often is in a cache line of its own: one goes to the receiver for each short
 * message, and none comes back.
 */
struct scif_shared {
	_Atomic uint32_t produced;	/* bytes the peer has put into @ring */
	_Atomic uint32_t recent_length; /* of the last ones, if in @recent */
	_Atomic uint32_t recent_from;	/* how many were before those */
	uint32_t gap0;
	_Atomic uint64_t recent[SCIF_RECENT_WORDS];
	_Atomic uint32_t consumed; /* bytes the peer took from its ring */
	uint32_t gap1[15];
	_Atomic uint32_t want_data; /* changed: wake the peer after a send */
	_Atomic uint32_t want_room; /* changed: wake it after a receive */
	_Atomic uint32_t dir_gen;   /* @end of the peer's directory */
	uint32_t gap2[13];
	uint64_t scratch; /* the peer's, for a value that it reads back */
	struct scif_dir_head dir;
	_Atomic uint32_t unmapped; /* not 0: the peer maps no window any more */
	uint8_t gap3[4096 - 3 * 64 - 8 - sizeof(struct scif_dir_head) - 4];
	uint8_t ring[SCIF_RING_BYTES];
};

enum scif_message_type {
	SCIF_WAKE_DATA = 1,
	SCIF_WAKE_ROOM,
	SCIF_REPLY,  /* to the request with this tag */
	SCIF_QUERY,  /* reply: how many RMAs you began */
	SCIF_WAIT,   /* reply when your first args[0] RMAs are done */
	SCIF_SIGNAL, /* scif_fence_signal() for your RMAs */
	/* Reply with args[0] when you use no window before that; until then with 0. */
	SCIF_RELEASE,
	SCIF_MAPPED,   /* I map the window args[0]; reply */
	SCIF_UNMAPPED, /* no longer so many as flags says, in args; SCIF_HEARD */
	SCIF_HEARD,    /* of the one SCIF_UNMAPPED: there may be another */
	SCIF_END       /* where rdma_cm cannot say so */
};

#define SCIF_MESSAGE_ARGS 6

struct scif_message {
	uint32_t type;
	uint32_t tag;
	int32_t status; /* errno, in a reply */
	uint32_t flags;
	uint64_t args[SCIF_MESSAGE_ARGS];
};

_Static_assert(sizeof(struct scif_hello) <= 56, "fits a connection request");
_Static_assert(sizeof(struct scif_shared) == 8192, "two pages");
_Static_assert(offsetof(struct scif_shared, consumed) == 64 &&
		       offsetof(struct scif_shared, want_data) == 128,
	       "a cache line each");
_Static_assert(sizeof(struct scif_message) == 64, "one cache line");

#endif /* SCIF_WIRE_H */
