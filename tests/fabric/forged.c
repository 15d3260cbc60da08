// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * forged GID COMMAND...: what a node gets at here that forges requests and answers,
 * with true GIDs, queue pair numbers and keys. COMMAND, with lies as its arguments,
 * is forge.py on the node of GID, and says what came of each of them.
 * forged extents GID COMMAND...: the same of windows on a node whose memory this one
 * has an aperture on.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "endpoint.h"
#include "forgeries.h"
#include "memory.h"
#include "pattern.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct device dev;
static union ibv_gid peer_gid;
static uint8_t *arena;
static struct ibv_pd *other_pd;
static struct ibv_mr *keys[KEYS];
static uint32_t rkeys[KEYS];
static struct ibv_dm *memory[KEYS];
static struct endpoint queues[COUNT(forgeries) + COUNT(nonsense)];
static struct endpoint readers[COUNT(answers)];
static struct endpoint mappers[COUNT(maps) + COUNT(extents)];
static char *command[MAX_LIES + 16];
static FILE *outcomes;
static pid_t liar;

static void deregister(enum key key)
{
	if (ibv_dereg_mr(keys[key]))
		bail("ibv_dereg_mr: %s", strerror(errno));
}

static void register_part(enum key key, struct ibv_pd *pd)
{
	keys[key] = ibv_reg_mr(pd, arena + parts[key].offset, parts[key].length,
			       parts[key].access);
	if (!keys[key])
		bail("ibv_reg_mr: %s", strerror(errno));
	rkeys[key] = keys[key]->rkey;
}

static void allocate(enum key key)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE_BYTES };

	memory[key] = ibv_alloc_dm(dev.ctx, &attr);
	if (!memory[key])
		bail("ibv_alloc_dm: %s", strerror(errno));
}

static void register_memory(enum key key)
{
	allocate(key);
	keys[key] = ibv_reg_dm_mr(dev.pd, memory[key], 0, PAGE_BYTES,
				  ACCESS_ALL | IBV_ACCESS_ZERO_BASED);
	if (!keys[key])
		bail("ibv_reg_dm_mr: %s", strerror(errno));
	rkeys[key] = keys[key]->rkey;
}

static void open_all(void)
{
	arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	other_pd = ibv_alloc_pd(dev.ctx);
	if (arena == MAP_FAILED || !other_pd)
		bail("no memory: %s", strerror(errno));
	memset(arena, GUARD_BYTE, ARENA);
	register_part(OPEN, dev.pd);
	register_part(READONLY, dev.pd);
	register_part(OTHER_PD, other_pd);
	register_part(GONE, dev.pd);
	deregister(GONE);
	register_memory(DEVICE);
	register_memory(SECOND);
}

static void connect_queue(struct endpoint *ep, const struct forgery *forgery)
{
	struct endpoint_options options = endpoint_options(
		forgery && forgery->ud ? IBV_QPT_UD : IBV_QPT_RC);
	struct endpoint_address peer;

	if (forgery && forgery->access)
		options.access = forgery->access;
	/* what is repeated waits for a new session, which may be late */
	options.timeout = 19;
	endpoint_create(ep, &dev, &options);
	peer = endpoint_address(ep);
	if (!forgery || !forgery->own)
		peer.gid = peer_gid;
	peer.qp_num = PEER_QPN;
	peer.psn = PEER_PSN;
	endpoint_connect(ep, &peer);
}

