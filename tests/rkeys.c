// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Many keys of a peer: more than a queue pair has windows for at once, so that
 * some lose theirs and get new ones, and more than a process may have windows
 * at all, so that requests are the kernel's; keys that come and go; keys that the
 * kernel gives no window for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <infiniband/micdv.h>
#include <rdma/mic-abi.h>

#include "setup.h"
#include "tap.h"
#include "work.h"

enum {
	WORD = 8,
	MANY = 400,
	SPREAD = 64, /* of the keys that have the same place */
	ALIKE = 24,
	ROUNDS = 20,
	NEVER = 10000,	/* requests without the kernel being asked again */
	PASSING = 2000, /* keys, one after the other */
	PASSING_BYTES = 1 << 17, /* too much for a shared mapping */
	FEW = 16,
	REFUSED = 8,
	REFUSED_ROUNDS = 200,
	MOST_MAPPED = 8192, /* of what is too much for a shared mapping */
};

/*
 * How often libmic has asked for a window, and given one back. It calls these functions,
 * not the library's.
 */
static unsigned int imports, drops;
/* There are no more mappings. */
static bool no_mappings;

int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	long arg;

	va_start(list, request);
	arg = va_arg(list, long);
	va_end(list);
	imports += request == MIC_IOC_IMPORT;
	drops += request == MIC_IOC_DROP;
	return syscall(SYS_ioctl, fd, request, arg);
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	if (no_mappings) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
}

/* A page of b's memory each. */
struct key {
	struct ibv_mr *mr;
	uint64_t *page;
};

struct test {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	struct key key[MANY];
	unsigned int count;
	uint64_t *pages;
};

static void open_pair(struct test *test)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	pair_create(&test->a, &test->setup.a_dev, &test->b, &test->setup.b_dev,
		    &options);
	if (micdv_set_path(test->a.qp, MICDV_PATH_DIRECT))
		bail("micdv_set_path fails");
}

static void close_pair(struct test *test)
{
	pair_destroy(&test->a, &test->b);
}

static struct micdv_qp_attr query(const struct test *test)
{
	struct micdv_qp_attr attr = { .comp_mask = 0 };

	if (micdv_query_qp(test->a.qp, &attr))
		bail("micdv_query_qp fails");
	return attr;
}

