// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Verified traffic between two processes, for tests that do something to
 * them or to the devices meanwhile.
 *
 *   traffic [--device NAME] [--peer NAME] [--qps N] [--size BYTES]
 *           [--rounds N] [--churn]
 *
 * Each queue pair goes in rounds: WRITE random bytes to the peer, READ them
 * back, add to a word, SEND them; the peer checks what it receives. With
 * --churn other objects come and go meanwhile. Prints "requester PID",
 * "responder PID", "running". Without --rounds it goes on until SIGTERM.
 *
 *   traffic [--peer NAME] serve PORT
 *
 * is the responder for a traffic --peer ADDRESS:PORT on another machine.
 *
 * Exit status: 0 all went well, 3 the device or the other side is gone, 1
 * something else is wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "device.h"
#include "endpoint.h"
#include "event.h"
#include "memory.h"
#include "pattern.h"
#include "process.h"
#include "tap.h"
#include "work.h"

enum { EXIT_GONE = 3, MAX_QPS = 256, RECEIVES = 8 };

static struct {
	const char *device;
	const char *peer;
	unsigned int qps;
	uint32_t size;
	uint64_t rounds;
	bool churn;
} config = { .device = "mic0", .peer = "mic1", .qps = 8, .size = 65536 };

static volatile sig_atomic_t stopped;

/* One queue pair of either side and its slot of the memory. */
struct lane {
	struct endpoint ep;
	size_t slot;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t seed;
	uint32_t length;
	unsigned int pending;
	uint64_t rounds;
};

struct side {
	struct device dev;
	struct region region;
	struct lane lanes[MAX_QPS];
	struct random_state random;
	int socket;
};

/* What the requester tells the responder before all else. */
struct terms {
	unsigned int qps;
	uint32_t size;
};

/* What the sides tell each other about each lane. */
struct lane_address {
	struct endpoint_address endpoint;
	uint64_t addr;
	uint32_t rkey;
};

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

static void check_config(void)
{
	if (!config.qps || config.qps > MAX_QPS || !config.size)
		bail("bad arguments");
}

static _Noreturn void gone(const char *why)
{
	tap_note("%s", why);
	exit(EXIT_GONE);
}

static void wrong(const char *why)
{
	tap_note("wrong: %s", why);
	exit(1);
}

/* A slot: what is sent or written, what is read back, a word. */
static size_t slot_bytes(void)
{
	return 2 * (size_t)config.size + RECEIVES * (size_t)config.size + 64;
}

static size_t aligned_word(const struct side *side, const struct lane *lane)
{
	uint64_t addr = side->region.rdma_addr + lane->slot;

	return lane->slot + (8 - addr % 8) % 8;
}

#define WORD_BYTES 16U

static bool device_is_gone(struct ibv_context *ctx)
{
	struct ibv_async_event event;
	bool fatal = false;

	while (!ibv_get_async_event(ctx, &event)) {
		fatal |= event.event_type == IBV_EVENT_DEVICE_FATAL;
		ibv_ack_async_event(&event);
	}
	return fatal;
}

static void side_open(struct side *side, const char *name, int socket)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	unsigned int i;

	side->socket = socket;
	random_seed(&side->random, getpid());
	device_open(&side->dev, name);
	events_prepare(side->dev.ctx);
	region_create(&side->region, side->dev.pd, config.qps * slot_bytes());
	options.depth = 16;
	options.timeout = 10;
	for (i = 0; i < config.qps; i++) {
		endpoint_create(&side->lanes[i].ep, &side->dev, &options);
		side->lanes[i].slot = i * slot_bytes();
	}
}

static void side_close(struct side *side)
{
	unsigned int i;

	for (i = 0; i < config.qps; i++)
		endpoint_destroy(&side->lanes[i].ep);
	region_destroy(&side->region);
	device_close(&side->dev);
}

