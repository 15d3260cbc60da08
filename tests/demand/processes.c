// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Other processes that write to such memory, or own it, and are killed or become
 * other programs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "demand.h"
#include "event.h"
#include "process.h"
#include "proxy.h"
#include "tap.h"
#include "work.h"

enum { ROUNDS = 10, LIST = 32, PIECE_BYTES = 16384 };

/* Started before a device is opened, they wait for the name of theirs. */
static struct process writers[ROUNDS];
static struct process changer;

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

/* That who writes is killed says nothing of the memory it writes to, of either kind. */
bool demand_killed(struct stage *stage)
{
	/* another machine's has the one kind only */
	unsigned int kinds = proxy_is_name(stage->setup->b_dev.name) ? 1 : 2;
	struct demand demand[2];
	unsigned int i;
	bool good;

	good = demand_create(&demand[0], stage, false);
	if (kinds == 2)
		good = demand_create_huge(&demand[1], stage) && good;
	events_drop(stage->setup->b_dev.ctx);
	for (i = 0; i < ROUNDS && good; i++)
		good = check(writer_killed(stage, &demand[i % kinds],
					   &writers[i], i % 7),
			     "in round %u", i);
	if (kinds == 2)
		good = demand_destroy(&demand[1]) && good;
	return demand_destroy(&demand[0]) && good;
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

bool demand_orphaned(struct stage *stage)
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

void processes_start(void)
{
	unsigned int i;

	for (i = 0; i < ROUNDS; i++)
		process_start(&writers[i], write_on, NULL);
	process_start(&changer, become_another, NULL);
}
