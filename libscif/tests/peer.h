/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * A second process that calls the library as it is told, so that a test can
 * be written as one story with two sides.
 */
#ifndef SCIF_TESTS_PEER_H
#define SCIF_TESTS_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <scif.h>

enum { PEER_DATA = 16384, PEER_ARENA = 8 << 20, COUPLE_BYTES = 1 << 20 };

enum peer_op {
	PEER_OPEN,
	PEER_CLOSE,
	PEER_PLAIN_CLOSE,
	PEER_BIND,
	PEER_LISTEN,
	PEER_CONNECT,
	PEER_ACCEPT,
	PEER_SEND,
	PEER_RECV,
	PEER_POLL,
	PEER_NONBLOCK,
	PEER_REGISTER,
	PEER_UNREGISTER,
	PEER_READFROM,
	PEER_WRITETO,
	PEER_VREADFROM,
	PEER_VWRITETO,
	PEER_FENCE_MARK,
	PEER_FENCE_WAIT,
	PEER_FENCE_SIGNAL,
	PEER_MMAP,
	PEER_MUNMAP,
	PEER_MUNMAP_SEND,
	PEER_PEEK,
	PEER_POKE,
	PEER_LOAD,
	PEER_STORE,
	PEER_ALLOC,
	PEER_FREE,
	PEER_REGISTER_AT,
	PEER_SETGROUPS,
	PEER_FORK,
	PEER_STOP,
	PEER_EXIT
};

struct peer_call {
	enum peer_op op;
	int epd;
	int flags;
	int prot;
	struct scif_port_id port;
	uint64_t length;
	int64_t local;	/* an offset, a place in the arena, or an address */
	int64_t remote; /* an offset */
	uint64_t local_value;
	uint64_t remote_value;
	int64_t ret;
	int error;
	uint8_t data[PEER_DATA];
};

/* The numbers of this process's node and the peer's. */
extern uint16_t own_node, peer_node;

/*
 * Start the peer; before this process uses the library. With SCIF_TEST_PEER,
 * ADDRESS:PORT, it is a child of the scif_peer there.
 */
void peer_start(void);
void peer_end(void);
/* Kill it; another one takes the next call. */
void peer_kill(void);
/* It does not get any further. */
void peer_stop(void);
void peer_continue(void);

/* What the peer does: calls from @socket until it ends. Does not return. */
void peer_main(int socket);

/* Have the peer call, and wait for what it returns. */
int64_t peer_do(struct peer_call *call);
/* The same in two steps. */
void peer_begin(const struct peer_call *call);
int64_t peer_finish(struct peer_call *call);

/* Do a call in this process; errno tells why it failed. */
int64_t peer_perform(struct peer_call *call, uint8_t *arena);

/* Short forms. */
int peer_op_epd(enum peer_op op, int epd);
int peer_send(int epd, const void *bytes, int length, int flags);
int peer_recv(int epd, void *bytes, int length, int flags);
/* A listener at the peer; its port. And who waits there, or comes. */
uint16_t peer_listen(int *listener, int backlog);
int peer_accept(int listener);

/*
 * A connection: *@own is this process's end and *@other the peer's, which
 * accepted. Ends the test if that fails.
 */
void connect_pair(int *own, int *other);
void close_pair(int own, int other);
/* Both ends are this process's: @one has connected, @two was accepted. */
void connect_oneself(int *one, int *two);

/* Windows and memory of the peer; @place is in its arena. */
int64_t peer_register(int epd, int64_t place, uint64_t length, int64_t offset,
		      int prot, int flags);
int peer_unregister(int epd, int64_t offset, uint64_t length);
void peer_poke(int64_t place, const void *bytes, uint64_t length);
void peer_peek(int64_t place, void *bytes, uint64_t length);

/* This process's memory to register: zeroed pages, for each call others. */
uint8_t *fresh_pages(size_t length);

/* A connection with a window of COUPLE_BYTES on each side, at 0. */
struct couple {
	int own;
	int other;
	uint8_t *mem; /* what the own window shows */
};

struct couple couple_begin(void);
void couple_end(struct couple *couple);

/* Does this process use little processor time, for a second from now? */
bool is_at_rest(void);

/* Does @ret say failure with @error? With a remark if not. */
bool fails(int64_t ret, int error, const char *what);
bool succeeds(int64_t ret, int64_t expected, const char *what);
/* For the peer's calls. */
bool peer_fails(struct peer_call *call, int error, const char *what);

/* What the other side's library has its thread for; many times. */
bool marks_pass(int epd);

/* Wait until poll() shows all of @events; false if it does not happen. */
bool shows(int fd, short events);
/* What poll(), select(), epoll and scif_poll() say now. */
short poll_now(int fd);
short scif_poll_now(int epd);

#endif /* SCIF_TESTS_PEER_H */