/* Of a part of the arena, whose region *@mr is registered once. */
static struct ibv_sge local_sge(struct ibv_mr **mr, size_t offset,
				uint32_t length)
{
	if (!*mr)
		*mr = ibv_reg_mr(dev.pd, arena + offset, length,
				 IBV_ACCESS_LOCAL_WRITE);
	if (!*mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	return (struct ibv_sge){
		.addr = (uintptr_t)(arena + offset),
		.length = length,
		.lkey = (*mr)->lkey,
	};
}

static void post_receive(struct endpoint *ep)
{
	static struct ibv_mr *mr;
	struct ibv_sge sge = local_sge(&mr, RECEIVE, WORD);

	post_recv(ep, 1, &sge, 1);
}

static uint64_t address_of(const struct forgery *forgery)
{
	uint64_t start = 0;

	if (forgery->key < COUNT(parts))
		start = (uintptr_t)arena + parts[forgery->key].offset;
	return start + forgery->off;
}

static void add_lie(const char *lie)
{
	char **at = command;

	while (*at)
		at++;
	if (at == command + COUNT(command) - 1)
		bail("too many lies");
	*at = strdup(lie);
}

static int times_of(const struct forgery *forgery)
{
	return forgery->times ? forgery->times : 1;
}

static void prepare(const struct forgery *list, unsigned int n,
		    struct endpoint *ep)
{
	const struct forgery *forgery;
	static uint8_t byte;
	char lie[512];
	int times;

	for (forgery = list; forgery < list + n; forgery++, ep++) {
		if (forgery->again)
			*ep = ep[-1];
		else
			connect_queue(ep, forgery);
		if (forgery->receive)
			post_receive(ep);
		snprintf(lie, sizeof(lie),
			 "dst_qpn=%u src_qpn=%u psn=%u rkey=%u raddr=%" PRIu64
			 " length=%u seg_len=%u bytes=%u byte=%u %s",
			 ep->qp->qp_num, PEER_QPN, PEER_PSN,
			 rkeys[forgery->key], address_of(forgery), WORD, WORD,
			 WORD, ++byte, forgery->lie);
		for (times = times_of(forgery); times; times--)
			add_lie(lie);
	}
}

static void start_liar(void)
{
	int ends[2];

	if (pipe(ends))
		bail("pipe: %s", strerror(errno));
	fflush(stdout);
	liar = fork();
	if (!liar) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], STDOUT_FILENO);
		execvp(command[0], command);
		bail("%s: %s", command[0], strerror(errno));
	}
	close(ends[1]);
	outcomes = fdopen(ends[0], "r");
}

static bool said(const char *beginning)
{
	static char line[256];

	if (!fgets(line, sizeof(line), outcomes))
		bail("nobody lies any more");
	return check(!strncmp(line, beginning, strlen(beginning)),
		     "it says: %s", line);
}

static size_t place_of(const struct forgery *forgery)
{
	return forgery->receive ? RECEIVE :
				  address_of(forgery) - (uintptr_t)arena;
}

/* Does a forgery have the right to write there? They are ahead of their outcomes. */
static bool may_change(size_t i)
{
	const struct forgery *forgery;
	size_t start;

	if (i >= LAND && i < LAND + PAGE_BYTES)
		return true;
	for (forgery = forgeries; forgery < forgeries + COUNT(forgeries);
	     forgery++) {
		start = place_of(forgery);
		if (i >= start && i < start + forgery->writes)
			return true;
	}
	start = place_of(&nonsense[COUNT(nonsense) - 1]);
	return i >= start && i < start + WORD;
}

static bool nothing_else_changed(void)
{
	size_t i;

	for (i = 0; i < ARENA; i++)
		if (arena[i] != GUARD_BYTE && !may_change(i))
			return check(false, "byte 0x%zx has changed", i);
	return true;
}

static void test_forgery(const struct forgery *forgery)
{
	int times = times_of(forgery);
	bool ok = true;

	while (times--)
		ok = said(forgery->outcome) && ok;
	if (forgery->writes)
		ok = check(arena[place_of(forgery)] != GUARD_BYTE,
			   "nothing is written") &&
		     ok;
	tap_ok(nothing_else_changed() && ok, "%s: %s", forgery->name,
	       forgery->writes ? "carried out" : "no memory changes");
}

static unsigned int dead_ms(void)
{
	FILE *file = fopen("/sys/module/mic_ivshmem/parameters/dead_ms", "r");
	unsigned int ms;

	if (!file || fscanf(file, "%u", &ms) != 1)
		bail("no dead_ms");
	fclose(file);
	return ms;
}

static unsigned int ms_to_deregister(enum key key)
{
	uint64_t start = now_ms();

	deregister(key);
	return now_ms() - start;
}

static void renew(enum key key)
{
	if (ibv_free_dm(memory[key]))
		bail("ibv_free_dm: %s", strerror(errno));
	allocate(key);
}

static bool is_blank(enum key key)
{
	static uint8_t copy[PAGE_BYTES];

	return !ibv_memcpy_from_dm(copy, memory[key], 0, PAGE_BYTES) &&
	       all_are(copy, PAGE_BYTES, 0);
}

