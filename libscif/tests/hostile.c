// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A peer that speaks the library's protocol with verbs, and lies: it writes
 * garbage into what it may write, shows a garbage directory, sends garbage
 * control messages, or does not answer. It may break its own connection;
 * another one must not notice, and no call may crash or hang.
 * usage: scif_hostile NODES OWN PEER VICTIM-ADDRESS [ROUNDS]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "../src/wire.h"
#include "clock.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	PORT = 2700,
	PAGE = 4096,
	ACTIONS = 60,
	CALLS = 12,
	SENT = 1,
	SILENT = 3,
	UNSTEADY = 3,
	NO_NODE = 7,
	ANOTHER_NODE = 998,
	MARKS = 50
};

static struct random_state dice;

/* The liar's side. */
struct liar {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct scif_hello theirs;
	uint8_t *mem; /* a shared block, and more to show as directory */
};

static uint32_t odd_number(void)
{
	static const uint32_t odd[] = {
		0,     1,     4095,	  4096,	    4097, 8191,
		65535, 65536, 0x7fffffff, 1U << 31, ~0U,  ~0U - 4095
	};

	return random_below(&dice, 3) ? odd[random_below(&dice, 12)] :
					(uint32_t)random_next(&dice);
}

static bool wait_event(struct liar *liar, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	bool ok;

	if (rdma_get_cm_event(liar->channel, &event))
		return false;
	ok = check(event->event == type, "the liar gets %s, wants %s",
		   rdma_event_str(event->event), rdma_event_str(type));
	if (ok && type == RDMA_CM_EVENT_ESTABLISHED)
		memcpy(&liar->theirs, event->param.conn.private_data,
		       sizeof(liar->theirs));
	rdma_ack_cm_event(event);
	return ok;
}

