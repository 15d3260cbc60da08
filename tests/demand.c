// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * On-demand paging: regions whose pages are looked up when they are copied,
 * which may be slow to come, not there, or gone with their owner.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "clock.h"
#include "event.h"
#include "process.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)
#define FILL_BYTE 0x5c
/* What moves at a time, and a message of several of these. */
#define SEGMENT_BYTES (256UL << 10)
#define LONG_BYTES (3 * SEGMENT_BYTES)

enum { QUIET_MS = 50, ROUNDS = 10, LIST = 32, PIECE_BYTES = 16384 };

/* Started before a device is opened, they wait for the name of theirs. */
static struct process writers[ROUNDS];
static struct process changer;

struct stage {
	struct setup *setup;
	struct endpoint a;
	struct endpoint b;
};

static void fill(struct setup *setup)
{
	memset(setup->a_mem.addr, FILL_BYTE, LONG_BYTES);
}

static bool succeeds(enum ibv_wc_status status)
{
	return check(!status, "the status is %s", ibv_wc_status_str(status));
}

static bool ends_with(enum ibv_wc_status status, enum ibv_wc_status expected)
{
	return check(status == expected, "the status is %s instead of %s",
		     ibv_wc_status_str(status), ibv_wc_status_str(expected));
}

#define DEMAND_ACCESS (ACCESS_ALL | IBV_ACCESS_ON_DEMAND)

/* Memory of b that nobody has touched, and a region that does not pin it. */
struct demand {
	uint8_t *addr;
	size_t length;
	struct ibv_mr *mr;
};

static bool demand_map(struct demand *demand, struct ibv_pd *pd, size_t length,
		       bool implicit)
{
	demand->length = length;
	demand->addr = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	demand->mr = ibv_reg_mr(pd, implicit ? NULL : demand->addr,
				implicit ? SIZE_MAX : length, DEMAND_ACCESS);
	return check(demand->mr, "ibv_reg_mr: %s", strerror(errno));
}

static bool demand_create(struct demand *demand, struct stage *stage,
			  bool implicit)
{
	return demand_map(demand, stage->setup->b_dev.pd, REGION_BYTES,
			  implicit);
}

static bool demand_destroy(struct demand *demand)
{
	munmap(demand->addr, demand->length);
	return check(!ibv_dereg_mr(demand->mr), "ibv_dereg_mr fails");
}

/* Between a's memory and so much of the peer's. */
static enum ibv_wc_status transfer(struct setup *setup, struct endpoint *a,
				   enum ibv_wr_opcode opcode, uint64_t addr,
				   uint32_t rkey)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, REGION_BYTES);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	post_send(a, &wr);
	cq_wait(a->send_cq, &wc);
	return wc.status;
}

static enum ibv_wc_status access_demand(struct stage *stage,
					enum ibv_wr_opcode opcode,
					const struct demand *demand)
{
	return transfer(stage->setup, &stage->a, opcode,
			(uintptr_t)demand->addr, demand->mr->rkey);
}

/* What arrives is what is there, also after the pages were given back. */
static bool demand_follows(struct stage *stage, bool implicit)
{
	struct demand demand;
	bool good = demand_create(&demand, stage, implicit);
	int round;

	for (round = 0; round < 3 && good; round++) {
		fill(stage->setup);
		good = succeeds(access_demand(stage, IBV_WR_RDMA_WRITE,
					      &demand)) &&
		       all_are(demand.addr, REGION_BYTES, FILL_BYTE) &&
		       !madvise(demand.addr, REGION_BYTES, MADV_DONTNEED) &&
		       all_are(demand.addr, REGION_BYTES, 0) &&
		       succeeds(access_demand(stage, IBV_WR_RDMA_READ,
					      &demand)) &&
		       all_are(stage->setup->a_mem.addr, REGION_BYTES, 0);
		memset(demand.addr, round, REGION_BYTES);
		good = good &&
		       succeeds(access_demand(stage, IBV_WR_RDMA_READ,
					      &demand)) &&
		       all_are(stage->setup->a_mem.addr, REGION_BYTES, round);
	}
	return demand_destroy(&demand) && good;
}

