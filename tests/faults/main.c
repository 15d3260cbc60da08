// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What goes wrong goes wrong by the book: for each operation and each fault
 * the completion on either side, the state of both queue pairs, the flushed
 * requests, the events, how often it was tried, and memory that stays as it was.
 * After each case a connection between the same processes still works. With
 * "short" each fault is that of one operation, of each in turn, over RC and every
 * third time over the others, and nothing else is tried.
 */
#include <string.h>

#include "event.h"
#include "faults.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

/* In one list, so that what follows the request waits behind it. */
static bool post_fault(struct scene *scene)
{
	struct setup *setup = scene->setup;
	struct ibv_sge late = region_sge(&setup->a_mem, GOOD_OFFSET, BAD_BYTES);
	struct ibv_send_wr wr[3];
	int error;

	wr[0] = scene_request(scene, BAD_ID);
	wr[1] = scene_send(scene, LATE_WRITE_ID, IBV_WR_RDMA_WRITE, &late);
	wr[1].wr.rdma.remote_addr = setup->b_mem.rdma_addr + LATE_OFFSET;
	wr[1].wr.rdma.rkey = setup->b_mem.mr->rkey;
	wr[1].send_flags = 0;
	wr[2] = scene_send(scene, LATE_SEND_ID, IBV_WR_SEND, &late);
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	error = try_post_send(&scene->a, &wr[0]);
	return check(!error, "posting fails: %s", strerror(error));
}

static void remember_peer(struct scene *scene)
{
	if (scene->b.qp)
		scene->peer_state = endpoint_state(&scene->b);
}

/* Some faults are of a receive, some of a peer that had receives. */
static void arrange(struct scene *scene, const struct fault *fault)
{
	bool of_peer = fault_outcome(fault, scene->service)->receive ==
		       RECEIVE_UNTOUCHED;

	if (fault->arrange && !of_peer)
		fault->arrange(scene);
	scene_post_receives(scene);
	if (fault->arrange && of_peer)
		fault->arrange(scene);
	remember_peer(scene);
}

/* What was in order so far is not when the rest of the message comes. */
static bool arrange_midway(struct scene *scene, const struct fault *fault)
{
	if (!message_begins(scene))
		return false;
	fault->arrange(scene);
	remember_peer(scene);
	return true;
}

static bool carry_out(struct scene *scene, const struct fault_table *table,
		      const struct fault *fault)
{
	if (table->midway)
		scene_post_receives(scene);
	else
		arrange(scene, fault);
	if (!post_fault(scene) ||
	    (table->midway && !arrange_midway(scene, fault)))
		return false;
	if (table->is_long)
		message_goes_on(scene);
	return check_outcome(scene, fault);
}

static bool run_fault(struct setup *setup, struct neighbours *neighbours,
		      const struct fault_table *table,
		      const struct fault *fault, enum service service,
		      enum ibv_wr_opcode opcode)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct scene scene;
	bool ok;

	if (fault->options)
		fault->options(&options);
	scene_open(&scene, setup, service, opcode, &options);
	scene.neighbours = neighbours;
	scene.element = table->element;
	if (table->is_long)
		message_open(&scene);
	if (opcode == IBV_WR_SEND_WITH_INV && service != OVER_XRC)
		window_open(&scene);
	retries_begin(&scene, fault);
	ok = scene_works(&scene, GOOD_ID) && carry_out(&scene, table, fault) &&
	     retries_end(&scene, fault) &&
	     (!scene.window ||
	      window_check(&scene, fault_outcome(fault, service))) &&
	     (!scene.afterwards || scene.afterwards(&scene));
	scene_close(&scene);
	return neighbours_work(neighbours) && ok;
}

static bool applies(const struct fault *fault, enum service service,
		    enum ibv_wr_opcode opcode)
{
	const struct outcome *outcome = fault_outcome(fault, service);

	if (!(fault->opcodes & BIT(opcode)) || !service_has(service, opcode))
		return false;
	/* a shared queue is nothing to those that take no receive */
	if ((service == OVER_SRQ || service == OVER_UC_SRQ) &&
	    !opcode_takes_recv(opcode))
		return false;
	/* a target binds no windows, so no key is one that can be invalidated */
	return outcome->status != IBV_WC_SUCCESS ||
	       outcome->receive != RECEIVE_STAYS || service != OVER_XRC ||
	       opcode != IBV_WR_SEND_WITH_INV;
}

/* Where not all are tried: over each of the services but RC every third. */
static bool is_left_out(unsigned int fault, enum service service)
{
	return service != OVER_RC && (fault + service) % 3;
}

/* With @brief one operation of each fault, of each in turn. */
static void run_table(struct setup *setup, struct neighbours *neighbours,
		      const struct fault_table *table, enum service service,
		      bool brief)
{
	const struct fault *fault;
	unsigned int i, k;

	for (i = 0; i < table->count; i++) {
		fault = &table->faults[i];
		if (brief && is_left_out(i, service))
			continue;
		for (k = 0; k < opcode_count; k++) {
			enum ibv_wr_opcode opcode =
				opcodes[(i + k) % opcode_count];

			if (!applies(fault, service, opcode))
				continue;
			tap_ok(run_fault(setup, neighbours, table, fault,
					 service, opcode),
			       "%s, %s: %s%s", service_name(service),
			       opcode_name(opcode), fault->name,
			       table->where ? table->where : "");
			if (brief)
				break;
		}
	}
}

static void run_faults(struct setup *setup, struct neighbours *neighbours,
		       bool brief)
{
	static const struct fault_table *const tables[] = {
		&path_faults,	      &second_element_faults,
		&last_element_faults, &key_faults,
		&xrc_faults,	      &long_faults,
		&midway_faults,
	};
	unsigned int i, service;

	for (service = 0; service < SERVICES; service++)
		for (i = 0; i < COUNT(tables); i++)
			if (tables[i]->services & BIT(service))
				run_table(setup, neighbours, tables[i], service,
					  brief);
}

int main(int argc, char **argv)
{
	struct neighbours neighbours;
	struct setup setup;
	bool brief;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	brief = argc == 2 && !strcmp(argv[1], "short");
	events_prepare(setup.a_dev.ctx);
	events_prepare(setup.b_dev.ctx);
	neighbours_open(&neighbours, &setup);
	run_faults(&setup, &neighbours, brief);
	if (!brief) {
		run_datagrams(&setup, &neighbours);
		run_full(&setup, &neighbours);
		run_refused(&setup, &neighbours);
		run_alone(&setup, &neighbours);
		run_broken(&setup, &neighbours);
		run_ends(&setup, &neighbours);
	}
	neighbours_close(&neighbours);
	setup_close(&setup);
	return tap_end();
}