static void map_pages(struct test *test)
{
	test->pages = mmap(NULL, MANY * PAGE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (test->pages == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
}

static void add_key(struct test *test)
{
	struct key *key = &test->key[test->count];

	key->page = test->pages + test->count * (PAGE_BYTES / WORD);
	key->mr = ibv_reg_mr(test->setup.b_dev.pd, key->page, PAGE_BYTES,
			     ACCESS_ALL);
	if (!key->mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	test->count++;
}

static void drop_key(struct test *test)
{
	if (ibv_dereg_mr(test->key[--test->count].mr))
		bail("ibv_dereg_mr fails");
}

static void drop_keys(struct test *test)
{
	while (test->count)
		drop_key(test);
}

/* --- requests ---------------------------------------------------------------- */

/* By whom is in @direct. */
static bool runs(struct test *test, const struct key *key,
		 enum ibv_wr_opcode opcode, bool *direct)
{
	struct ibv_sge sge = region_sge(&test->setup.a_mem, 0, WORD);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);
	struct micdv_qp_attr before = query(test), now;

	wr.wr.rdma.remote_addr = (uintptr_t)key->page;
	wr.wr.rdma.rkey = key->mr->rkey;
	post_send(&test->a, &wr);
	if (!cq_expect(test->a.send_cq, 1, IBV_WC_SUCCESS))
		return false;
	now = query(test);
	*direct = now.direct != before.direct;
	return check(now.direct - before.direct + now.engine - before.engine ==
			     1,
		     "a request counts more than once");
}

static bool writes(struct test *test, const struct key *key, uint64_t value,
		   bool *direct)
{
	memcpy(test->setup.a_mem.addr, &value, WORD);
	return runs(test, key, IBV_WR_RDMA_WRITE, direct) &&
	       check(*key->page == value, "key 0x%x: the word is elsewhere",
		     key->mr->rkey);
}

static bool reads(struct test *test, const struct key *key, uint64_t value,
		  bool *direct)
{
	memset(test->setup.a_mem.addr, 0, WORD);
	return runs(test, key, IBV_WR_RDMA_READ, direct) &&
	       check(!memcmp(test->setup.a_mem.addr, &value, WORD),
		     "key 0x%x: the word is another's", key->mr->rkey);
}

/* All of them, each another value; all by the process. */
static bool writes_all(struct test *test, uint64_t first)
{
	unsigned int i;
	bool direct;

	for (i = 0; i < test->count; i++)
		if (!writes(test, &test->key[i], first + i, &direct) ||
		    !check(direct, "key %u: by the kernel", i))
			return false;
	return true;
}

static bool reads_all(struct test *test, uint64_t first)
{
	unsigned int i;
	bool direct;

	for (i = 0; i < test->count; i++)
		if (!reads(test, &test->key[i], first + i, &direct) ||
		    !check(direct, "key %u: by the kernel", i))
			return false;
	return true;
}

/* --- many, and many alike ------------------------------------------------------ */

static bool many(struct test *test)
{
	bool ok;

	while (test->count < MANY)
		add_key(test);
	open_pair(test);
	ok = writes_all(test, 1) && reads_all(test, 1) &&
	     writes_all(test, MANY) && reads_all(test, MANY) &&
	     check(query(test).windows == MANY, "%u windows",
		   query(test).windows);
	close_pair(test);
	drop_keys(test);
	return ok;
}

/* Indices of keys are given in turn; a key is its index and 8 random bits. */
static void add_alike(struct test *test)
{
	unsigned int tries = 2 * ALIKE * SPREAD;

	while (test->count < ALIKE) {
		if (!tries--)
			bail("keys are not given in turn");
		add_key(test);
		if (test->key[test->count - 1].mr->rkey >> 8 & (SPREAD - 1))
			drop_key(test);
	}
}

static bool alike(struct test *test)
{
	unsigned int round;
	bool ok = true;

	add_alike(test);
	open_pair(test);
	for (round = 0; round < ROUNDS && ok; round++)
		ok = writes_all(test, (uint64_t)round * MANY) &&
		     reads_all(test, (uint64_t)round * MANY) &&
		     check(query(test).windows < ALIKE,
			   "there is room for all of them");
	close_pair(test);
	drop_keys(test);
	return ok;
}

/* --- keys that come and go ------------------------------------------------------- */

static unsigned int mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	unsigned int lines = 0;
	int c;

	if (!file)
		bail("/proc/self/maps: %s", strerror(errno));
	while ((c = getc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

static struct ibv_mr *register_passing(struct test *test)
{
	struct ibv_mr *mr = ibv_reg_mr(test->setup.b_dev.pd, test->pages,
				       PASSING_BYTES, ACCESS_ALL);

	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	return mr;
}

/* Each key is used once, and its region deregistered. */
static bool passing(struct test *test)
{
	const unsigned int before = mappings();
	struct key key = { .page = test->pages };
	bool ok = true, direct;
	unsigned int i;

	open_pair(test);
	for (i = 0; i < PASSING && ok; i++) {
		key.mr = register_passing(test);
		ok = writes(test, &key, i, &direct) &&
		     check(direct, "key %u: by the kernel", i);
		ibv_dereg_mr(key.mr);
	}
	ok = ok &&
	     check(query(test).windows <= FEW, "%u windows",
		   query(test).windows) &&
	     check(mappings() < before + FEW, "%u mappings instead of %u",
		   mappings(), before);
	close_pair(test);
	return ok;
}

/* A request for each of @count keys, the last one by the kernel. */
static bool maps_all_but_one(struct test *test, struct ibv_mr **mr,
			     unsigned int count)
{
	unsigned int i;
	bool direct;

	for (i = 0; i < count; i++) {
		mr[i] = register_passing(test);
		if (!writes(test, &(struct key){ mr[i], test->pages }, i,
			    &direct) ||
		    !check(direct == (i < count - 1), "key %u: by the %s", i,
			   direct ? "process" : "kernel"))
			return false;
	}
	return true;
}

/* Not at once: the kernel is not asked for each request. */
static bool works_again(struct test *test, const struct key *key)
{
	bool direct = false;
	unsigned int i;

	for (i = 0; i < NEVER && !direct; i++)
		if (!writes(test, key, i, &direct))
			return false;
	return check(direct, "%u requests and none by the process", i);
}

/* Windows leave mappings to the rest of the process; one that is gone makes room. */
static bool leaves_mappings(struct test *test)
{
	const unsigned int before = mappings(), all = MOST_MAPPED + 1;
	static struct ibv_mr *mr[MOST_MAPPED + 1];
	unsigned int i;
	bool ok;

	open_pair(test);
	ok = maps_all_but_one(test, mr, all) &&
	     check(query(test).windows == MOST_MAPPED, "%u windows",
		   query(test).windows) &&
	     check(mappings() < before + MOST_MAPPED + FEW,
		   "%u mappings instead of %u", mappings(), before);
	ibv_dereg_mr(mr[0]);
	mr[0] = register_passing(test);
	ok = ok && works_again(test, &(struct key){ mr[0], test->pages });
	close_pair(test);
	for (i = 0; i < all && mr[i]; i++)
		ibv_dereg_mr(mr[i]);
	return ok;
}

/* Regions on demand have no windows. */
static bool refused(struct test *test)
{
	struct key key[REFUSED];
	bool ok = true, direct;
	unsigned int i, round;

	open_pair(test);
	for (i = 0; i < REFUSED; i++) {
		key[i].page = test->pages + i * (PAGE_BYTES / WORD);
		key[i].mr = ibv_reg_mr(test->setup.b_dev.pd, key[i].page,
				       PAGE_BYTES,
				       ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
		if (!key[i].mr)
			bail("ibv_reg_mr: %s", strerror(errno));
	}
	imports = 0;
	for (round = 0; round < REFUSED_ROUNDS && ok; round++)
		for (i = 0; i < REFUSED && ok; i++)
			ok = writes(test, &key[i], round, &direct) &&
			     check(!direct, "by the process");
	ok = ok && check(imports >= REFUSED && imports < 2 * REFUSED,
			 "the kernel was asked for a window %u times", imports);
	for (i = 0; i < REFUSED; i++)
		ibv_dereg_mr(key[i].mr);
	close_pair(test);
	return ok;
}

/* The kernel has given a window, but it can't be mapped: it goes back, once. */
static bool unmappable(struct test *test)
{
	struct key key = { .page = test->pages, .mr = register_passing(test) };
	bool ok, direct;

	add_key(test);
	open_pair(test);
	ok = writes(test, &test->key[0], 1, &direct) &&
	     check(direct, "by the kernel");
	imports = 0;
	drops = 0;
	no_mappings = true;
	ok = ok && writes(test, &key, 2, &direct);
	no_mappings = false;
	ok = ok && check(!direct, "by the process") &&
	     check(imports && imports == drops,
		   "%u windows were given, %u given back", imports, drops) &&
	     check(query(test).windows == 1, "%u windows in use",
		   query(test).windows);
	close_pair(test);
	drop_keys(test);
	ibv_dereg_mr(key.mr);
	return ok;
}

/* Nobody looks at the key of what has no data: it isn't guessed by that. */
static bool without_data(struct test *test)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, NULL, 0);
	bool ok = true;
	unsigned int i;

	open_pair(test);
	imports = 0;
	for (i = 0; i < FEW && ok; i++) {
		wr.opcode = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
		send_wr_aim(&wr, 4096 * i, 0x12345600 + i);
		post_send(&test->a, &wr);
		ok = cq_expect(test->a.send_cq, 1, IBV_WC_SUCCESS);
	}
	ok = ok &&
	     check(!imports, "the kernel was asked for %u windows", imports);
	close_pair(test);
	return ok;
}

/* --- the key of no region -------------------------------------------------------- */

/* Once a region is gone an lkey of 0 is not taken for its key. */
static bool no_region(struct test *test)
{
	uint64_t *page = test->pages + PAGE_BYTES / WORD;
	struct ibv_sge sge = { .addr = (uintptr_t)page, .length = WORD };
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_WRITE, &sge, 1);
	struct ibv_mr *mr;
	bool ok;

	add_key(test);
	open_pair(test);
	mr = ibv_reg_mr(test->setup.a_dev.pd, page, PAGE_BYTES, ACCESS_ALL);
	if (!mr)
		bail("ibv_reg_mr: %s", strerror(errno));
	wr.wr.rdma.remote_addr = (uintptr_t)test->key[0].page;
	wr.wr.rdma.rkey = test->key[0].mr->rkey;
	sge.lkey = mr->lkey;
	*page = 1;
	post_send(&test->a, &wr);
	ok = cq_expect(test->a.send_cq, 1, IBV_WC_SUCCESS);
	ibv_dereg_mr(mr);
	sge.lkey = 0;
	*page = 2;
	post_send(&test->a, &wr);
	ok = ok && cq_expect(test->a.send_cq, 1, IBV_WC_LOC_PROT_ERR) &&
	     check(*test->key[0].page == 1, "it was written");
	close_pair(test);
	drop_keys(test);
	return ok;
}

/* --- as many as there may be ----------------------------------------------------- */

struct watches {
	struct micdv_watch **list;
	unsigned int count;
	int error; /* of the one that was too many */
};

static uint32_t most_windows(const struct test *test)
{
	struct micdv_device_attr attr = { .comp_mask = 0 };

	if (micdv_query_device(test->setup.a_dev.ctx, &attr))
		bail("micdv_query_device fails");
	return attr.max_windows;
}

/* Watches and windows are out of the same number. */
static void take_all(struct test *test, struct watches *watches)
{
	const uint32_t most = most_windows(test);
	struct micdv_watch *watch;

	*watches = (struct watches){
		.list = calloc(most + 1, sizeof(struct micdv_watch *)),
	};
	if (!watches->list)
		bail("out of memory");
	while (watches->count <= most) {
		watch = micdv_watch_memory(test->setup.a_dev.ctx, test->pages,
					   PAGE_BYTES);
		if (!watch) {
			watches->error = errno;
			break;
		}
		watches->list[watches->count++] = watch;
	}
}

static void give_all(struct watches *watches)
{
	while (watches->count)
		micdv_unwatch(watches->list[--watches->count]);
	free(watches->list);
}

static bool maps(struct test *test, const struct key *key, int expected)
{
	struct micdv_window *window;
	int error;

	window = micdv_map_window(test->a.qp, (uintptr_t)key->page,
				  key->mr->rkey, PAGE_BYTES, PROT_READ);
	error = window ? 0 : errno;
	if (window)
		micdv_unmap_window(window);
	return check(error == expected, "mapping gives %s instead of %s",
		     error ? strerror(error) : "a window",
		     expected ? strerror(expected) : "one");
}

/* By this one, if @direct, or the other. */
static bool works(struct test *test, const struct key *key, uint64_t value,
		  bool direct)
{
	bool by_process;

	return writes(test, key, value, &by_process) &&
	       check(by_process == direct, "a WRITE by the %s",
		     by_process ? "process" : "kernel") &&
	       reads(test, key, value, &by_process) &&
	       check(by_process == direct, "a READ by the %s",
		     by_process ? "process" : "kernel");
}

static void most(struct test *test)
{
	struct watches watches;
	struct test other;

	add_key(test);
	add_key(test);
	open_pair(test);
	tap_ok(works(test, &test->key[0], 1, true), "a window for one key");
	take_all(test, &watches);
	tap_ok(check(watches.count == most_windows(test) - 1 &&
			     watches.error == ENOSPC,
		     "%u, and then %s", watches.count, strerror(watches.error)),
	       "as many watches as there may be windows beside it: ENOSPC");
	tap_ok(maps(test, &test->key[1], ENOSPC), "no more is mapped: ENOSPC");
	tap_ok(works(test, &test->key[0], 2, true),
	       "requests with that key by the process");
	tap_ok(works(test, &test->key[1], 3, false),
	       "with another one by the kernel");
	other = *test;
	open_pair(&other);
	tap_ok(works(&other, &test->key[0], 4, false),
	       "on another queue pair by the kernel");
	close_pair(&other);
	give_all(&watches);
	tap_ok(maps(test, &test->key[1], 0), "given back: it is mapped");
	tap_ok(works_again(test, &test->key[1]) &&
		       works(test, &test->key[1], 5, true),
	       "and requests are executed by the process");
	close_pair(test);
	drop_keys(test);
}

int main(int argc, char **argv)
{
	struct test test;

	memset(&test, 0, sizeof(test));
	setup_open(&test.setup, &argc, argv, PAGE_BYTES);
	map_pages(&test);
	tap_ok(many(&test), "%u keys, all by the process", MANY);
	tap_ok(alike(&test), "%u keys with less room, %u times", ALIKE, ROUNDS);
	tap_ok(passing(&test), "%u keys, one after the other, leave nothing",
	       PASSING);
	tap_ok(leaves_mappings(&test), "%u keys, and other mappings",
	       MOST_MAPPED);
	tap_ok(refused(&test), "%u keys that have no window: asked for once",
	       REFUSED);
	tap_ok(unmappable(&test),
	       "a window that can't be mapped is given back");
	tap_ok(without_data(&test), "without data no window is asked for");
	tap_ok(no_region(&test), "an lkey of 0 after a region was used");
	most(&test);
	munmap(test.pages, MANY * PAGE_BYTES);
	setup_close(&test.setup);
	return tap_end();
}