static bool demand_explicit(struct stage *stage)
{
	return demand_follows(stage, false);
}

static bool demand_implicit(struct stage *stage)
{
	return demand_follows(stage, true);
}

/* A hole in the memory is an error of the access, and of that alone. */
static bool demand_unmapped(struct stage *stage)
{
	struct demand demand;
	bool good;

	good = demand_create(&demand, stage, false) &&
	       !munmap(demand.addr + REGION_BYTES / 2, PAGE_BYTES) &&
	       ends_with(access_demand(stage, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_REM_ACCESS_ERR);
	return demand_destroy(&demand) && good;
}

static bool demand_read_only(struct stage *stage)
{
	struct demand demand;
	bool good;

	good = demand_create(&demand, stage, false) &&
	       !mprotect(demand.addr, REGION_BYTES, PROT_READ) &&
	       succeeds(access_demand(stage, IBV_WR_RDMA_READ, &demand)) &&
	       ends_with(access_demand(stage, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_REM_ACCESS_ERR);
	return demand_destroy(&demand) && good;
}

/* A page that only a program can provide, which never does. */
static int withhold(uint8_t *addr, size_t length)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { .start = (uintptr_t)addr, .len = length },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd >= 0 && (ioctl(fd, UFFDIO_API, &api) ||
			ioctl(fd, UFFDIO_REGISTER, &range))) {
		close(fd);
		fd = -1;
	}
	check(fd >= 0, "userfaultfd: %s", strerror(errno));
	return fd;
}

/* Nobody waits for it: the sender gives up, and the region can go. */
static bool demand_withheld(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage other = { .setup = stage->setup };
	struct demand demand;
	int fd = -1;
	bool good;

	options.rnr_retry = 2;
	pair_create(&other.a, &stage->setup->a_dev, &other.b,
		    &stage->setup->b_dev, &options);
	good = demand_create(&demand, stage, false) &&
	       (fd = withhold(demand.addr, demand.length)) >= 0 &&
	       ends_with(access_demand(&other, IBV_WR_RDMA_WRITE, &demand),
			 IBV_WC_RNR_RETRY_EXC_ERR);
	good = demand_destroy(&demand) && good;
	pair_destroy(&other.a, &other.b);
	if (fd >= 0)
		close(fd);
	return good;
}

static bool demand_advice(struct stage *stage)
{
	struct ibv_pd *pd = stage->setup->b_dev.pd;
	const int flush = IBV_ADVISE_MR_FLAG_FLUSH;
	const enum ibv_advise_mr_advice advice =
		IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	struct ibv_sge sge = { .length = REGION_BYTES };
	struct demand demand;
	unsigned char there;
	bool good;

	if (!demand_create(&demand, stage, false))
		return false;
	sge.addr = (uintptr_t)demand.addr;
	sge.lkey = demand.mr->lkey;
	good = check(!ibv_advise_mr(pd, advice, flush, &sge, 1), "advice") &&
	       check(!mincore(demand.addr, 1, &there) && there & 1,
		     "the page is not there") &&
	       !munmap(demand.addr, PAGE_BYTES) &&
	       check(ibv_advise_mr(pd, advice, flush, &sge, 1) == EFAULT,
		     "a hole was brought in") &&
	       check(!ibv_advise_mr(pd, advice, 0, &sge, 1),
		     "advice need not be taken");
	sge.length++;
	good = check(ibv_advise_mr(pd, advice, flush, &sge, 1) == EINVAL,
		     "more than the region") &&
	       good;
	sge.lkey = stage->setup->b_mem.mr->lkey;
	good = check(ibv_advise_mr(pd, advice, flush, &sge, 1) == EINVAL,
		     "a pinned region") &&
	       good;
	return demand_destroy(&demand) && good;
}

