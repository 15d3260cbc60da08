// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Mapped memory: a client maps a page of the server and calls it through that,
 * with loads and stores alone. The page is of scif_alloc_dm(), so that it can be mapped
 * by another machine, too; on one machine any memory will do.
 * usage: mmap server PORT | mmap client NODE PORT [CALLS]
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <scif.h>

#define BYTES 4096
#define WINDOW 0x10000

/* The page: a call is there when its number changes, and so is the answer. */
struct page {
	atomic_uint call;
	int value;
	char gap[56]; /* each side writes a cache line of its own */
	atomic_uint answer;
	int square;
};

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static void wait_for(atomic_uint *word, unsigned int number)
{
	while (atomic_load_explicit(word, memory_order_acquire) != number)
		sched_yield();
}

static int serve(int port)
{
	struct scif_port_id peer;
	scif_epd_t listener, epd;
	unsigned int calls, i;
	struct page *page;
	char ready = 1;
	void *memory;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED || scif_bind(listener, port) < 0 ||
	    scif_listen(listener, 1) ||
	    scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
		return fail("listening");
	memory = scif_alloc_dm(epd, BYTES);
	if (memory == SCIF_ALLOC_FAILED)
		return fail("scif_alloc_dm");
	page = memory;
	if (scif_register(epd, memory, BYTES, WINDOW,
			  SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) == SCIF_REGISTER_FAILED)
		return fail("scif_register");
	scif_send(epd, &ready, 1, SCIF_SEND_BLOCK);
	if (scif_recv(epd, &calls, sizeof(calls), SCIF_RECV_BLOCK) !=
	    sizeof(calls))
		return fail("scif_recv");
	for (i = 1; i <= calls; i++) {
		wait_for(&page->call, i);
		page->square = page->value * page->value;
		atomic_store_explicit(&page->answer, i, memory_order_release);
	}
	scif_recv(epd, &ready, 1, SCIF_RECV_BLOCK);
	scif_close(epd);
	scif_close(listener);
	scif_free_dm(memory);
	return 0;
}

static int call(struct page *page, unsigned int calls)
{
	unsigned int i;

	for (i = 1; i <= calls; i++) {
		page->value = i % 1000;
		atomic_store_explicit(&page->call, i, memory_order_release);
		wait_for(&page->answer, i);
		if (page->square != page->value * page->value) {
			fprintf(stderr, "the square of %d is not %d\n",
				page->value, page->square);
			return 1;
		}
	}
	printf("%u calls were answered\n", calls);
	return 0;
}

static int connect_and_call(int node, int port, unsigned int calls)
{
	struct scif_port_id server = { .node = node, .port = port };
	struct page *page;
	scif_epd_t epd;
	char ready;
	int status;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED || scif_connect(epd, &server) < 0)
		return fail("scif_connect");
	if (scif_recv(epd, &ready, 1, SCIF_RECV_BLOCK) != 1)
		return fail("scif_recv");
	page = scif_mmap(NULL, BYTES, SCIF_PROT_READ | SCIF_PROT_WRITE, 0, epd,
			 WINDOW);
	if (page == SCIF_MMAP_FAILED)
		return fail("scif_mmap");
	scif_send(epd, &calls, sizeof(calls), SCIF_SEND_BLOCK);
	status = call(page, calls);
	scif_munmap(page, BYTES);
	scif_send(epd, &ready, 1, SCIF_SEND_BLOCK);
	scif_close(epd);
	return status;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server"))
		return serve(atoi(argv[2]));
	if (argc >= 4 && !strcmp(argv[1], "client"))
		return connect_and_call(atoi(argv[2]), atoi(argv[3]),
					argc > 4 ? atoi(argv[4]) : 1000);
	fprintf(stderr, "usage: %s server PORT | client NODE PORT [CALLS]\n",
		argv[0]);
	return 2;
}
