// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Stands between libibverbs and the C library, and keeps the ioctls of each
 * command as they are made.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "calls.h"

enum { COMMANDS = 160, KEPT = 3 };

/* The last calls of one. */
struct command {
	uint64_t key;
	unsigned int count;
	struct call calls[KEPT];
};

bool recording;

static struct command commands[COMMANDS];
static unsigned int command_count;

unsigned int commands_kept(void)
{
	return command_count;
}

const struct call *some_call(struct random_state *random)
{
	struct command *command =
		&commands[random_below(random, command_count)];
	unsigned int kept = command->count < KEPT ? command->count : KEPT;

	return &command->calls[random_below(random, kept)];
}

bool is_invoke_write(const struct ib_uverbs_ioctl_hdr *hdr)
{
	return hdr->object_id == UVERBS_OBJECT_DEVICE &&
	       hdr->method_id == UVERBS_METHOD_INVOKE_WRITE;
}

const struct ib_uverbs_attr *find_attr(const struct ib_uverbs_ioctl_hdr *hdr,
				       uint16_t id)
{
	unsigned int i;

	for (i = 0; i < hdr->num_attrs; i++)
		if (hdr->attrs[i].attr_id == id)
			return &hdr->attrs[i];
	return NULL;
}

/* Where to keep a call, or NULL. */
static struct call *place_for(uint64_t key)
{
	unsigned int i = 0;

	while (i < command_count && commands[i].key != key)
		i++;
	if (i == COMMANDS)
		return NULL;
	if (i == command_count) {
		command_count++;
		commands[i].key = key;
	}
	return &commands[i].calls[commands[i].count++ % KEPT];
}

/* What an attribute points to, if it does: that depends on the command. */
static uint16_t read_payload(const struct ib_uverbs_attr *attr, void *payload)
{
	struct iovec to = {
		.iov_base = payload,
		.iov_len = attr->len < PAYLOAD_BYTES ? attr->len :
						       PAYLOAD_BYTES,
	};
	struct iovec from = {
		.iov_base = (void *)(uintptr_t)attr->data,
		.iov_len = to.iov_len,
	};

	if (!attr->len || process_vm_readv(getpid(), &to, 1, &from, 1, 0) !=
				  (ssize_t)to.iov_len)
		return 0;
	return to.iov_len;
}

/*
 * Commands differ by object and method, by their attributes, and if it is an old
 * one in an ioctl, by its number.
 */
static uint64_t key_of(const struct ib_uverbs_ioctl_hdr *hdr)
{
	uint64_t key = (uint64_t)hdr->object_id << 32 |
		       (uint64_t)hdr->method_id << 8 | hdr->num_attrs;
	const struct ib_uverbs_attr *command = find_attr(hdr,
							 UVERBS_ATTR_WRITE_CMD);

	if (is_invoke_write(hdr) && command)
		key |= 1ULL << 63 | command->data << 40;
	return key;
}

static void keep_ioctl(const struct ib_uverbs_ioctl_hdr *hdr)
{
	struct call *call;
	unsigned int i;

	if (hdr->length > CALL_BYTES || hdr->num_attrs > CALL_ATTRS)
		return;
	call = place_for(key_of(hdr));
	if (!call)
		return;
	call->length = hdr->length;
	memcpy(call->words, hdr, hdr->length);
	for (i = 0; i < hdr->num_attrs; i++)
		call->payload_bytes[i] = read_payload(&hdr->attrs[i],
						      call->payloads[i]);
}

int ioctl(int fd, unsigned long request, ...)
{
	void *argument;
	va_list list;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (recording && request == RDMA_VERBS_IOCTL)
		keep_ioctl(argument);
	return syscall(SYS_ioctl, fd, request, argument);
}
