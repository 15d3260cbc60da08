// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Random system calls on the files of a context: uverbs ioctls and writes with
 * random and almost valid arguments, doorbells and mappings.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rdma/ib_user_verbs.h>
#include <rdma/mic-abi.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "endpoint.h"
#include "fuzz.h"
#include "memory.h"

enum { ATTRS = 12, PAYLOAD_WORDS = 64, BUFFER_BYTES = 4096 };

static uint8_t buffer[BUFFER_BYTES];

static uint64_t some_pointer(struct random_state *random)
{
	if (random_below(random, 8))
		return (uintptr_t)buffer;
	return fuzz_number(random);
}

static void fuzz_ioctl(struct random_state *random, int fd)
{
	uint64_t space[(sizeof(struct ib_uverbs_ioctl_hdr) +
			ATTRS * sizeof(struct ib_uverbs_attr)) /
		       sizeof(uint64_t)] = {};
	struct ib_uverbs_ioctl_hdr *hdr = (void *)space;
	unsigned int i, n = random_below(random, ATTRS);

	hdr->length = sizeof(*hdr) + n * sizeof(hdr->attrs[0]);
	hdr->object_id = random_below(random, 24);
	hdr->method_id = random_below(random, 12) |
			 (random_below(random, 8) ? 0 : 1 << 12);
	hdr->num_attrs = n;
	hdr->driver_id = random_below(random, 8) ? MIC_DRIVER_ID :
						   fuzz_number(random);
	for (i = 0; i < n; i++) {
		hdr->attrs[i].attr_id =
			random_below(random, 2) ?
				i :
				random_below(random, 20) |
					(random_below(random, 4) ? 0 : 1 << 12);
		hdr->attrs[i].len = fuzz_number(random) % BUFFER_BYTES;
		hdr->attrs[i].flags = random_below(random, 2);
		hdr->attrs[i].data = random_below(random, 2) ?
					     some_pointer(random) :
					     random_below(random, 16);
	}
	ioctl(fd, RDMA_VERBS_IOCTL, hdr);
}

/* Handles are small numbers, so a small number is often one. */
static void fuzz_write(struct random_state *random, int fd)
{
	uint32_t payload[2 + 4 + PAYLOAD_WORDS];
	struct ib_uverbs_cmd_hdr *hdr = (void *)payload;
	unsigned int i, words = random_below(random, PAYLOAD_WORDS);
	bool extended = !random_below(random, 3);

	for (i = 2; i < 2 + 4 + PAYLOAD_WORDS; i++)
		payload[i] = random_below(random, 2) ?
				     random_below(random, 16) :
				     fuzz_number(random);
	hdr->command = random_below(random, 70);
	hdr->in_words = words + 2;
	hdr->out_words = random_below(random, 64);
	if (extended) {
		struct ib_uverbs_ex_cmd_hdr *ex = (void *)(hdr + 1);

		hdr->command |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
		hdr->in_words = words / 2;
		ex->response = some_pointer(random);
		ex->provider_in_words = random_below(random, 4);
		ex->provider_out_words = random_below(random, 16);
		ex->cmd_hdr_reserved = 0;
		if (write(fd, payload,
			  24 + (hdr->in_words + ex->provider_in_words) * 8) < 0)
			return;
		return;
	}
	/* most commands begin with where the response goes */
	memcpy(&payload[2], &(uint64_t){ some_pointer(random) }, 8);
	if (write(fd, payload, hdr->in_words * 4) < 0)
		return;
}

static void fuzz_doorbell(struct random_state *random, int fd)
{
	size_t length = (1 + random_below(random, 64)) * PAGE_BYTES;
	void *map;

	if (random_below(random, 2)) {
		ioctl(fd,
		      random_below(random, 4) ? MIC_IOC_DOORBELL :
						fuzz_number(random),
		      fuzz_number(random));
		return;
	}
	map = mmap(NULL, length, PROT_READ | PROT_WRITE,
		   random_below(random, 4) ? MAP_SHARED : MAP_PRIVATE, fd,
		   (fuzz_number(random) % 256) * PAGE_BYTES);
	if (map == MAP_FAILED)
		return;
	((volatile uint8_t *)map)[random_below(random, length)] = 0xff;
	munmap(map, length);
}

static void calls(struct random_state *random, unsigned int steps)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	struct device dev;
	int cmd_fd, doorbell_fd;

	device_open(&dev, fuzz_device);
	pair_create(&a, &dev, &b, &dev, &options);
	cmd_fd = dev.ctx->cmd_fd;
	doorbell_fd = fuzz_doorbell_fd();
	if (doorbell_fd < 0)
		exit(1);
	while (steps--) {
		switch (random_below(random, 3)) {
		case 0:
			fuzz_ioctl(random, cmd_fd);
			break;
		case 1:
			fuzz_write(random, cmd_fd);
			break;
		default:
			fuzz_doorbell(random, doorbell_fd);
			break;
		}
	}
	/* what is left is for the kernel to clean up */
	_exit(0);
}

int main(int argc, char **argv)
{
	return fuzz_run(argc, argv, calls, 20000, FUZZ_MAY_CRASH);
}
