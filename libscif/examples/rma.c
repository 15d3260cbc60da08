// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Remote memory: a client writes into a window of the server, and a value
 * behind it that tells the server that all is there.
 * usage: rma server PORT | rma client NODE PORT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <scif.h>

#define BYTES (1 << 20)
#define DONE 0x600dULL

static int fail(const char *what)
{
	perror(what);
	return 1;
}

/* Memory with a window; both sides use the same offset. */
static volatile unsigned char *show_memory(scif_epd_t epd, off_t *offset)
{
	void *memory;

	if (posix_memalign(&memory, 4096, BYTES))
		return NULL;
	memset(memory, 0, BYTES);
	*offset = scif_register(epd, memory, BYTES, 0x100000,
				SCIF_PROT_READ | SCIF_PROT_WRITE,
				SCIF_MAP_FIXED);
	return *offset == SCIF_REGISTER_FAILED ? NULL : memory;
}

static int serve(int port)
{
	volatile unsigned char *memory;
	volatile uint64_t *flag;
	struct scif_port_id peer;
	scif_epd_t listener, epd;
	off_t offset;
	char ready = 1;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED || scif_bind(listener, port) < 0 ||
	    scif_listen(listener, 1) ||
	    scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
		return fail("listening");
	memory = show_memory(epd, &offset);
	if (!memory)
		return fail("scif_register");
	scif_send(epd, &ready, 1, SCIF_SEND_BLOCK);
	/* The last 8 bytes of the window are the flag. */
	flag = (volatile uint64_t *)(memory + BYTES - sizeof(*flag));
	while (*flag != DONE)
		;
	printf("the window has %d in front, %d behind\n", memory[0],
	       memory[BYTES - 16]);
	scif_recv(epd, &ready, 1, SCIF_RECV_BLOCK);
	scif_close(epd);
	scif_close(listener);
	free((void *)memory);
	return 0;
}

static int copy(int node, int port)
{
	struct scif_port_id server = { .node = node, .port = port };
	volatile unsigned char *memory;
	scif_epd_t epd;
	off_t offset;
	char ready;
	int mark;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED || scif_connect(epd, &server) < 0)
		return fail("scif_connect");
	memory = show_memory(epd, &offset);
	if (!memory)
		return fail("scif_register");
	scif_recv(epd, &ready, 1, SCIF_RECV_BLOCK);
	memset((void *)memory, 42, BYTES);
	/* It only begins; the signal is written when it is done. */
	if (scif_writeto(epd, offset, BYTES - 8, offset, 0))
		return fail("scif_writeto");
	if (scif_fence_signal(epd, 0, 0, offset + BYTES - 8, DONE,
			      SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_REMOTE))
		return fail("scif_fence_signal");
	/* Until here too all is done, by a mark. */
	if (scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark) ||
	    scif_fence_wait(epd, mark))
		return fail("scif_fence_wait");
	printf("written\n");
	scif_send(epd, &ready, 1, SCIF_SEND_BLOCK);
	scif_close(epd);
	free((void *)memory);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server"))
		return serve(atoi(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "client"))
		return copy(atoi(argv[2]), atoi(argv[3]));
	fprintf(stderr, "usage: %s server PORT | client NODE PORT\n", argv[0]);
	return 2;
}
