// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Sending and receiving.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "behaviour.h"
#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum { RING = 4095, LONG = 8192 };

static bool length_zero(void)
{
	int epd = scif_open(), own, other;
	char byte;
	bool ok;

	ok = succeeds(scif_send(epd, &byte, 0, 0), 0, "send, unconnected") &&
	     succeeds(scif_recv(epd, &byte, 0, 1), 0, "recv, unconnected");
	scif_close(epd);
	connect_pair(&own, &other);
	ok = succeeds(scif_send(own, &byte, 0, 1), 0, "send") &&
	     succeeds(scif_recv(own, &byte, 0, 1), 0, "recv") && ok;
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) &&
	     succeeds(scif_send(own, &byte, 0, 0), 0, "send, peer gone") &&
	     succeeds(scif_recv(own, &byte, 0, 0), 0, "recv, peer gone") && ok;
	scif_close(own);
	return ok;
}

static bool invalid(void)
{
	int epd = scif_open();
	char byte;
	bool ok;

	ok = fails(scif_send(epd, &byte, -1, 0), EINVAL, "send -1 bytes") &&
	     fails(scif_recv(epd, &byte, -1, 0), EINVAL, "recv -1 bytes") &&
	     fails(scif_send(epd, &byte, 1, 2), EINVAL, "send flags 2") &&
	     fails(scif_recv(epd, &byte, 1, 6), EINVAL, "recv flags 6");
	scif_close(epd);
	return ok;
}

static bool unconnected(void)
{
	int epd = scif_open();
	char byte = 0;
	bool ok;

	ok = fails(scif_send(epd, &byte, 1, 0), ENOTCONN, "send") &&
	     fails(scif_recv(epd, &byte, 1, 0), ENOTCONN, "recv");
	scif_bind(epd, 0);
	ok = fails(scif_send(epd, &byte, 1, 1), ENOTCONN, "send, bound") && ok;
	scif_listen(epd, 1);
	ok = fails(scif_recv(epd, &byte, 1, 1), ENOTCONN, "recv, listening") &&
	     ok;
	scif_close(epd);
	return ok;
}

static bool nonblocking(void)
{
	uint8_t bytes[LONG], received[LONG];
	int own, other, round;
	bool ok = true;

	memcpy(bytes, pattern_bytes(27, LONG), LONG);
	connect_pair(&own, &other);
	ok = succeeds(scif_recv(own, received, 10, 0), 0, "no data") && ok;
	for (round = 0; round < 3; round++) {
		ok = succeeds(scif_send(own, bytes, LONG, 0), RING,
			      "8192 bytes") &&
		     succeeds(scif_send(own, bytes, 1, 0), 0, "no room") && ok;
		ok = succeeds(peer_recv(other, received, 100, 0), 100,
			      "100 bytes") &&
		     !memcmp(received, bytes, 100) && ok;
		ok = succeeds(scif_send(own, bytes + RING, LONG - RING, 0), 100,
			      "room for 100") &&
		     ok;
		ok = succeeds(peer_recv(other, received, LONG, 0), RING,
			      "the rest") &&
		     check(!memcmp(received, bytes + 100, RING),
			   "their bytes") &&
		     ok;
	}
	close_pair(own, other);
	return ok;
}

/* A blocking send of more than the ring has, and a blocking receive. */
static bool sends_all(bool nonblock)
{
	struct peer_call call = { .op = PEER_RECV,
				  .flags = SCIF_RECV_BLOCK,
				  .length = PEER_DATA };
	uint8_t bytes[PEER_DATA];
	int own, other, i;
	bool ok = true;

	memcpy(bytes, pattern_bytes(28, PEER_DATA), PEER_DATA);
	connect_pair(&own, &other);
	if (nonblock) {
		fcntl(own, F_SETFL, O_NONBLOCK);
		peer_op_epd(PEER_NONBLOCK, other);
	}
	call.epd = other;
	for (i = 0; i < 3; i++) {
		call.op = PEER_RECV;
		peer_begin(&call);
		ok = succeeds(scif_send(own, bytes, PEER_DATA, SCIF_SEND_BLOCK),
			      PEER_DATA, "send") &&
		     ok;
		ok = succeeds(peer_finish(&call), PEER_DATA, "recv") &&
		     check(!memcmp(call.data, bytes, PEER_DATA), "bytes") && ok;
	}
	close_pair(own, other);
	return ok;
}