static void exchange_addresses(struct side *side)
{
	struct lane_address address;
	unsigned int i;

	for (i = 0; i < config.qps; i++) {
		struct lane *lane = &side->lanes[i];

		address.endpoint = endpoint_address(&lane->ep);
		address.addr = side->region.rdma_addr +
			       aligned_word(side, lane);
		address.rkey = side->region.mr->rkey;
		if (!message_send(side->socket, &address, sizeof(address)) ||
		    !message_receive(side->socket, &address, sizeof(address)))
			gone("the other side does not answer");
		endpoint_connect(&lane->ep, &address.endpoint);
		lane->remote_addr = address.addr;
		lane->rkey = address.rkey;
	}
}

/* Both sides have connected all their queue pairs. */
static void meet(struct side *side)
{
	char byte = 0;

	if (!message_send(side->socket, &byte, 1) ||
	    !message_receive(side->socket, &byte, 1))
		gone("the other side does not answer");
}

static struct ibv_sge sge_at(const struct side *side, size_t offset,
			     uint32_t length)
{
	return region_sge(&side->region, offset, length);
}

/* --- requester ----------------------------------------------------------- */

enum { WR_WRITE, WR_READ, WR_ADD, WR_SEND, WRS };

static void post_round(struct side *side, struct lane *lane)
{
	size_t word = aligned_word(side, lane), data = word + WORD_BYTES;
	struct ibv_sge out, back, result;
	struct ibv_send_wr wr[WRS];
	int i, error;

	lane->length = 1 + random_below(&side->random, config.size);
	lane->seed = random_next(&side->random);
	memcpy(side->region.addr + data, pattern_bytes(lane->seed, config.size),
	       lane->length);
	out = sge_at(side, data, lane->length);
	back = sge_at(side, data + config.size, lane->length);
	result = sge_at(side, word, 8);
	wr[WR_WRITE] = send_wr(WR_WRITE, IBV_WR_RDMA_WRITE, &out, 1);
	wr[WR_READ] = send_wr(WR_READ, IBV_WR_RDMA_READ, &back, 1);
	wr[WR_ADD] = send_wr(WR_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD, &result, 1);
	wr[WR_SEND] = send_wr(WR_SEND, IBV_WR_SEND_WITH_IMM, &out, 1);
	wr[WR_WRITE].wr.rdma.remote_addr = lane->remote_addr + WORD_BYTES;
	wr[WR_WRITE].wr.rdma.rkey = lane->rkey;
	wr[WR_READ].wr.rdma = wr[WR_WRITE].wr.rdma;
	wr[WR_ADD].wr.atomic.remote_addr = lane->remote_addr;
	wr[WR_ADD].wr.atomic.rkey = lane->rkey;
	wr[WR_ADD].wr.atomic.compare_add = 1;
	wr[WR_SEND].imm_data = htobe32(lane->seed);
	for (i = 0; i + 1 < WRS; i++)
		wr[i].next = &wr[i + 1];
	error = try_post_send(&lane->ep, wr);
	if (error)
		gone("posting fails");
	lane->pending = WRS;
}

static void check_round(const struct side *side, struct lane *lane)
{
	size_t word = aligned_word(side, lane);
	const uint8_t *back = side->region.addr + word + WORD_BYTES +
			      config.size;
	uint64_t value;

	if (memcmp(back, pattern_bytes(lane->seed, config.size), lane->length))
		wrong("a READ brought other bytes than were written");
	memcpy(&value, side->region.addr + word, 8);
	if (value != lane->rounds)
		wrong("an addition was lost or made twice");
	lane->rounds++;
}

static void check_status(const struct ibv_wc *wc)
{
	switch (wc->status) {
	case IBV_WC_SUCCESS:
		return;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_FATAL_ERR:
		gone(ibv_wc_status_str(wc->status));
		break;
	default:
		wrong(ibv_wc_status_str(wc->status));
	}
}