static bool demand_advertised(struct stage *stage)
{
	struct ibv_device_attr_ex attr;
	struct ibv_mr *mr = stage->setup->a_mem.mr;

	return check(!ibv_query_device_ex(stage->setup->a_dev.ctx, NULL, &attr),
		     "ibv_query_device_ex fails") &&
	       check(attr.odp_caps.general_caps ==
			     (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
		     "capabilities 0x%llx",
		     (unsigned long long)attr.odp_caps.general_caps) &&
	       check(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				  DEMAND_ACCESS) &&
			     errno == EOPNOTSUPP,
		     "a pinned region was changed");
}

/* --- messages of which a piece gets lost ------------------------------------- */

static void post_long(struct stage *stage, enum ibv_wr_opcode opcode,
		      const struct demand *demand)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, 0, LONG_BYTES);
	struct ibv_send_wr wr = send_wr(1, opcode, &sge, 1);

	wr.wr.rdma.remote_addr = (uintptr_t)demand->addr;
	wr.wr.rdma.rkey = demand->mr->rkey;
	post_send(&stage->a, &wr);
}

/*
 * A page in the middle is not there in time, so that message is lost; the next
 * one arrives whole, with the receive of the first.
 */
static bool lost_then_whole(struct stage *stage, enum ibv_wr_opcode opcode,
			    struct demand *demand)
{
	struct ibv_sge sge = { .addr = (uintptr_t)demand->addr,
			       .length = LONG_BYTES,
			       .lkey = demand->mr->lkey };
	struct ibv_wc wc;
	bool good;
	int fd;

	fd = withhold(demand->addr + SEGMENT_BYTES + PAGE_BYTES, PAGE_BYTES);
	if (fd < 0)
		return false;
	fill(stage->setup);
	post_recv(&stage->b, 7, &sge, 1);
	post_long(stage, opcode, demand);
	good = cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_stays_empty(stage->b.recv_cq, QUIET_MS);
	close(fd);
	if (!good)
		return false;
	post_long(stage, opcode, demand);
	return cq_expect(stage->a.send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_success(stage->b.recv_cq, 7, &wc) &&
	       check(wc.byte_len == LONG_BYTES, "%u bytes", wc.byte_len) &&
	       all_are(demand->addr, LONG_BYTES, FILL_BYTE);
}

static bool demand_lost(struct stage *stage)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM
	};
	struct endpoint_options options = endpoint_options(IBV_QPT_UC);
	struct stage other = { .setup = stage->setup };
	struct demand demand;
	bool good = true;
	unsigned int i;

	for (i = 0; i < COUNT(opcodes) && good; i++) {
		pair_create(&other.a, &stage->setup->a_dev, &other.b,
			    &stage->setup->b_dev, &options);
		good = demand_map(&demand, stage->setup->b_dev.pd, LONG_BYTES,
				  false) &&
		       check(lost_then_whole(&other, opcodes[i], &demand), "%s",
			     opcode_name(opcodes[i]));
		pair_destroy(&other.a, &other.b);
		good = demand_destroy(&demand) && good;
	}
	return good;
}

/* --- other processes --------------------------------------------------------- */

/* What one side tells the other. */
struct offer {
	struct endpoint_address address;
	uint64_t remote_addr;
	uint32_t rkey;
};

static bool was_killed(struct process *process)
{
	int status;

	kill(process->pid, SIGKILL);
	close(process->socket);
	return check(waitpid(process->pid, &status, 0) == process->pid &&
			     WIFSIGNALED(status),
		     "the other process ended by itself");
}

static void post_list(struct endpoint *ep, const struct region *memory,
		      const struct offer *offer)
{
	struct ibv_sge sge = region_sge(memory, 0, PIECE_BYTES);
	struct ibv_send_wr wr[LIST];
	int i;

	for (i = 0; i < LIST; i++) {
		wr[i] = send_wr(i, IBV_WR_RDMA_WRITE, &sge, 1);
		wr[i].wr.rdma.remote_addr = offer->remote_addr;
		wr[i].wr.rdma.rkey = offer->rkey;
		wr[i].next = i + 1 < LIST ? &wr[i + 1] : NULL;
	}
	post_send(ep, wr);
}