static bool blocking(void)
{
	return sends_all(false);
}

/* O_NONBLOCK is for connect alone. */
static bool blocking_nonblock(void)
{
	return sends_all(true);
}

static void *receive_two(void *epd)
{
	static char bytes[2];

	scif_recv(*(int *)epd, bytes, 2, SCIF_RECV_BLOCK);
	return NULL;
}

static void *receive_one(void *epd)
{
	char byte;
	int ret = scif_recv(*(int *)epd, &byte, 1, SCIF_RECV_BLOCK);

	return ret == 1 ? epd : NULL;
}

/* Calls on an endpoint while another thread's call sleeps on it. */
static bool while_another_waits(void)
{
	pthread_t first, second;
	int own, other;
	void *result;
	char byte;
	bool ok;

	connect_pair(&own, &other);
	pthread_create(&first, NULL, receive_two, &own);
	sleep_ms(300);
	ok = succeeds(scif_recv(own, &byte, 1, 0), 0, "without blocking");
	pthread_create(&second, NULL, receive_one, &own);
	sleep_ms(300);
	ok = succeeds(peer_send(other, "abc", 3, 1), 3, "send") && ok;
	pthread_join(first, &result);
	pthread_join(second, &result);
	ok = check(result, "the second gets what the first leaves") && ok;
	/* The close ends the one that sleeps, and the one behind it. */
	pthread_create(&first, NULL, receive_two, &own);
	pthread_create(&second, NULL, receive_one, &own);
	sleep_ms(300);
	scif_close(own);
	pthread_join(first, NULL);
	pthread_join(second, &result);
	ok = check(!result, "the close ends the second") && ok;
	peer_op_epd(PEER_CLOSE, other);
	return ok;
}

/* More in a row than it takes to be hot, then poll() again. */
static bool ping_pong(void)
{
	struct peer_call call = { .flags = 1, .length = 8 };
	uint64_t value, answer;
	int own, other;
	bool ok = true;

	connect_pair(&own, &other);
	call.epd = other;
	for (value = 0; value < 200 && ok; value++) {
		call.op = PEER_RECV;
		peer_begin(&call);
		ok = scif_send(own, &value, 8, 1) == 8 &&
		     peer_finish(&call) == 8;
		call.op = PEER_SEND;
		peer_begin(&call);
		ok = ok && scif_recv(own, &answer, 8, 1) == 8 &&
		     peer_finish(&call) == 8 && answer == value;
	}
	check(ok, "round %llu", (unsigned long long)value);
	ok = succeeds(peer_send(other, "x", 1, 1), 1, "send") &&
	     shows(own, POLLIN) && ok;
	close_pair(own, other);
	return ok;
}

static bool peer_closed(void)
{
	uint8_t bytes[100];
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	ok = succeeds(peer_send(other, pattern_bytes(1, 100), 100, 1), 100,
		      "send");
	peer_op_epd(PEER_CLOSE, other);
	ok = shows(own, POLLHUP) &&
	     fails(scif_send(own, bytes, 1, 0), ECONNRESET, "send") &&
	     succeeds(scif_recv(own, bytes, 60, 0), 60, "60 bytes") &&
	     succeeds(scif_recv(own, bytes + 60, 60, 1), 40, "40 bytes") &&
	     check(!memcmp(bytes, pattern_bytes(1, 100), 100), "bytes") &&
	     fails(scif_recv(own, bytes, 1, 0), ECONNRESET, "nothing left") &&
	     fails(scif_recv(own, bytes, 1, 1), ECONNRESET, "blocking") && ok;
	scif_close(own);
	return ok;
}

struct receive {
	int epd;
	int ret;
	uint8_t bytes[100];
};

static void *receive(void *argument)
{
	struct receive *receive = argument;

	receive->ret = scif_recv(receive->epd, receive->bytes, 100, 1);
	return NULL;
}

static bool blocked_receive(void)
{
	struct receive waiting = { 0 };
	pthread_t thread;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	waiting.epd = own;
	pthread_create(&thread, NULL, receive, &waiting);
	sleep_ms(50);
	ok = succeeds(peer_send(other, pattern_bytes(1, 40), 40, 1), 40,
		      "send");
	sleep_ms(50);
	peer_op_epd(PEER_CLOSE, other);
	pthread_join(thread, NULL);
	ok = succeeds(waiting.ret, 40, "the blocked receive") && ok;
	scif_close(own);
	return ok;
}