/* Returns whether anything has completed. */
static bool serve_lane(struct lane *lane)
{
	struct ibv_wc wc[WRS];
	int i, count;

	count = ibv_poll_cq(lane->ep.send_cq, WRS, wc);
	if (count < 0)
		gone("ibv_poll_cq fails");
	for (i = 0; i < count; i++) {
		check_status(&wc[i]);
		if (wc[i].wr_id != WRS - lane->pending)
			wrong("completions are out of order");
		lane->pending--;
	}
	return count > 0;
}

/* Objects of each kind come and go; failure means that the device does. */
static void churn(struct side *side)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_ah_attr ah_attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = side->dev.gid,
			.sgid_index = side->dev.gid_index,
			.hop_limit = 1,
		},
	};
	struct endpoint ep;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	struct ibv_pd *pd;

	pd = ibv_alloc_pd(side->dev.ctx);
	if (!pd)
		gone("ibv_alloc_pd fails");
	mr = ibv_reg_mr(pd, side->region.addr, 20000, ACCESS_ALL);
	ah = ibv_create_ah(pd, &ah_attr);
	options.pd = pd;
	if (!mr || !ah || !endpoint_try_create(&ep, &side->dev, &options))
		gone("an object cannot be created");
	endpoint_destroy(&ep);
	ibv_destroy_ah(ah);
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
}

static void check_device(struct side *side)
{
	if (device_is_gone(side->dev.ctx))
		gone("the device is gone");
}

/* Does a lane have to go on? */
static bool wants_more(const struct lane *lane)
{
	return !stopped && (!config.rounds || lane->rounds < config.rounds);
}

static bool run_lane(struct side *side, struct lane *lane, bool *idle)
{
	if (lane->pending && serve_lane(lane)) {
		*idle = false;
		if (!lane->pending)
			check_round(side, lane);
	}
	if (!lane->pending && wants_more(lane)) {
		post_round(side, lane);
		if (config.churn && lane->seed % 16 == 0)
			churn(side);
	}
	return lane->pending > 0;
}

static void run_requester(struct side *side)
{
	uint64_t end = deadline();
	unsigned int round = 0, i;
	bool busy = true, idle;

	while (busy) {
		busy = false;
		idle = true;
		for (i = 0; i < config.qps; i++)
			busy |= run_lane(side, &side->lanes[i], &idle);
		round = idle ? round + 1 : 0;
		if (!idle)
			end = deadline();
		if (round % 64 == 63) {
			check_device(side);
			if (now_ms() > end)
				wrong("no completion comes");
		}
		relax(round);
	}
}

/* --- responder ----------------------------------------------------------- */

static size_t receive_offset(const struct side *side, const struct lane *lane,
			     uint64_t id)
{
	return aligned_word(side, lane) + WORD_BYTES +
	       (2 + id) * (size_t)config.size;
}

static void post_receive(struct side *side, struct lane *lane, uint64_t id)
{
	struct ibv_sge sge = sge_at(side, receive_offset(side, lane, id),
				    config.size);

	if (try_post_recv(&lane->ep, id, &sge, 1))
		gone("posting a receive fails");
}

static void check_receive(struct side *side, struct lane *lane,
			  const struct ibv_wc *wc)
{
	const uint8_t *data = side->region.addr +
			      receive_offset(side, lane, wc->wr_id);

	check_status(wc);
	if (wc->byte_len > config.size ||
	    memcmp(data, pattern_bytes(be32toh(wc->imm_data), config.size),
		   wc->byte_len))
		wrong("a receive got other bytes than were sent");
	post_receive(side, lane, wc->wr_id);
}

/* The requester says "done", or is gone. Returns false while it does not. */
static bool is_done(const struct side *side)
{
	char byte;

	if (!readable_within(side->socket, 0))
		return false;
	if (recv(side->socket, &byte, 1, 0) != 1)
		gone("the requester is gone");
	return true;
}