/* The windows granted above: the other node writes there, and keeps them. */
static void test_keeping(void)
{
	unsigned int limit = dead_ms(), first, second;
	uint64_t end;
	bool ok;

	ok = said("ready");
	first = ms_to_deregister(DEVICE);
	second = ms_to_deregister(SECOND);
	tap_ok(check(ok && first >= limit, "after %u ms", first),
	       "memory that is not given back is waited for, for dead_ms");
	tap_ok(check(second < limit, "after %u ms", second),
	       "and then no more");
	renew(DEVICE);
	renew(SECOND);
	end = now_ms() + 1000;
	do {
		ok = is_blank(DEVICE) && is_blank(SECOND);
		sleep_ms(20);
	} while (ok && now_ms() < end);
	ok = said("told") && ok;
	tap_ok(ok, "it is not used again meanwhile");
}

/* Reads into a page between others. */
static void test_answer(unsigned int i)
{
	static struct ibv_mr *mr;
	struct ibv_sge sge = local_sge(&mr, LAND, PAGE_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	bool ok;

	memset(arena + LAND, 0, PAGE_BYTES);
	ok = said("ready");
	post_send(&readers[i], &wr);
	ok = cq_expect(readers[i].send_cq, 1, answers[i].status) && ok;
	ok = said("told") && ok;
	if (answers[i].status == IBV_WC_SUCCESS)
		ok = all_are(arena + LAND, PAGE_BYTES, TOLD) && ok;
	tap_ok(nothing_else_changed() && ok, "a READ is told %s",
	       answers[i].name);
}

/* This node may be about to hear that the other one is there again. */
static struct micdv_window *map_offer(struct endpoint *ep,
				      const struct offer *offer)
{
	uint64_t end = now_ms() + 20000;
	struct micdv_window *window;

	for (;;) {
		window = micdv_map_window(ep->qp, PAGE(16), 0x1234,
					  PAGE(offer->pages),
					  PROT_READ | PROT_WRITE);
		if (window || !offer->granted || errno != ENOTCONN ||
		    now_ms() > end)
			return window;
		sleep_ms(20);
	}
}

static void test_map(struct endpoint *ep, const struct offer *offer)
{
	size_t bytes = PAGE(offer->pages);
	struct micdv_window *window;
	bool ok = said("ready");

	window = map_offer(ep, offer);
	ok = said("told") && ok;
	if (window)
		ok = all_are(window->addr, bytes, TOLD) && ok;
	tap_ok(check(!window == !offer->granted, "%s",
		     window ? "mapped" : strerror(errno)) &&
		       ok,
	       "a window is offered: %s", offer->name);
	if (window)
		micdv_unmap_window(window);
}

static void prepare_offers(const struct offer *offers, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		connect_queue(&mappers[i], NULL);
		add_lie(offers[i].lie);
	}
}

static void end_liar(void)
{
	int status = 0;

	tap_must(waitpid(liar, &status, 0) == liar && !status,
		 "forge.py ends with 0x%x", status);
}

static void test_extents(void)
{
	unsigned int i;

	prepare_offers(extents, COUNT(extents));
	start_liar();
	for (i = 0; i < COUNT(extents); i++)
		test_map(&mappers[i], &extents[i]);
	end_liar();
}

int main(int argc, char **argv)
{
	const char *name, *peer;
	bool only_extents;
	unsigned int i;

	device_names(&argc, argv, &name, &peer);
	only_extents = argc > 1 && !strcmp(argv[1], "extents");
	argc -= only_extents;
	argv += only_extents;
	if (argc < 3 || inet_pton(AF_INET6, argv[1], &peer_gid) != 1)
		bail("usage: forged [--device NAME] [extents] GID COMMAND...");
	for (i = 2; argv[i]; i++)
		add_lie(argv[i]);
	device_open(&dev, name);
	if (only_extents) {
		test_extents();
		return tap_end();
	}
	open_all();
	prepare(forgeries, COUNT(forgeries), queues);
	add_lie("lie=keep");
	prepare(nonsense, COUNT(nonsense), queues + COUNT(forgeries));
	for (i = 0; i < COUNT(answers); i++) {
		connect_queue(&readers[i], NULL);
		add_lie(answers[i].lie);
	}
	prepare_offers(maps, COUNT(maps));

	start_liar();
	for (i = 0; i < COUNT(forgeries); i++)
		test_forgery(&forgeries[i]);
	test_keeping();
	for (i = 0; i < COUNT(nonsense); i++)
		test_forgery(&nonsense[i]);
	for (i = 0; i < COUNT(answers); i++)
		test_answer(i);
	for (i = 0; i < COUNT(maps); i++)
		test_map(&mappers[i], &maps[i]);
	end_liar();
	return tap_end();
}