/* Wait for the device's name, however long that takes, and open it. */
static bool open_named(struct device *dev, int socket)
{
	static char name[64];

	if (recv(socket, name, sizeof(name) - 1, 0) <= 0)
		return false;
	device_open(dev, name);
	return true;
}

static bool wake(const struct process *process, const struct device *dev)
{
	return message_send(process->socket, dev->name, strlen(dev->name));
}

/* Writes without end: most of the time in the kernel. */
static int write_on(int socket, void *unused)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct region memory;
	struct offer offer;
	struct device dev;
	struct endpoint ep;
	struct ibv_wc wc;
	int i;

	(void)unused;
	if (!open_named(&dev, socket))
		return 1;
	region_create(&memory, dev.pd, PIECE_BYTES);
	options.depth = LIST;
	endpoint_create(&ep, &dev, &options);
	address = endpoint_address(&ep);
	if (!message_send(socket, &address, sizeof(address)) ||
	    !message_receive(socket, &offer, sizeof(offer)))
		return 1;
	endpoint_connect(&ep, &offer.address);
	for (message_send(socket, "", 1);;) {
		post_list(&ep, &memory, &offer);
		for (i = 0; i < LIST; i++)
			if (!cq_wait(ep.send_cq, &wc) || wc.status)
				return 1;
	}
}

static bool writer_killed(struct stage *stage, const struct demand *demand,
			  struct process *process, unsigned int ms)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address peer;
	struct endpoint ep;
	struct offer offer;
	char word;
	bool good;

	endpoint_create(&ep, &stage->setup->b_dev, &options);
	offer = (struct offer){
		.address = endpoint_address(&ep),
		.remote_addr = (uintptr_t)demand->addr,
		.rkey = demand->mr->rkey,
	};
	good = wake(process, &stage->setup->a_dev) &&
	       message_receive(process->socket, &peer, sizeof(peer));
	if (good)
		endpoint_connect(&ep, &peer);
	good = good && message_send(process->socket, &offer, sizeof(offer)) &&
	       message_receive(process->socket, &word, 1);
	sleep_ms(ms + 1);
	good = was_killed(process) && good &&
	       check(endpoint_state(&ep) == IBV_QPS_RTS, "the state is %s",
		     state_name(endpoint_state(&ep))) &&
	       events_none(stage->setup->b_dev.ctx);
	endpoint_destroy(&ep);
	return good;
}

/* That who writes is killed says nothing of the memory it writes to. */
static bool demand_killed(struct stage *stage)
{
	struct demand demand;
	unsigned int i;
	bool good;

	good = demand_create(&demand, stage, false);
	events_drop(stage->setup->b_dev.ctx);
	for (i = 0; i < ROUNDS && good; i++)
		good = check(writer_killed(stage, &demand, &writers[i], i % 7),
			     "in round %u", i);
	return demand_destroy(&demand) && good;
}

/*
 * Owns a region and a connection, and becomes another program: its memory is
 * gone, but what it has opened lives on.
 */
static int become_another(int socket, void *unused)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address peer;
	struct demand demand;
	struct offer offer;
	struct device dev;
	struct endpoint ep;
	char word;

	(void)unused;
	if (!open_named(&dev, socket))
		return 1;
	endpoint_create(&ep, &dev, &options);
	if (!demand_map(&demand, dev.pd, REGION_BYTES, false))
		return 1;
	offer = (struct offer){
		.address = endpoint_address(&ep),
		.remote_addr = (uintptr_t)demand.addr,
		.rkey = demand.mr->rkey,
	};
	if (!message_send(socket, &offer, sizeof(offer)) ||
	    !message_receive(socket, &peer, sizeof(peer)))
		return 1;
	endpoint_connect(&ep, &peer);
	if (!message_send(socket, "", 1) || !message_receive(socket, &word, 1))
		return 1;
	fcntl(dev.ctx->cmd_fd, F_SETFD, 0);
	execlp("sleep", "sleep", "1000", NULL);
	return 1;
}

