// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * forged GID COMMAND...: what a node gets at here that forges requests and answers,
 * with true GIDs, queue pair numbers and keys. COMMAND, with lies as its arguments,
 * is forge.py on the node of GID, and says what came of each of them.
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
#include "memory.h"
#include "pattern.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PAGE(n) ((n) * (int)PAGE_BYTES)

/* Whom the queue pairs are connected to; forgeries say so by these numbers. */
enum { PEER_QPN = 999, PEER_PSN = 100 };

enum { ARENA = PAGE(16), WORD = 64, TOLD = 0x5c, MAX_LIES = 96 };

enum key { OPEN, READONLY, OTHER_PD, GONE, DEVICE, SECOND, KEYS };

/* What is registered of the arena; the pages between them belong to nobody. */
static const struct {
	int offset;
	int length;
	int access;
} parts[] = {
	[OPEN] = { PAGE(4), PAGE(4), ACCESS_ALL },
	[READONLY] = { PAGE(9), PAGE(1), IBV_ACCESS_REMOTE_READ },
	[OTHER_PD] = { PAGE(11), PAGE(1), ACCESS_ALL },
	[GONE] = { PAGE(13), PAGE(1), ACCESS_ALL },
};

enum { LAND = PAGE(2), RECEIVE = PAGE(14) };

/**
 * struct forgery - a request
 * @name: what is wrong with it
 * @key: it names this memory,
 * @off: from this byte on
 * @lie: fields that are not those of a WRITE of 64 bytes
 * @outcome: beginning of what is said of it: the answer, enum mic_ack, and its result
 * @times: it is sent so often; 0: once
 * @again: to the same queue pair as the one before
 * @own: to one whose peer is on this machine
 * @ud: to one for datagrams
 * @access: rights of the queue pair; 0: all
 * @receive: one of 64 bytes is posted
 * @writes: so many bytes change, of the receive or at @off
 */
struct forgery {
	const char *name;
	enum key key;
	int64_t off;
	const char *lie;
	const char *outcome;
	int times;
	bool again;
	bool own;
	bool ud;
	int access;
	bool receive;
	int writes;
};

#define READ "code=2 bytes=0 "
#define ADD "code=4 bytes=0 length=8 seg_len=8 compare_add=1 "
#define MAP "code=6 bytes=0 length=0 seg_len=0 compare_add=4096 swap=6 "
#define SEND "code=0 "
#define SIZE(n) "length=" #n " seg_len=" #n " bytes=" #n " "

#define OK "0 "
#define RNR "1 "
#define INVALID "2 "
#define ACCESS "3 "
#define NOTHING "5 "
#define BROKEN "broken"

/* All that each has. */
#define FORGERY(name_, key_, off_, lie_, outcome_)                             \
	.name = (name_), .key = (key_), .off = (off_), .lie = (lie_),          \
	.outcome = (outcome_)

