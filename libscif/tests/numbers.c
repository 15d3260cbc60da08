// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A call takes back what the descriptor shows, while another thread closes it and gives
 * its number to a socket of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "behaviour.h"
#include "hooks.h"
#include "peer.h"
#include "tap.h"

enum { RING = 4095 };

static struct {
	int epd;
	int other;
	int kept;	 /* another number of the endpoint */
	int stranger[2]; /* a pair of sockets; the first one takes the number */
} swap;

static int take_number(void)
{
	dup2(swap.stranger[0], swap.epd);
	return 0;
}

static bool swap_begin(void)
{
	connect_pair(&swap.epd, &swap.other);
	swap.kept = dup(swap.epd);
	return check(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0,
				 swap.stranger),
		     "socketpair: %s", strerror(errno));
}

/* The endpoint has its number again. */
static void give_back(void)
{
	hook_next(HOOK_RECV, NULL);
	hook_next(HOOK_SEND, NULL);
	dup2(swap.kept, swap.epd);
}

static void swap_end(void)
{
	close(swap.kept);
	close(swap.stranger[0]);
	close(swap.stranger[1]);
	close_pair(swap.epd, swap.other);
}

static bool keeps_bytes(void)
{
	char byte, text[4] = "";
	bool ok;

	ok = swap_begin() &&
	     succeeds(peer_send(swap.other, "x", 1, 1), 1, "peer's send") &&
	     shows(swap.epd, POLLIN) &&
	     succeeds(send(swap.stranger[1], "abc", 4, 0), 4, "to the other");
	hook_next(HOOK_RECV, take_number);
	ok = succeeds(scif_recv(swap.epd, &byte, 1, 0), 1, "recv") && ok;
	ok = check(!hook_waits(HOOK_RECV), "nothing was taken back") && ok;
	give_back();
	ok = succeeds(recv(swap.stranger[0], text, 4, MSG_DONTWAIT), 4,
		      "what is the stranger's") &&
	     check(!strcmp(text, "abc"), "the bytes") &&
	     check(poll_now(swap.epd) == POLLOUT, "the endpoint shows 0x%x",
		   poll_now(swap.epd)) &&
	     ok;
	swap_end();
	return ok;
}

static bool gets_no_bytes(void)
{
	char bytes[RING] = "";
	bool ok = swap_begin();

	hook_next(HOOK_SEND, take_number);
	ok = succeeds(scif_send(swap.epd, bytes, RING, 0), RING, "send") && ok;
	ok = check(!hook_waits(HOOK_SEND), "nothing was taken back") && ok;
	give_back();
	ok = fails(recv(swap.stranger[1], bytes, 1, MSG_DONTWAIT), EAGAIN,
		   "what the stranger sends") &&
	     check(!poll_now(swap.epd), "the endpoint shows 0x%x",
		   poll_now(swap.epd)) &&
	     ok;
	swap_end();
	return ok;
}

const struct behaviour number_cases[] = {
	{ 33, "who gets the number of an endpoint keeps its bytes",
	  keeps_bytes },
	{ 33, "who gets the number of an endpoint sends nothing of the library",
	  gets_no_bytes },
	{ 0, NULL, NULL }
};