static bool demand_orphaned(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	struct process *process = &changer;
	struct endpoint ep;
	struct offer offer;
	char word;
	bool good;

	endpoint_create(&ep, &stage->setup->a_dev, &options);
	address = endpoint_address(&ep);
	good = wake(process, &stage->setup->b_dev) &&
	       message_receive(process->socket, &offer, sizeof(offer));
	if (good)
		endpoint_connect(&ep, &offer.address);
	good = good &&
	       message_send(process->socket, &address, sizeof(address)) &&
	       message_receive(process->socket, &word, 1) &&
	       succeeds(transfer(stage->setup, &ep, IBV_WR_RDMA_WRITE,
				 offer.remote_addr, offer.rkey)) &&
	       message_send(process->socket, "", 1) &&
	       /* its end of the socket is closed when the program starts */
	       check(!message_receive(process->socket, &word, 1),
		     "it goes on as it was") &&
	       ends_with(transfer(stage->setup, &ep, IBV_WR_RDMA_WRITE,
				  offer.remote_addr, offer.rkey),
			 IBV_WC_REM_ACCESS_ERR);
	good = was_killed(process) && good;
	endpoint_destroy(&ep);
	return good;
}

/* --- what such a region is not for ------------------------------------------- */

static bool demand_refused(struct stage *stage)
{
	struct micdv_window *window;
	struct demand demand;
	bool good;

	if (!demand_create(&demand, stage, false))
		return false;
	errno = 0;
	window = micdv_map_window(stage->a.qp, (uintptr_t)demand.addr,
				  demand.mr->rkey, REGION_BYTES, PROT_READ);
	good = check(!window && errno == EOPNOTSUPP, "a window: %s",
		     strerror(errno));
	if (window)
		micdv_unmap_window(window);
	errno = 0;
	good = check(ibv_rereg_mr(demand.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				  NULL, 0, IBV_ACCESS_LOCAL_WRITE) &&
			     errno == EOPNOTSUPP,
		     "registered again: %s", strerror(errno)) &&
	       good &&
	       /* and it is as it was */
	       succeeds(access_demand(stage, IBV_WR_RDMA_WRITE, &demand));
	return demand_destroy(&demand) && good;
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
} cases[] = {
	{ demand_advertised, "what is advertised" },
	{ demand_explicit, "memory that comes and goes" },
	{ demand_implicit, "the whole address space" },
	{ demand_unmapped, "memory that is not there" },
	{ demand_read_only, "memory that can only be read" },
	{ demand_withheld, "a page that nobody provides" },
	{ demand_advice, "brought in beforehand" },
	{ demand_lost, "a message on UC arrives whole or not at all" },
	{ demand_killed, "who writes is killed: the memory is still good" },
	{ demand_orphaned, "the owner becomes another program" },
	{ demand_refused, "no windows, and not registered again" },
};

static bool run_case(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct stage stage = { .setup = setup };
	bool ok;

	pair_create(&stage.a, &setup->a_dev, &stage.b, &setup->b_dev, &options);
	ok = cases[i].run(&stage);
	pair_destroy(&stage.a, &stage.b);
	return ok;
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	unsigned int i;

	for (i = 0; i < ROUNDS; i++)
		process_start(&writers[i], write_on, NULL);
	process_start(&changer, become_another, NULL);
	setup_open(&setup, &argc, argv, LONG_BYTES);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	for (i = 0; i < COUNT(cases); i++) {
		/* in the full set only */
		if (cases[i].run == demand_lost && !getenv("MIC_TEST_FULL"))
			continue;
		tap_ok(run_case(&setup, i) && neighbours_work(&neighbours),
		       "%s", cases[i].name);
	}
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