static const struct forgery forgeries[] = {
	/* what the key gives, it gives to the whole node */
	{ FORGERY("a WRITE", OPEN, 0, "", OK), .writes = WORD },
	{ FORGERY("a READ", OPEN, WORD, READ, "0 0 0 0 0 165") },
	{ FORGERY("an atomic", OPEN, 2 * WORD, ADD, OK), .writes = 8 },

	{ FORGERY("a WRITE behind the region", OPEN, PAGE(4), "", ACCESS) },
	{ FORGERY("a WRITE across its end", OPEN, PAGE(4) - WORD + 1, "",
		  ACCESS) },
	{ FORGERY("a WRITE before it", OPEN, -1, "", ACCESS) },
	{ FORGERY("a READ before it", OPEN, -1, READ, ACCESS) },
	{ FORGERY("an address that wraps", OPEN, 0, "raddr=0xffffffffffffffe0",
		  ACCESS) },
	{ FORGERY("a WRITE by a key to read", READONLY, 0, "", ACCESS) },
	{ FORGERY("an atomic by a key to read", READONLY, 0, ADD, ACCESS) },
	{ FORGERY("a key of another domain", OTHER_PD, 0, "", ACCESS) },
	{ FORGERY("a key that is gone", GONE, 0, "", ACCESS) },
	{ FORGERY("no key", OPEN, 0, "rkey=0", ACCESS) },
	{ FORGERY("a queue pair without that right", OPEN, 0, "", INVALID),
	  .access = IBV_ACCESS_REMOTE_READ },
	{ FORGERY("an atomic across words", OPEN, 4, ADD, INVALID) },

	{ FORGERY("another sender's queue pair", OPEN, 0, "src_qpn=998",
		  NOTHING) },
	{ FORGERY("a GID of the node it is for", OPEN, 0, "sender=0",
		  NOTHING) },
	{ FORGERY("for a peer that is on the node it is for", OPEN, 0,
		  "sender=0", NOTHING),
	  .own = true },
	{ FORGERY("a GID of nobody", OPEN, 0, "sender=77", NOTHING) },
	{ FORGERY("a number out of sequence", OPEN, 0, "psn=105", NOTHING) },
	{ FORGERY("another service", OPEN, 0, "service=3", NOTHING) },
	{ FORGERY("an end without a beginning", OPEN, 0,
		  "seg_off=32768 length=32832 flags=2", NOTHING) },
	{ FORGERY("no such queue pair", OPEN, 0, "dst_qpn=0xabcdef", NOTHING) },

	{ FORGERY("the beginning of a message", OPEN, 4 * WORD,
		  "length=8192 seg_len=64 flags=1", OK),
	  .writes = WORD },
	{ FORGERY("its end with another key", OTHER_PD, 0,
		  "seg_off=64 length=128 flags=2", ACCESS),
	  .again = true },
	{ FORGERY("the beginning of a message", OPEN, 6 * WORD,
		  "length=128 seg_len=64 flags=1", OK),
	  .writes = WORD },
	{ FORGERY("its end elsewhere", OPEN, PAGE(4) - WORD,
		  "seg_off=64 length=128 flags=2", ACCESS),
	  .again = true },

	{ FORGERY("a SEND without a receive", OPEN, 0, SEND, RNR) },
	{ FORGERY("a SEND that is longer than the receive", OPEN, 0,
		  SEND SIZE(4096), INVALID),
	  .receive = true },
	{ FORGERY("the beginning of a SEND", OPEN, 0,
		  SEND "seg_len=32 bytes=32 flags=1", OK),
	  .receive = true, .writes = 32 },
	{ FORGERY("its end that is longer than the receive", OPEN, 0,
		  SEND "length=4096 seg_off=32 seg_len=4064 bytes=4064 flags=2",
		  INVALID),
	  .again = true },
	{ FORGERY("a datagram", OPEN, 0,
		  SEND SIZE(16) "service=4 qkey=0x11223344", OK),
	  .ud = true, .receive = true, .writes = 40 + 16 },
	{ FORGERY("a datagram of nobody", OPEN, 0,
		  SEND SIZE(16) "service=4 qkey=0x11223344 sender=77", NOTHING),
	  .ud = true, .receive = true },
	{ FORGERY("a datagram without its key", OPEN, 0,
		  SEND "service=4 qkey=0x11223345", NOTHING),
	  .ud = true },
	{ FORGERY("a datagram too long for management", OPEN, 0,
		  SEND SIZE(4096) "service=1 dst_qpn=1 qkey=0x80010000",
		  NOTHING) },

	{ FORGERY("a window of ordinary memory", OPEN, 0, MAP, OK "95 ") },
	{ FORGERY("a window by a key to read", READONLY, 0, MAP, OK "95 ") },
	{ FORGERY("a window by a key that is gone", GONE, 0, MAP, OK "13 "),
	  .times = 8 },
	{ FORGERY("a window by a true key after guessing", DEVICE, 0, MAP,
		  OK "13 "),
	  .again = true },
	{ FORGERY("a window of device memory", DEVICE, 0, MAP, OK "0 ") },
	{ FORGERY("another one", SECOND, 0, MAP, OK "0 ") },
};

/* These make no sense to any kernel: the path goes down, and comes back. */
static const struct forgery nonsense[] = {
	{ FORGERY("no such request", OPEN, 0, "code=7", BROKEN) },
	{ FORGERY("more than a record may have", OPEN, 0,
		  "length=65536 seg_len=65536", BROKEN) },
	{ FORGERY("a READ of more than that", OPEN, 0,
		  READ "length=0x40000000 seg_len=0x40000000", BROKEN) },
	{ FORGERY("a segment behind the message", OPEN, 0, "seg_off=64",
		  BROKEN) },
	{ FORGERY("a segment that wraps", OPEN, 0, "seg_off=0xffffffff",
		  BROKEN) },
	{ FORGERY("data behind the record", OPEN, 0, "payload=4096", BROKEN) },
	{ FORGERY("a record behind what is written", OPEN, 0, "size=0x100000",
		  BROKEN) },
	{ FORGERY("a record of no size", OPEN, 0, "size=0", BROKEN) },
	{ FORGERY("an answer as a request", OPEN, 0, "type=2", BROKEN) },
	{ FORGERY("and a WRITE after that", OPEN, 8 * WORD, "", OK),
	  .writes = WORD },
};

