// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A device is removed under calls that copy, send, receive and wait: all of
 * them end.
 * usage: scif_removal NODES OWN PEER COMMAND [listener]
 *   COMMAND   removes the device
 *   listener  only that of one's own node, under a call that accepts
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "peer.h"
#include "tap.h"

enum { CALLERS = 4, SYNC = SCIF_RMA_SYNC };

struct caller {
	const char *name;
	bool (*goes_on)(int epd);
	int epd;
	int error;
	pthread_t thread;
};

static bool copies(int epd)
{
	return !scif_writeto(epd, 0, COUPLE_BYTES, 0, 0);
}

static bool copies_and_waits(int epd)
{
	return !scif_readfrom(epd, 0, COUPLE_BYTES, 0, SYNC);
}

/* The last time, perhaps not all of it. */
static bool sends(int epd)
{
	char bytes[64] = { 0 };

	return scif_send(epd, bytes, sizeof(bytes), SCIF_SEND_BLOCK) > 0;
}

static bool receives(int epd)
{
	char byte;

	return scif_recv(epd, &byte, 1, SCIF_RECV_BLOCK) == 1;
}

static bool accepts(int epd)
{
	struct scif_port_id peer;
	int new;

	return !scif_accept(epd, &peer, &new, SCIF_ACCEPT_SYNC);
}

static void *call_always(void *argument)
{
	struct caller *caller = argument;

	while (caller->goes_on(caller->epd))
		;
	caller->error = errno;
	return NULL;
}

/* The peer takes what is sent. */
static void drain_peer(int other)
{
	struct peer_call call = { .op = PEER_RECV,
				  .epd = other,
				  .length = PEER_DATA };

	if (peer_do(&call) < 0)
		sleep_ms(10);
}

static bool ends_in_time(struct caller *caller, int error)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 60;
	return check(!pthread_timedjoin_np(caller->thread, NULL, &end),
		     "a call that %s goes on", caller->name) &&
	       check(caller->error == error, "a call that %s: %s", caller->name,
		     strerrorname_np(caller->error));
}

/* What is gone keeps no processor busy. */
static bool is_at_rest(void)
{
	struct timespec before, after;
	double seconds;

	sleep_ms(300);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	sleep_ms(1000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	seconds = after.tv_sec - before.tv_sec +
		  (after.tv_nsec - before.tv_nsec) / 1e9;
	return check(seconds < 0.3, "%.2f s of processor time in one", seconds);
}

static bool removed_under(const char *command)
{
	struct caller callers[CALLERS] = {
		{ .name = "copies", .goes_on = copies },
		{ .name = "copies and waits", .goes_on = copies_and_waits },
		{ .name = "sends", .goes_on = sends },
		{ .name = "receives", .goes_on = receives },
	};
	struct couple couples[CALLERS];
	bool ok;
	int i;

	for (i = 0; i < CALLERS; i++) {
		couples[i] = couple_begin();
		callers[i].epd = couples[i].own;
		pthread_create(&callers[i].thread, NULL, call_always,
			       &callers[i]);
	}
	for (i = 0; i < 30; i++)
		drain_peer(couples[2].other);
	ok = succeeds(system(command), 0, command);
	for (i = 0; i < CALLERS; i++)
		ok = ends_in_time(&callers[i], ECONNRESET) && ok;
	for (i = 0; i < CALLERS && ok; i++) {
		ok = shows(couples[i].own, POLLHUP);
		scif_close(couples[i].own);
	}
	return ok && is_at_rest();
}

/* Of one's own device: nobody can come any more. */
static bool removed_under_listener(const char *command)
{
	struct caller caller = { .name = "accepts", .goes_on = accepts };
	bool ok;

	caller.epd = scif_open();
	scif_bind(caller.epd, 0);
	scif_listen(caller.epd, 1);
	pthread_create(&caller.thread, NULL, call_always, &caller);
	sleep_ms(100);
	ok = succeeds(system(command), 0, command) &&
	     ends_in_time(&caller, ENODEV);
	if (ok)
		ok = check(scif_poll_now(caller.epd) == POLLERR,
			   "scif_poll says 0x%x", scif_poll_now(caller.epd)) &&
		     is_at_rest();
	return succeeds(scif_close(caller.epd), 0, "close") && ok;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		bail("usage: %s NODES OWN PEER COMMAND [listener]", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	peer_node = atoi(argv[3]);
	peer_start();
	if (argc > 5)
		tap_ok(removed_under_listener(argv[4]), "%s: accept ends",
		       argv[4]);
	else
		tap_ok(removed_under(argv[4]), "%s: every call ends", argv[4]);
	peer_end();
	return tap_end();
}
