// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Messages: a server answers what a client sends.
 * usage: ping-pong server PORT | ping-pong client NODE PORT [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <scif.h>

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static int serve(int port)
{
	struct scif_port_id peer;
	char text[64];
	scif_epd_t listener, epd;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED)
		return fail("scif_open");
	if (scif_bind(listener, port) < 0)
		return fail("scif_bind");
	if (scif_listen(listener, 5))
		return fail("scif_listen");
	if (scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
		return fail("scif_accept");
	printf("connected with node %u, port %u\n", peer.node, peer.port);
	while (scif_recv(epd, text, sizeof(text), SCIF_RECV_BLOCK) ==
	       sizeof(text))
		scif_send(epd, text, sizeof(text), SCIF_SEND_BLOCK);
	scif_close(epd);
	scif_close(listener);
	return 0;
}

static int talk(int node, int port, int rounds)
{
	struct scif_port_id server = { .node = node, .port = port };
	char text[64] = "", answer[64];
	scif_epd_t epd;
	int i;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED)
		return fail("scif_open");
	if (scif_connect(epd, &server) < 0)
		return fail("scif_connect");
	for (i = 0; i < rounds; i++) {
		snprintf(text, sizeof(text), "ping %d", i);
		if (scif_send(epd, text, sizeof(text), SCIF_SEND_BLOCK) < 0)
			return fail("scif_send");
		if (scif_recv(epd, answer, sizeof(answer), SCIF_RECV_BLOCK) < 0)
			return fail("scif_recv");
		if (strcmp(text, answer)) {
			fprintf(stderr, "sent %s, got %s\n", text, answer);
			return 1;
		}
	}
	printf("%d messages went there and back\n", rounds);
	return scif_close(epd);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server"))
		return serve(atoi(argv[2]));
	if (argc >= 4 && !strcmp(argv[1], "client"))
		return talk(atoi(argv[2]), atoi(argv[3]),
			    argc > 4 ? atoi(argv[4]) : 1000);
	fprintf(stderr, "usage: %s server PORT | client NODE PORT [ROUNDS]\n",
		argv[0]);
	return 2;
}