/* A call that waits long keeps no processor busy. */
static bool waits_asleep(void)
{
	struct receive waiting = { 0 };
	pthread_t thread;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	waiting.epd = own;
	pthread_create(&thread, NULL, receive, &waiting);
	ok = is_at_rest();
	ok = succeeds(peer_send(other, pattern_bytes(1, 100), 100, 1), 100,
		      "send") &&
	     ok;
	pthread_join(thread, NULL);
	ok = succeeds(waiting.ret, 100, "the receive") && ok;
	close_pair(own, other);
	return ok;
}

static void *receive_and_end(void *epd)
{
	receive_one(epd);
	pthread_testcancel();
	return NULL;
}

static void *poll_and_end(void *epd)
{
	struct scif_pollepd entry = { *(int *)epd, SCIF_POLLIN, 0 };

	scif_poll(&entry, 1, -1);
	return NULL;
}

static bool ends_cancelled(pthread_t thread, const char *what)
{
	void *result;

	pthread_join(thread, &result);
	return check(result == PTHREAD_CANCELED, "%s: not cancelled", what);
}

/* For gcc's sanitizer of threads, who is cancelled in poll() never leaves it. */
#ifdef __SANITIZE_THREAD__
enum { POLLS = false };
#else
enum { POLLS = true };
#endif

/*
 * A thread that is cancelled while it waits leaves nothing behind: a receive goes on
 * to its end.
 */
static bool cancelled(void)
{
	pthread_t receives, polls;
	int own, other, idle, idle_other;
	char byte = 0;
	bool ok;

	connect_pair(&own, &other);
	connect_pair(&idle, &idle_other);
	pthread_create(&receives, NULL, receive_and_end, &own);
	if (POLLS)
		pthread_create(&polls, NULL, poll_and_end, &idle);
	sleep_ms(300);
	pthread_cancel(receives);
	if (POLLS)
		pthread_cancel(polls);
	sleep_ms(100);
	ok = succeeds(peer_send(other, "a", 1, 1), 1, "send");
	ok = ends_cancelled(receives, "receive") && ok;
	ok = (!POLLS || ends_cancelled(polls, "poll")) && ok;
	ok = succeeds(peer_send(other, "b", 1, 1), 1, "another one") &&
	     shows(own, POLLIN) &&
	     succeeds(scif_recv(own, &byte, 1, 0), 1, "recv") &&
	     check(byte == 'b', "the byte %c", byte) &&
	     succeeds(peer_send(idle_other, "c", 1, 1), 1, "to the other") &&
	     succeeds(scif_recv(idle, &byte, 1, 1), 1, "recv there") && ok;
	close_pair(own, other);
	close_pair(idle, idle_other);
	return ok;
}

static bool bad_address(void)
{
	void *hole = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	char byte = 7;
	int own, other;
	bool ok;

	connect_pair(&own, &other);
	ok = fails(scif_send(own, hole, 8, 0), EFAULT, "send") &&
	     succeeds(peer_send(other, "abc", 3, 1), 3, "peer's send") &&
	     fails(scif_recv(own, hole, 8, 0), EFAULT, "recv") &&
	     fails(scif_recv(own, NULL, 8, 0), EFAULT, "recv to NULL") &&
	     succeeds(scif_recv(own, &byte, 1, 0), 1, "recv") &&
	     check(byte == 'a', "nothing is lost");
	close_pair(own, other);
	munmap(hole, 8192);
	return ok;
}

const struct behaviour message_cases[] = {
	{ 24, "length 0: 0 in any state", length_zero },
	{ 25, "a negative length, unknown flags: EINVAL", invalid },
	{ 26, "not connected: ENOTCONN", unconnected },
	{ 27, "non-blocking: as much as has room", nonblocking },
	{ 27, "blocking: all", blocking },
	{ 23, "blocking, with O_NONBLOCK: all", blocking_nonblock },
	{ 27, "many in a row, then poll", ping_pong },
	{ 27, "while another thread's call waits", while_another_waits },
	{ 28, "the peer closed: drain, then ECONNRESET", peer_closed },
	{ 28, "a blocked receive returns what it has", blocked_receive },
	{ 27, "who waits long sleeps", waits_asleep },
	{ 27, "a thread that is cancelled while it waits", cancelled },
	{ 28, "bad addresses: EFAULT, and nothing is lost", bad_address },
	{ 0, NULL, NULL }
};