static bool open_liar(struct liar *liar)
{
	struct ibv_qp_init_attr init = {
		.cap = { 64, 64, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};

	liar->mem = fresh_pages(16 * PAGE);
	liar->pd = ibv_alloc_pd(liar->id->verbs);
	liar->cq = ibv_create_cq(liar->id->verbs, 256, NULL, NULL, 0);
	liar->mr = ibv_reg_mr(liar->pd, liar->mem, 16 * PAGE,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_WRITE);
	init.send_cq = liar->cq;
	init.recv_cq = liar->cq;
	return liar->mr && !rdma_create_qp(liar->id, liar->pd, &init);
}

static void post_receives(struct liar *liar)
{
	struct ibv_sge sge = { (uintptr_t)liar->mem + 15 * PAGE, 64,
			       liar->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int i;

	for (i = 0; i < 32; i++)
		ibv_post_recv(liar->id->qp, &wr, &bad);
}

/* Find the way to the victim. */
static bool reach(struct liar *liar, const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(PORT) };

	inet_pton(AF_INET, address, &to.sin_addr);
	liar->channel = rdma_create_event_channel();
	return !rdma_create_id(liar->channel, &liar->id, NULL, RDMA_PS_TCP) &&
	       !rdma_resolve_addr(liar->id, NULL, (struct sockaddr *)&to,
				  2000) &&
	       wait_event(liar, RDMA_CM_EVENT_ADDR_RESOLVED) &&
	       !rdma_resolve_route(liar->id, 2000) &&
	       wait_event(liar, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static bool greet(struct liar *liar, struct scif_hello *hello, uint8_t patience)
{
	struct rdma_conn_param param = { .responder_resources = 4,
					 .initiator_depth = 4,
					 .retry_count = 7,
					 .qp_num = hello->rma_qpn };

	hello->magic = SCIF_MAGIC;
	hello->protocol = SCIF_PROTOCOL;
	hello->port = 7;
	param.private_data = hello;
	param.private_data_len = sizeof(*hello);
	rdma_set_option(liar->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			&patience, sizeof(patience));
	return !rdma_connect(liar->id, &param);
}

/* A connection to the victim; the QP for copies leads nowhere. */
static bool connect_liar(struct liar *liar, const char *address)
{
	struct scif_hello hello = { .node = NO_NODE };

	if (!reach(liar, address) || !open_liar(liar))
		return false;
	post_receives(liar);
	hello.rma_qpn = liar->id->qp->qp_num;
	hello.shared_addr = (uintptr_t)liar->mem;
	hello.shared_rkey = liar->mr->rkey;
	/* A victim that had enough does not answer: 17 ms, several times. */
	return greet(liar, &hello, 12) &&
	       wait_event(liar, RDMA_CM_EVENT_ESTABLISHED);
}

/*
 * No queue pair is there, with a number that no other attempt has; and the victim
 * shall wait for it for hours.
 */
static bool connect_silent(struct liar *liar, const char *address,
			   unsigned int number)
{
	struct scif_hello hello = { .node = NO_NODE,
				    .rma_qpn = 0xabcd00 + number,
				    .shared_rkey = 1 };

	return reach(liar, address) && greet(liar, &hello, 31) &&
	       wait_event(liar, RDMA_CM_EVENT_CONNECT_RESPONSE) &&
	       !rdma_establish(liar->id);
}

/* Who says that it is a node with another address is refused. */
static bool is_refused(const char *address)
{
	struct scif_hello hello = { .node = ANOTHER_NODE,
				    .rma_qpn = 0xabcdef,
				    .shared_rkey = 1 };
	struct liar liar;
	bool ok;

	ok = reach(&liar, address) && greet(&liar, &hello, 12) &&
	     wait_event(&liar, RDMA_CM_EVENT_REJECTED);
	rdma_destroy_id(liar.id);
	rdma_destroy_event_channel(liar.channel);
	return ok;
}

static void close_liar(struct liar *liar)
{
	rdma_disconnect(liar->id);
	rdma_destroy_qp(liar->id);
	ibv_dereg_mr(liar->mr);
	ibv_destroy_cq(liar->cq);
	ibv_dealloc_pd(liar->pd);
	rdma_destroy_id(liar->id);
	rdma_destroy_event_channel(liar->channel);
}

/* False when the victim has had enough. */
static bool post(struct liar *liar, enum ibv_wr_opcode opcode, uint32_t length,
		 uint64_t place)
{
	struct ibv_sge sge = { (uintptr_t)liar->mem + 14 * PAGE, length,
			       liar->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = SENT,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	uint64_t end = now_ms() + 1000;
	unsigned int round = 0;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = liar->theirs.shared_addr + place;
	wr.wr.rdma.rkey = liar->theirs.shared_rkey;
	if (ibv_post_send(liar->id->qp, &wr, &bad))
		return false;
	/* rxe may retry for ever what a broken queue pair does not answer. */
	while (ibv_poll_cq(liar->cq, 1, &wc) <= 0 || wc.wr_id != SENT) {
		if (now_ms() > end)
			return false;
		relax(round++);
	}
	return wc.status == IBV_WC_SUCCESS;
}

static bool lie_in_ring(struct liar *liar)
{
	static const uint16_t words[] = {
		offsetof(struct scif_shared, produced),
		offsetof(struct scif_shared, recent_length),
		offsetof(struct scif_shared, recent_from),
		offsetof(struct scif_shared, consumed),
		offsetof(struct scif_shared, want_data),
		offsetof(struct scif_shared, want_room),
		offsetof(struct scif_shared, dir_gen),
	};
	uint32_t value = odd_number();

	memcpy(liar->mem + 14 * PAGE, &value, sizeof(value));
	return post(liar, IBV_WR_RDMA_WRITE, 4, words[random_below(&dice, 7)]);
}

static bool lie_in_message(struct liar *liar)
{
	struct scif_message message = {
		.type = random_below(&dice, 12),
		.tag = random_below(&dice, 4),
		.status = odd_number(),
		.flags = odd_number(),
		.args = { odd_number(), odd_number(), odd_number(),
			  random_next(&dice), odd_number(), odd_number() },
	};

	memcpy(liar->mem + 14 * PAGE, &message, sizeof(message));
	return post(liar, IBV_WR_SEND,
		    random_below(&dice, 8) ? sizeof(message) :
					     random_below(&dice, 64),
		    0);
}

static bool lie_in_directory(struct liar *liar)
{
	struct scif_shared *shared = (struct scif_shared *)liar->mem;
	struct scif_dir_entry *entries = (void *)(liar->mem + 2 * PAGE);
	uint32_t gen = odd_number();
	int i;

	for (i = 0; i < 100; i++) {
		entries[i].offset = random_below(&dice, 2) ?
					    (uint64_t)i * PAGE :
					    random_next(&dice);
		entries[i].length = random_below(&dice, 2) ? PAGE :
							     odd_number();
		entries[i].addr = random_next(&dice);
		entries[i].rkey = random_next(&dice);
		entries[i].prot = odd_number();
	}
	shared->dir.count = random_below(&dice, 2) ? 100 : odd_number();
	shared->dir.addr = random_below(&dice, 4) ? (uintptr_t)entries :
						    random_next(&dice);
	shared->dir.rkey = random_below(&dice, 4) ? liar->mr->rkey :
						    odd_number();
	atomic_store(&shared->dir.begin, gen);
	atomic_store(&shared->dir.end, random_below(&dice, 4) ? gen : gen + 1);
	return true;
}

static bool lie_once(struct liar *liar)
{
	switch (random_below(&dice, 3)) {
	case 0:
		return lie_in_ring(liar);
	case 1:
		return random_below(&dice, 8) || lie_in_message(liar);
	default:
		return lie_in_directory(liar);
	}
}

/*
 * A directory that is always about to change, which the victim's thread has to
 * look at, by a request. Until the victim has had enough.
 */
static bool lie_for_long(struct liar *liar, const char *address)
{
	struct scif_message message = { .type = SCIF_SIGNAL,
					.tag = 1,
					.flags = SCIF_SIGNAL_LOCAL };
	uint32_t gen = 2;
	struct scif_shared *shared;
	bool ok;

	if (!connect_liar(liar, address))
		return false;
	shared = (struct scif_shared *)liar->mem;
	shared->dir.count = 100;
	shared->dir.addr = (uintptr_t)liar->mem + 2 * PAGE;
	shared->dir.rkey = liar->mr->rkey;
	atomic_store(&shared->dir.begin, gen);
	memcpy(liar->mem + 14 * PAGE, &gen, sizeof(gen));
	ok = check(post(liar, IBV_WR_RDMA_WRITE, sizeof(gen),
			offsetof(struct scif_shared, dir_gen)),
		   "the number of the directory");
	memcpy(liar->mem + 14 * PAGE, &message, sizeof(message));
	ok = ok &&
	     check(post(liar, IBV_WR_SEND, sizeof(message), 0), "a request") &&
	     wait_event(liar, RDMA_CM_EVENT_DISCONNECTED);
	close_liar(liar);
	return ok;
}

static int lie(const char *address, unsigned int rounds, int go)
{
	struct liar liar;
	unsigned int i, j;
	char byte;

	if (read(go, &byte, 1) != 1)
		return 1;
	random_seed(&dice, 77);
	if (!is_refused(address))
		return 1;
	for (i = 0; i < rounds; i++) {
		/* one that the victim did not wait for */
		if (!connect_liar(&liar, address))
			continue;
		for (j = 0; j < ACTIONS && lie_once(&liar); j++)
			;
		close_liar(&liar);
	}
	for (i = 0; i < UNSTEADY; i++)
		if (!lie_for_long(&liar, address))
			return 1;
	for (i = 0; i < SILENT; i++)
		if (!connect_silent(&liar, address, i))
			return 1;
	for (;;)
		pause();
}

/* Calls that believe the liar. Whatever they return is fine. */
static void believe(int epd, uint8_t *mem)
{
	struct scif_pollepd entry = { epd, SCIF_POLLIN | SCIF_POLLOUT, 0 };
	uint8_t bytes[5000];
	int mark, i;

	scif_register(epd, mem, PAGE, 0, 3, SCIF_MAP_FIXED);
	for (i = 0; i < CALLS; i++) {
		switch (random_below(&dice, 8)) {
		case 0:
			scif_send(epd, bytes, sizeof(bytes), 0);
			break;
		case 1:
			scif_recv(epd, bytes, sizeof(bytes), 0);
			break;
		case 2:
			scif_poll(&entry, 1, 2);
			break;
		case 3:
			scif_readfrom(epd, 0, 100, PAGE, SCIF_RMA_SYNC);
			break;
		case 4:
			scif_vwriteto(epd, bytes, 100, 0, SCIF_RMA_SYNC);
			break;
		case 5:
			if (!scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &mark))
				scif_fence_wait(epd, mark);
			break;
		case 6:
			scif_fence_signal(epd, 0, 1, 0, 1,
					  SCIF_FENCE_INIT_SELF |
						  SCIF_SIGNAL_LOCAL);
			break;
		default:
			scif_unregister(epd, 0, PAGE);
			scif_register(epd, mem, PAGE, 0, 3, SCIF_MAP_FIXED);
		}
	}
}

static bool healthy(int own, int other)
{
	char text[4] = "";

	return succeeds(scif_send(own, "abc", 4, 1), 4, "send") &&
	       succeeds(peer_recv(other, text, 4, 1), 4, "recv") &&
	       check(!strcmp(text, "abc"), "the bytes");
}

/*
 * The liar's next request, if it has not gone before: what comes of that, and whether
 * the other connection is as it was.
 */
static bool survives_lies(int listener, int own, int other, uint8_t *mem,
			  unsigned int *believed)
{
	struct scif_port_id from;
	int epd;
	bool ok;

	if (!shows(listener, POLLIN))
		return false;
	if (scif_accept(listener, &from, &epd, 0))
		return check(errno == EAGAIN, "accept: %s", strerror(errno));
	++*believed;
	believe(epd, mem);
	ok = healthy(own, other);
	scif_close(epd);
	return ok;
}

struct acceptance {
	int listener;
	int epd;
	int ret;
	atomic_bool over;
};

static void *accept_one(void *argument)
{
	struct acceptance *acceptance = argument;
	struct scif_port_id from;

	acceptance->ret = scif_accept(acceptance->listener, &from,
				      &acceptance->epd, SCIF_ACCEPT_SYNC);
	atomic_store(&acceptance->over, true);
	return NULL;
}

/* What the library's thread has to do for another connection. */
static bool marks_pass(int own)
{
	bool ok = true;
	int mark, i;

	for (i = 0; i < MARKS && ok; i++)
		ok = succeeds(scif_fence_mark(own, SCIF_FENCE_INIT_PEER, &mark),
			      0, "mark");
	return ok;
}

/*
 * Is the other connection served while the library waits for a directory that
 * does not hold still? In the end that one is lost.
 */
static bool meets_unsteadiness(int listener, int own, bool last, bool *served)
{
	struct scif_port_id from;
	int epd;
	bool ok;

	if (!shows(listener, POLLIN) ||
	    !succeeds(scif_accept(listener, &from, &epd, 0), 0, "accept"))
		return false;
	sleep_ms(500);
	ok = marks_pass(own);
	*served = *served || !(scif_poll_now(epd) & POLLHUP);
	ok = (!last || shows(epd, POLLHUP)) && ok;
	scif_close(epd);
	return ok;
}

static bool survives_unsteadiness(int listener, int own, bool *served)
{
	bool ok = true;
	int i;

	for (i = 0; i < UNSTEADY && ok; i++)
		ok = meets_unsteadiness(listener, own, i == UNSTEADY - 1,
					served);
	return ok;
}

/*
 * One that never answers, which the library finds out when it is accepted. Is
 * the other connection served before that? A slow machine may miss it.
 */
static bool meets_silence(int listener, int own, bool *served)
{
	struct acceptance acceptance = { .listener = listener };
	pthread_t thread;
	bool ok;

	if (!shows(listener, POLLIN))
		return false;
	pthread_create(&thread, NULL, accept_one, &acceptance);
	sleep_ms(500);
	ok = marks_pass(own);
	*served = *served || !atomic_load(&acceptance.over);
	pthread_join(thread, NULL);
	ok = succeeds(acceptance.ret, 0, "accept") &&
	     shows(acceptance.epd, POLLHUP) &&
	     fails(scif_send(acceptance.epd, "a", 1, 1), ECONNRESET,
		   "to the silent one") &&
	     ok;
	scif_close(acceptance.epd);
	return ok;
}

static bool survives_silence(int listener, int own, int other, bool *served)
{
	bool ok = healthy(own, other);
	int i;

	for (i = 0; i < SILENT && ok && !*served; i++)
		ok = meets_silence(listener, own, served);
	return healthy(own, other) && ok;
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 5 ? atoi(argv[5]) : 20, i, believed = 0;
	int listener, own, other, status, go[2];
	uint8_t *mem;
	pid_t child;
	bool ok = true, served = false, busy = false;

	if (argc < 5)
		bail("usage: %s NODES OWN PEER ADDRESS [ROUNDS]", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	setenv("SCIF_NODE", argv[2], 1);
	own_node = atoi(argv[2]);
	peer_node = atoi(argv[3]);
	peer_start();
	/* A process of its own, from before the library was used here. */
	if (pipe2(go, O_CLOEXEC))
		bail("pipe");
	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(lie(argv[4], rounds, go[0]));
	}
	mem = fresh_pages(PAGE);
	random_seed(&dice, 78);
	connect_pair(&own, &other);
	listener = scif_open();
	if (scif_bind(listener, PORT) < 0 || scif_listen(listener, 4))
		bail("listen: %s", strerror(errno));
	if (write(go[1], "", 1) != 1)
		bail("pipe");
	for (i = 0; i < rounds && ok; i++)
		ok = survives_lies(listener, own, other, mem, &believed);
	tap_ok(ok && believed > rounds / 2,
	       "a lying peer breaks only its own connection, round %u, %u believed",
	       i, believed);
	ok = ok && survives_unsteadiness(listener, own, &busy);
	tap_ok(ok, "a directory that is always about to change is none");
	tap_ok(busy, "while it is looked at, others are served");
	tap_ok(ok && survives_silence(listener, own, other, &served),
	       "a peer that does not answer is gone after a while");
	tap_ok(served, "meanwhile others are served");
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close_pair(own, other);
	peer_end();
	return tap_end();
}