/* What a READ is answered with. A repetition is refused. */
static const struct {
	const char *name;
	const char *lie;
	enum ibv_wc_status status;
} answers[] = {
	{ "the truth", "lie=truth", IBV_WC_SUCCESS },
	{ "answers to nobody first", "lie=nobody", IBV_WC_SUCCESS },
	{ "more than was asked for", "lie=more", IBV_WC_REM_ACCESS_ERR },
	{ "data behind it", "lie=elsewhere", IBV_WC_REM_ACCESS_ERR },
	{ "data before it", "lie=before", IBV_WC_REM_ACCESS_ERR },
	{ "the data twice", "lie=twice", IBV_WC_REM_ACCESS_ERR },
	{ "some of the data", "lie=little", IBV_WC_REM_ACCESS_ERR },
	{ "data behind the record", "lie=longer", IBV_WC_REM_ACCESS_ERR },
	{ "no answer that there is", "lie=pending", IBV_WC_REM_ACCESS_ERR },
};

/* What may be mapped, it says. */
static const struct {
	const char *name;
	const char *lie;
	bool granted;
} maps[] = {
	{ "memory of its slice", "lie=window", true },
	{ "the table there", "lie=table", false },
	{ "the region's header", "lie=header", false },
	{ "a slice of this node", "lie=victim", false },
	{ "more than its slice has", "lie=end", false },
	{ "an offset that wraps", "lie=wrap", false },
	{ "a part of a page", "lie=part", false },
	{ "no place in the table", "lie=slot", false },
	{ "what the table does not say", "lie=dead", false },
	{ "more than was asked for", "lie=size", false },
	{ "something else", "lie=place", false },
	{ "without the rights", "lie=rights", false },
};

static struct device dev;
static union ibv_gid peer_gid;
static uint8_t *arena;
static struct ibv_pd *other_pd;
static struct ibv_mr *keys[KEYS];
static uint32_t rkeys[KEYS];
static struct ibv_dm *memory[KEYS];
static struct endpoint queues[COUNT(forgeries) + COUNT(nonsense)];
static struct endpoint readers[COUNT(answers)], mappers[COUNT(maps)];
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
	/* what is repeated waits for a new session */
	options.timeout = 17;
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

static void test_map(unsigned int i)
{
	struct micdv_window *window;
	bool ok = said("ready");

	window = micdv_map_window(mappers[i].qp, PAGE(16), 0x1234, PAGE_BYTES,
				  PROT_READ | PROT_WRITE);
	ok = said("told") && ok;
	if (window)
		ok = all_are(window->addr, PAGE_BYTES, TOLD) && ok;
	tap_ok(check(!window == !maps[i].granted, "%s",
		     window ? "mapped" : strerror(errno)) &&
		       ok,
	       "a window is offered: %s", maps[i].name);
	if (window)
		micdv_unmap_window(window);
}

int main(int argc, char **argv)
{
	const char *name, *peer;
	unsigned int i;
	int status = 0;

	device_names(&argc, argv, &name, &peer);
	if (argc < 3 || inet_pton(AF_INET6, argv[1], &peer_gid) != 1)
		bail("usage: forged [--device NAME] GID COMMAND...");
	for (i = 2; argv[i]; i++)
		add_lie(argv[i]);
	device_open(&dev, name);
	open_all();
	prepare(forgeries, COUNT(forgeries), queues);
	add_lie("lie=keep");
	prepare(nonsense, COUNT(nonsense), queues + COUNT(forgeries));
	for (i = 0; i < COUNT(answers); i++) {
		connect_queue(&readers[i], NULL);
		add_lie(answers[i].lie);
	}
	for (i = 0; i < COUNT(maps); i++) {
		connect_queue(&mappers[i], NULL);
		add_lie(maps[i].lie);
	}

	start_liar();
	for (i = 0; i < COUNT(forgeries); i++)
		test_forgery(&forgeries[i]);
	test_keeping();
	for (i = 0; i < COUNT(nonsense); i++)
		test_forgery(&nonsense[i]);
	for (i = 0; i < COUNT(answers); i++)
		test_answer(i);
	for (i = 0; i < COUNT(maps); i++)
		test_map(i);
	tap_must(waitpid(liar, &status, 0) == liar && !status,
		 "forge.py ends with 0x%x", status);
	return tap_end();
}
