// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * lost --peer ADDRESS:PORT COMMAND...: what requests end with when COMMAND takes the
 * machine away that they are for: those that are under way, those that wait for a
 * receive there, and those that are posted when it is gone.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "counter.h"
#include "proxy.h"
#include "setup.h"
#include "srq.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { REGION_BYTES = 1 << 16, WORD = 8, FIRST = 1, BEHIND = 2 };

static const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_SEND,
	IBV_WR_SEND_WITH_IMM,
	IBV_WR_SEND_WITH_INV,
	IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD,
	IBV_WR_ATOMIC_WRITE,
};

/* Both ends of connections; the other ends go with their machine. */
struct ends {
	struct endpoint a;
	struct endpoint b;
};

static struct setup setup;
static struct ends after[COUNT(opcodes)], writes, reads, waits, uc, ud;
static struct endpoint member; /* of a group, here; there it is that of @ud */
static union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 7 } };
static struct xrc xrc;
static struct ibv_comp_channel *channel; /* of what waits */
static struct ibv_ah *to_group;

static void connect_ends(struct ends *ends, enum ibv_qp_type type)
{
	struct endpoint_options options = endpoint_options(type);

	pair_create(&ends->a, &setup.a_dev, &ends->b, &setup.b_dev, &options);
}

/* Who has it sleeps until there is a completion. */
static void connect_sleeper(struct ends *ends)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	endpoint_create(&ends->b, &setup.b_dev, &options);
	channel = ibv_create_comp_channel(setup.a_dev.ctx);
	if (!channel)
		bail("no completion channel: %s", strerror(errno));
	options.channel = channel;
	endpoint_create(&ends->a, &setup.a_dev, &options);
	pair_connect(&ends->a, &ends->b);
}

static void join_group(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);

	endpoint_create(&member, &setup.a_dev, &options);
	endpoint_connect(&member, NULL);
	tap_must(!ibv_attach_mcast(member.qp, &group, 0) &&
			 !ibv_attach_mcast(ud.b.qp, &group, 0),
		 "ibv_attach_mcast fails");
}

static void open_all(void)
{
	unsigned int i;

	for (i = 0; i < COUNT(after); i++)
		connect_ends(&after[i], IBV_QPT_RC);
	connect_ends(&writes, IBV_QPT_RC);
	connect_ends(&reads, IBV_QPT_RC);
	connect_sleeper(&waits);
	connect_ends(&uc, IBV_QPT_UC);
	connect_ends(&ud, IBV_QPT_UD);
	join_group();
	xrc_open_domain(&xrc, &setup);
	xrc.srq[0] = xrc_create_srq(&xrc, 1, 1);
	xrc_connect(&xrc);
}

static void close_all(void)
{
	unsigned int i;

	for (i = 0; i < COUNT(after); i++)
		pair_destroy(&after[i].a, &after[i].b);
	pair_destroy(&writes.a, &writes.b);
	pair_destroy(&reads.a, &reads.b);
	pair_destroy(&waits.a, &waits.b);
	tap_must(!ibv_destroy_comp_channel(channel),
		 "ibv_destroy_comp_channel fails");
	pair_destroy(&uc.a, &uc.b);
	tap_must(!ibv_detach_mcast(member.qp, &group, 0),
		 "ibv_detach_mcast fails");
	endpoint_destroy(&member);
	pair_destroy(&ud.a, &ud.b);
	xrc_close(&xrc);
}

static void post(struct endpoint *ep, uint64_t id, enum ibv_wr_opcode opcode,
		 uint32_t length, struct ibv_ah *ah)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, 0, length);
	/* a word of it is aligned */
	uint64_t addr = (setup.b_mem.rdma_addr + WORD) & ~(WORD - 1ULL);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = ah == to_group ? MULTICAST_QPN :
						       ud.b.qp->qp_num;
		wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	} else {
		send_wr_aim(&wr, addr, setup.b_mem.mr->rkey);
	}
	if (ep == &xrc.a)
		wr.qp_type.xrc.remote_srqn = 1;
	post_send(ep, &wr);
}

/* The command's process; this one has devices open, which are closed there. */
static pid_t start(char **command)
{
	pid_t pid = fork();

	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (!pid) {
		execvp(command[0], command);
		_exit(127);
	}
	return pid;
}

/* One after the other, until one fails. */
static bool goes_on(struct endpoint *ep, enum ibv_wr_opcode opcode,
		    enum ibv_wc_status *status)
{
	struct ibv_wc wc;

	if (*status)
		return false;
	post(ep, FIRST, opcode, REGION_BYTES / 2, NULL);
	*status = cq_wait(ep->send_cq, &wc) ? wc.status : IBV_WC_GENERAL_ERR;
	return !*status;
}

static bool exceeded(enum ibv_wc_status status, const char *what)
{
	return tap_ok(check(status == IBV_WC_RETRY_EXC_ERR, "it ends with '%s'",
			    ibv_wc_status_str(status)),
		      "%s: transport retry counter exceeded", what);
}

