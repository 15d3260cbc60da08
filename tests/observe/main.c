// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What an administrator sees of a device is true: counters count what was
 * done, the resources of a process are listed with their state, debugfs shows
 * each queue pair, and tracepoints tell the story of a request.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "observe.h"
#include "tap.h"

struct endpoint_options impatient_options(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);

	options.timeout = 10;
	options.retry_count = 2;
	options.rnr_retry = 3;
	return options;
}

void request(struct setup *setup, uint64_t id, enum ibv_wr_opcode opcode,
	     uint32_t bytes)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, bytes);
	struct ibv_send_wr wr = send_wr(id, opcode, &sge, 1);

	if (opcode_is_atomic(opcode)) {
		wr.wr.atomic.remote_addr = (setup->b_mem.rdma_addr + 7) & ~7UL;
		wr.wr.atomic.rkey = setup->b_mem.mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (opcode_has_remote(opcode)) {
		wr.wr.rdma.remote_addr = setup->b_mem.rdma_addr;
		if (opcode == IBV_WR_ATOMIC_WRITE)
			wr.wr.rdma.remote_addr += -wr.wr.rdma.remote_addr % 8;
		wr.wr.rdma.rkey = setup->b_mem.mr->rkey;
	}
	post_send(&setup->a, &wr);
}

bool request_ends(struct setup *setup, enum ibv_wr_opcode opcode,
		  uint32_t bytes, enum ibv_wc_status status)
{
	request(setup, 1, opcode, bytes);
	return cq_expect(setup->a.send_cq, 1, status);
}

void receive(struct setup *setup, uint64_t id)
{
	struct ibv_sge sge = region_sge(&setup->b_mem, RECEIVE_OFFSET,
					RECEIVE_BYTES);

	post_recv(&setup->b, id, &sge, 1);
}

bool exchange(struct setup *setup, enum ibv_wr_opcode opcode, uint32_t bytes,
	      int count)
{
	int i;

	for (i = 0; i < count; i++) {
		if (opcode_takes_recv(opcode))
			receive(setup, i);
		if (!request_ends(setup, opcode, bytes, IBV_WC_SUCCESS))
			return false;
		if (opcode_takes_recv(opcode) &&
		    !cq_expect(setup->b.recv_cq, i, IBV_WC_SUCCESS))
			return false;
	}
	return true;
}

struct micdv_window *map_window(struct setup *setup, size_t bytes)
{
	struct micdv_window *window;

	window = micdv_map_window(setup->a.qp, setup->b_mem.rdma_addr,
				  setup->b_mem.mr->rkey, bytes,
				  PROT_READ | PROT_WRITE);
	if (!window)
		bail("micdv_map_window: %s", strerror(errno));
	return window;
}

int main(int argc, char **argv)
{
	const char *device, *peer;
	struct setup setup;

	device_names(&argc, argv, &device, &peer);
	device_open(&setup.a_dev, device);
	device_open(&setup.b_dev, peer);
	region_create(&setup.a_mem, setup.a_dev.pd, REGION_BYTES);
	region_create(&setup.b_mem, setup.b_dev.pd, REGION_BYTES);
	test_counters(&setup);
	test_port(&setup);
	test_resources(&setup);
	test_trace(&setup);
	test_timers(&setup);
	test_debugfs(&setup);
	region_destroy(&setup.a_mem);
	region_destroy(&setup.b_mem);
	device_close(&setup.a_dev);
	device_close(&setup.b_dev);
	return tap_end();
}
