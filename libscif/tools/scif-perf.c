// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Measures messages, copies and mappings between two nodes, and memcpy and a
 * bouncing cache line beside them. Each result is a line: what, bytes, value; and
 * draws charts of such lines.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <scif.h>

#include "bounce.h"
#include "chart.h"

enum {
	PORT = 3030,
	LEAST = 64,
	MOST = 4 << 20,
	RUNS = 5,
	ROUNDS = 10000,
	RUN_MS = 60,
	PAGE = 4096,
	GAP = 37 * PAGE,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE
};

/* What a client asks of the server. */
enum request { ECHO = 1, MAPPED = 2 };

static void die(const char *what)
{
	fprintf(stderr, "scif-perf: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double one = *(const double *)a, two = *(const double *)b;

	return (one > two) - (one < two);
}

static double median(double *values)
{
	qsort(values, RUNS, sizeof(*values), by_value);
	return values[RUNS / 2];
}

static void *pages(size_t length, int sharing)
{
	void *mem = mmap(NULL, length, PROT_READ | PROT_WRITE,
			 sharing | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (mem == MAP_FAILED)
		die("mmap");
	return mem;
}

static double measure_words(_Atomic uint64_t *out, _Atomic uint64_t *in)
{
	double runs[RUNS], start;
	int i;

	for (i = 0; i < RUNS; i++) {
		start = now_us();
		bounce(out, in, (uint64_t)i * ROUNDS, ROUNDS, true);
		runs[i] = (now_us() - start) / ROUNDS;
	}
	return median(runs);
}

/* For the other side of measure_words(). */
static void answer_words(_Atomic uint64_t *out, _Atomic uint64_t *in)
{
	bounce(out, in, 0, RUNS * ROUNDS, false);
}

static void serve_echo(scif_epd_t epd)
{
	uint64_t value;

	while (scif_recv(epd, &value, 8, SCIF_RECV_BLOCK) == 8)
		if (scif_send(epd, &value, 8, SCIF_SEND_BLOCK) != 8)
			return;
}

/* Map the client's page: it writes word 0, this side word 8. */
static void serve_mapped(scif_epd_t epd, char *mem)
{
	_Atomic uint64_t *words;

	words = scif_mmap(NULL, PAGE, RW, 0, epd, 0);
	if (words == SCIF_MMAP_FAILED)
		return;
	answer_words(words, (_Atomic uint64_t *)mem);
	scif_munmap((void *)words, PAGE);
}

static void serve_one(scif_epd_t epd)
{
	char *mem = pages(MOST, MAP_PRIVATE);
	char request = 1;

	/* A client that has gone by now is told by the first call to receive. */
	if (scif_register(epd, mem, MOST, 0, RW, SCIF_MAP_FIXED) &&
	    errno != ECONNRESET)
		die("scif_register");
	scif_send(epd, &request, 1, SCIF_SEND_BLOCK);
	while (scif_recv(epd, &request, 1, SCIF_RECV_BLOCK) == 1) {
		if (request == ECHO)
			serve_echo(epd);
		else if (request == MAPPED)
			serve_mapped(epd, mem);
	}
	scif_close(epd);
	munmap(mem, MOST);
}

static int serve(int port)
{
	scif_epd_t listener = scif_open(), epd;
	struct scif_port_id peer;

	if (listener == SCIF_OPEN_FAILED || scif_bind(listener, port) < 0 ||
	    scif_listen(listener, 4))
		die("listen");
	while (!scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
		serve_one(epd);
	die("scif_accept");
	return 1;
}

static scif_epd_t reach(int node, int port, char *mem)
{
	struct scif_port_id server = { .node = node, .port = port };
	scif_epd_t epd = scif_open();
	char ready;

	if (epd == SCIF_OPEN_FAILED || scif_connect(epd, &server) < 0)
		die("scif_connect");
	if (scif_register(epd, mem, MOST, 0, RW, SCIF_MAP_FIXED))
		die("scif_register");
	if (scif_recv(epd, &ready, 1, SCIF_RECV_BLOCK) != 1)
		die("scif_recv");
	return epd;
}

static void ask(scif_epd_t epd, char request)
{
	if (scif_send(epd, &request, 1, SCIF_SEND_BLOCK) != 1)
		die("scif_send");
}

static void measure_mapped(scif_epd_t epd, char *mem)
{
	_Atomic uint64_t *words = scif_mmap(NULL, PAGE, RW, 0, epd, 0);

	if (words == SCIF_MMAP_FAILED) {
		if (errno != EOPNOTSUPP)
			die("scif_mmap");
		return;
	}
	ask(epd, MAPPED);
	printf("mmap_rtt_us 8 %.3f\n",
	       measure_words(words, (_Atomic uint64_t *)mem));
	scif_munmap((void *)words, PAGE);
}

static void measure_echo(scif_epd_t epd)
{
	double runs[RUNS], start;
	uint64_t value = 0;
	int i, j;

	ask(epd, ECHO);
	for (i = 0; i < RUNS; i++) {
		start = now_us();
		for (j = 0; j < ROUNDS; j++)
			if (scif_send(epd, &value, 8, SCIF_SEND_BLOCK) != 8 ||
			    scif_recv(epd, &value, 8, SCIF_RECV_BLOCK) != 8)
				die("round trip");
		runs[i] = (now_us() - start) / ROUNDS;
	}
	printf("send_recv_rtt_us 8 %.3f\n", median(runs));
}

static int latency(int node, int port)
{
	char *mem = pages(MOST, MAP_PRIVATE);
	scif_epd_t epd = reach(node, port, mem);

	measure_mapped(epd, mem);
	measure_echo(epd);
	return scif_close(epd);
}

/* Something that moves @length bytes. */
struct mover {
	const char *name;
	int (*move)(struct mover *mover, size_t length);
	scif_epd_t epd;
	char *from, *to;
};

static int move_write(struct mover *mover, size_t length)
{
	return scif_writeto(mover->epd, 0, length, 0, SCIF_RMA_SYNC);
}

static int move_read(struct mover *mover, size_t length)
{
	return scif_readfrom(mover->epd, 0, length, 0, SCIF_RMA_SYNC);
}

static int move_vwrite(struct mover *mover, size_t length)
{
	return scif_vwriteto(mover->epd, mover->from, length, 0, SCIF_RMA_SYNC);
}

static int move_vread(struct mover *mover, size_t length)
{
	return scif_vreadfrom(mover->epd, mover->from, length, 0,
			      SCIF_RMA_SYNC);
}

static int move_vwrite_cached(struct mover *mover, size_t length)
{
	return scif_vwriteto(mover->epd, mover->from, length, 0,
			     SCIF_RMA_SYNC | SCIF_RMA_USECACHE);
}

static int move_vread_cached(struct mover *mover, size_t length)
{
	return scif_vreadfrom(mover->epd, mover->from, length, 0,
			      SCIF_RMA_SYNC | SCIF_RMA_USECACHE);
}

static int move_memcpy(struct mover *mover, size_t length)
{
	memcpy(mover->to, mover->from, length);
	/* It must be done, not only seem to be. */
	__asm__ volatile("" : : "r"(mover->to) : "memory");
	return 0;
}

static double one_run(struct mover *mover, size_t length)
{
	double start = now_us(), end = start + RUN_MS * 1e3, now;
	unsigned int count = 0;

	do {
		if (mover->move(mover, length))
			die(mover->name);
		count++;
		now = now_us();
	} while (now < end);
	return length * (double)count / (now - start);
}

static void measure(struct mover *mover)
{
	double runs[RUNS];
	size_t length;
	int i;

	for (length = LEAST; length <= MOST; length *= 4) {
		for (i = 0; i < RUNS; i++)
			runs[i] = one_run(mover, length);
		printf("%s_MBps %zu %.1f\n", mover->name, length, median(runs));
		fflush(stdout);
	}
}

static struct mover movers[] = {
	{ .name = "writeto", .move = move_write },
	{ .name = "readfrom", .move = move_read },
	{ .name = "vwriteto", .move = move_vwrite },
	{ .name = "vreadfrom", .move = move_vread },
	{ .name = "vwriteto_cached", .move = move_vwrite_cached },
	{ .name = "vreadfrom_cached", .move = move_vread_cached },
};

#define MOVERS (sizeof(movers) / sizeof(movers[0]))

/* @only: the name of the one that is measured, or NULL for all. */
static int bandwidth(int node, int port, const char *only)
{
	char *mem = pages(MOST, MAP_PRIVATE);
	scif_epd_t epd = reach(node, port, mem);
	char *own = pages(MOST, MAP_PRIVATE);
	size_t i;

	for (i = 0; i < MOVERS; i++) {
		if (only && strcmp(movers[i].name, only))
			continue;
		movers[i].epd = epd;
		movers[i].from = own;
		measure(&movers[i]);
	}
	munmap(own, MOST);
	return scif_close(epd);
}

static bool is_mover(const char *name)
{
	size_t i;

	for (i = 0; i < MOVERS; i++)
		if (!strcmp(movers[i].name, name))
			return true;
	return false;
}

static int local_memcpy(void)
{
	/*
	 * Not a power of two apart, as two mappings of MOST would be: then each
	 * page would push another one out of an emulator's TLB.
	 */
	char *mem = pages(2 * MOST + GAP, MAP_PRIVATE);
	struct mover copier = { "memcpy", move_memcpy, -1, mem,
				mem + MOST + GAP };

	measure(&copier);
	return 0;
}

/* A processor of its own, where there are several. */
static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static int raw(void)
{
	_Atomic uint64_t *words = pages(2 * PAGE, MAP_SHARED);
	_Atomic uint64_t *others = words + PAGE / sizeof(*words);
	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(1);
		answer_words(others, words);
		_exit(0);
	}
	pin(0);
	printf("raw_rtt_us 8 %.3f\n", measure_words(words, others));
	waitpid(child, NULL, 0);
	return 0;
}

static void show_usage(FILE *to)
{
	fprintf(to, "usage: scif-perf server [PORT]\n"
		    "       scif-perf latency NODE [PORT]\n"
		    "       scif-perf bandwidth NODE [PORT [WHAT]]\n"
		    "       scif-perf memcpy|raw\n"
		    "       scif-perf chart [FILE.svg] <RESULTS\n"
		    "Measures messages and copies: scif-perf(1).\n");
}

static void usage(void)
{
	show_usage(stderr);
	exit(2);
}

/* A node or a port: a number of 16 bits, and nothing behind it. */
static uint16_t number(const char *word)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(word, &end, 10);
	if (errno || !isdigit((unsigned char)*word) || *end ||
	    value > UINT16_MAX)
		usage();
	return value;
}

static uint16_t port_or_default(const char *word)
{
	return word ? number(word) : PORT;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	/* behind the last argument there is a null pointer */
	if (!strcmp(what, "server") && argc <= 3)
		return serve(port_or_default(argv[2]));
	if (!strcmp(what, "memcpy") && argc == 2)
		return local_memcpy();
	if (!strcmp(what, "raw") && argc == 2)
		return raw();
	if (!strcmp(what, "chart") && argc <= 3)
		return chart(argc > 2 ? argv[2] : NULL);
	if (argc == 2 && (!strcmp(what, "-h") || !strcmp(what, "--help"))) {
		show_usage(stdout);
		return 0;
	}
	if (argc < 3 || argc > 5)
		usage();
	if (!strcmp(what, "latency") && argc < 5)
		return latency(number(argv[2]), port_or_default(argv[3]));
	if (!strcmp(what, "bandwidth") && (argc < 5 || is_mover(argv[4])))
		return bandwidth(number(argv[2]), port_or_default(argv[3]),
				 argc > 4 ? argv[4] : NULL);
	usage();
}