static void lose(char **command)
{
	enum ibv_wc_status write = IBV_WC_SUCCESS, read = IBV_WC_SUCCESS;
	uint64_t end = deadline();
	pid_t pid = start(command);
	bool more;
	int status;

	do {
		more = goes_on(&writes.a, IBV_WR_RDMA_WRITE, &write);
		more = goes_on(&reads.a, IBV_WR_RDMA_READ, &read) || more;
		post(&ud.a, FIRST, IBV_WR_SEND, WORD, to_group);
		tap_must(cq_expect(ud.a.send_cq, FIRST, IBV_WC_SUCCESS),
			 "a multicast fails");
	} while (more && now_ms() < end);
	if (waitpid(pid, &status, 0) != pid || status)
		bail("%s ends with status 0x%x", command[0], status);
	exceeded(write, "WRITE under way");
	exceeded(read, "READ under way");
}

static bool has_failed(struct endpoint *ep)
{
	enum ibv_qp_state state;

	if (!cq_expect(ep->send_cq, FIRST, IBV_WC_RETRY_EXC_ERR) ||
	    !cq_expect(ep->send_cq, BEHIND, IBV_WC_WR_FLUSH_ERR))
		return false;
	state = endpoint_state(ep);
	return check(state == IBV_QPS_ERR, "it is in %s", state_name(state)) &&
	       cq_stays_empty(ep->send_cq, 0);
}

static bool is_woken(void)
{
	struct ibv_cq *cq;
	void *owner;

	if (!check(becomes_readable(channel->fd), "no event") ||
	    !check(!ibv_get_cq_event(channel, &cq, &owner), "%s",
		   strerror(errno)))
		return false;
	ibv_ack_cq_events(cq, 1);
	return check(cq == waits.a.send_cq, "of another queue");
}

static void post_two(struct endpoint *ep, enum ibv_wr_opcode opcode)
{
	post(ep, FIRST, opcode, WORD, NULL);
	post(ep, BEHIND, IBV_WR_RDMA_WRITE, WORD, NULL);
}

/* A request, as often as it may be, and none of the one behind it. */
static bool fails(struct endpoint *ep, enum ibv_wr_opcode opcode)
{
	uint64_t before, retries;

	counter_settle();
	before = counter_now(&setup.a_dev, "retries");
	post_two(ep, opcode);
	if (!has_failed(ep))
		return false;
	counter_settle();
	retries = counter_now(&setup.a_dev, "retries") - before;
	return check(retries == ep->options.retry_count,
		     "it is repeated %" PRIu64 " times, not %u", retries,
		     ep->options.retry_count);
}

static void reliable(void)
{
	unsigned int i;

	for (i = 0; i < COUNT(after); i++)
		tap_ok(fails(&after[i].a, opcodes[i]),
		       "%s to what is gone: retry counter exceeded, then flushed",
		       opcode_name(opcodes[i]));
	tap_ok(fails(&xrc.a, IBV_WR_SEND),
	       "XRC SEND to what is gone: retry counter exceeded, then flushed");
}

static void unreliable(struct ibv_ah *ah)
{
	post(&uc.a, FIRST, IBV_WR_RDMA_WRITE, REGION_BYTES / 2, NULL);
	post(&uc.a, BEHIND, IBV_WR_SEND, WORD, NULL);
	tap_ok(cq_expect(uc.a.send_cq, FIRST, IBV_WC_SUCCESS) &&
		       cq_expect(uc.a.send_cq, BEHIND, IBV_WC_SUCCESS),
	       "UC to what is gone: success");
	post(&ud.a, FIRST, IBV_WR_SEND, WORD, ah);
	tap_ok(cq_expect(ud.a.send_cq, FIRST, IBV_WC_SUCCESS),
	       "UD to what is gone: success");
}

/* With members here and there, of which those there are gone. */
static void multicast(void)
{
	struct ibv_sge sge = region_sge(&setup.a_mem, REGION_BYTES / 2,
					GRH_BYTES + WORD);

	post_recv(&member, FIRST, &sge, 1);
	post(&ud.a, FIRST, IBV_WR_SEND, WORD, to_group);
	tap_ok(cq_expect(ud.a.send_cq, FIRST, IBV_WC_SUCCESS) &&
		       cq_expect(member.recv_cq, FIRST, IBV_WC_SUCCESS),
	       "multicast to who is gone and who is here: it arrives here");
}

int main(int argc, char **argv)
{
	struct ibv_ah *ah;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	if (argc < 2)
		bail("usage: lost --peer ADDRESS:PORT COMMAND...");
	open_all();
	ah = address_handle(&setup.a_dev, &setup.b_dev.gid);
	to_group = address_handle(&setup.a_dev, &group);
	/* nobody has posted a receive */
	post_two(&waits.a, IBV_WR_SEND);
	if (!cq_stays_empty(waits.a.send_cq, 50))
		bail("a SEND does not wait for its receive");
	tap_must(!ibv_req_notify_cq(waits.a.send_cq, 0),
		 "ibv_req_notify_cq fails");
	/* it can't be asked any more whether its memory has changed */
	proxy_lost();
	lose(argv + 1);
	tap_ok(is_woken(), "who sleeps until there is a completion: woken");
	tap_ok(has_failed(&waits.a), "SEND that waits for a receive: "
				     "retry counter exceeded, then flushed");
	reliable();
	unreliable(ah);
	multicast();
	tap_must(!ibv_destroy_ah(to_group), "ibv_destroy_ah fails");
	tap_must(!ibv_destroy_ah(ah), "ibv_destroy_ah fails");
	close_all();
	setup_close(&setup);
	return tap_end();
}