static void run_responder(struct side *side)
{
	unsigned int round = 0, i;
	struct ibv_wc wc;
	bool idle;

	while (true) {
		idle = true;
		for (i = 0; i < config.qps; i++) {
			if (ibv_poll_cq(side->lanes[i].ep.recv_cq, 1, &wc) <= 0)
				continue;
			check_receive(side, &side->lanes[i], &wc);
			idle = false;
		}
		round = idle ? round + 1 : 0;
		if (round % 64 == 63) {
			if (is_done(side))
				return;
			check_device(side);
		}
		relax(round);
	}
}

/* The responder of these terms says who it is. */
static void accept_terms(int socket)
{
	pid_t pid = getpid();
	struct terms terms;

	if (!message_receive(socket, &terms, sizeof(terms)) ||
	    !message_send(socket, &pid, sizeof(pid)))
		gone("the requester does not say what it wants");
	config.qps = terms.qps;
	config.size = terms.size;
	check_config();
}

static int responder_main(int socket, void *argument)
{
	struct side *side = argument;
	unsigned int i, id;

	/* It has to live on when the requester is killed. */
	prctl(PR_SET_PDEATHSIG, 0);
	signal(SIGTERM, SIG_IGN);
	accept_terms(socket);
	side_open(side, config.peer, socket);
	exchange_addresses(side);
	for (i = 0; i < config.qps; i++)
		for (id = 0; id < RECEIVES; id++)
			post_receive(side, &side->lanes[i], id);
	meet(side);
	run_responder(side);
	side_close(side);
	return 0;
}

static void start_responder(struct process *responder)
{
	struct terms terms = { config.qps, config.size };
	static struct side side;
	pid_t pid;

	if (strchr(config.peer, ':'))
		process_connect(responder, config.peer);
	else
		process_start(responder, responder_main, &side);
	if (!message_send(responder->socket, &terms, sizeof(terms)) ||
	    !message_receive(responder->socket, &pid, sizeof(pid)))
		gone("there is no responder");
	printf("responder %d\n", pid);
	fflush(stdout);
}

/* As an exit status. */
static int end_of_responder(const struct process *responder)
{
	int status;

	if (responder->pid) {
		if (waitpid(responder->pid, &status, 0) != responder->pid)
			wrong("waitpid fails");
		return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_GONE;
	}
	if (!message_receive(responder->socket, &status, sizeof(status)))
		return EXIT_GONE;
	return status;
}

static int requester_main(const struct process *responder)
{
	static struct side side;
	char byte = 0;

	side_open(&side, config.device, responder->socket);
	exchange_addresses(&side);
	meet(&side);
	printf("running\n");
	fflush(stdout);
	run_requester(&side);
	if (!message_send(responder->socket, &byte, 1))
		gone("the responder is gone");
	side_close(&side);
	return end_of_responder(responder);
}

/* Returns the port of one that serves. */
static const char *parse_arguments(int argc, char **argv)
{
	static const struct option options[] = {
		{ "qps", required_argument, NULL, 'q' },
		{ "size", required_argument, NULL, 's' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "churn", no_argument, NULL, 'c' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	device_names(&argc, argv, &config.device, &config.peer);
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 'q')
			config.qps = atoi(optarg);
		else if (option == 's')
			config.size = atoi(optarg);
		else if (option == 'r')
			config.rounds = strtoull(optarg, NULL, 0);
		else if (option == 'c')
			config.churn = true;
		else
			exit(2);
	}
	check_config();
	if (optind + 2 == argc && !strcmp(argv[optind], "serve"))
		return argv[optind + 1];
	if (optind < argc)
		bail("bad arguments");
	return NULL;
}

int main(int argc, char **argv)
{
	const char *port = parse_arguments(argc, argv);
	struct process responder;
	static struct side side;

	if (port)
		process_serve(port, responder_main, &side);
	signal(SIGTERM, on_signal);
	printf("requester %d\n", getpid());
	start_responder(&responder);
	return requester_main(&responder);
}
