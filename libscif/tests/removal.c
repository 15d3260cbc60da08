// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A device is removed under calls that copy, send, receive and wait, or the peer's
 * machine dies: all of them end.
 * usage: scif_removal NODES OWN PEER COMMAND [listener|machine]
 *   COMMAND   removes the device, or kills the machine
 *   listener  only that of one's own node, under a call that accepts
 *   machine   afterwards the node is not there
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
	/* What is gone keeps no processor busy. */
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

static bool machine_gone(const char *command)
{
	struct scif_port_id port = { .node = peer_node, .port = 2000 };
	uint64_t begin;
	bool ok;
	int epd;

	if (!removed_under(command))
		return false;
	epd = scif_open();
	begin = now_ms();
	ok = fails(scif_connect(epd, &port), ENODEV, "connect") &&
	     check(now_ms() - begin < 30000ULL * slowness(), "%llu ms",
		   (unsigned long long)(now_ms() - begin));
	return succeeds(scif_close(epd), 0, "close") && ok;
}

int main(int argc, char **argv)
{
	if (argc < 5)
		bail("usage: %s NODES OWN PEER COMMAND [listener|machine]",
		     argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	peer_node = atoi(argv[3]);
	peer_start();
	if (argc > 5 && !strcmp(argv[5], "machine"))
		tap_ok(machine_gone(argv[4]), "%s: every call ends", argv[4]);
	else if (argc > 5)
		tap_ok(removed_under_listener(argv[4]), "%s: accept ends",
		       argv[4]);
	else
		tap_ok(removed_under(argv[4]), "%s: every call ends", argv[4]);
	peer_end();
	return tap_end();
}
