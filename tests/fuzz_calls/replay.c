// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Makes a call again, almost as it was.
 */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "calls.h"
#include "fuzz.h"

enum { CHANGES = 3, OBJECTS = 24, METHODS = 12, ATTR_IDS = 20 };

#define DRIVER_NAMESPACE (1 << 12) /* of objects, methods and attributes */

/*
 * What the kernel reads and writes, a part of it for each attribute; all threads'
 * together, so that it changes while the kernel reads it.
 */
static uint8_t scratch[CALL_ATTRS][SCRATCH_BYTES];

/* Handles are small numbers, so a small number is often one. */
static uint64_t some_value(struct random_state *random)
{
	return random_below(random, 2) ? random_below(random, 16) :
					 fuzz_number(random);
}

static uint64_t some_pointer(struct random_state *random)
{
	if (random_below(random, 4))
		return (uintptr_t)scratch[random_below(random, CALL_ATTRS)];
	return fuzz_number(random);
}

static uint16_t some_id(struct random_state *random, unsigned int limit)
{
	return random_below(random, limit) |
	       (random_below(random, 4) ? 0 : DRIVER_NAMESPACE);
}

static void change_word(struct random_state *random, void *start, size_t bytes)
{
	uint32_t value = some_value(random);

	if (bytes >= sizeof(value))
		memcpy((uint8_t *)start +
			       random_below(random, bytes / sizeof(value)) *
				       sizeof(value),
		       &value, sizeof(value));
}

/* --- ioctls ------------------------------------------------------------------- */

static bool is_scratch(uint64_t address)
{
	return address - (uintptr_t)scratch < sizeof(scratch);
}

/* What it points to, or what it is. */
static void change_value(struct random_state *random,
			 struct ib_uverbs_attr *attr)
{
	if (is_scratch(attr->data))
		change_word(random, (void *)(uintptr_t)attr->data, attr->len);
	else
		attr->data = some_value(random);
}

static void set_count(struct ib_uverbs_ioctl_hdr *hdr, unsigned int count)
{
	hdr->num_attrs = count;
	hdr->length = sizeof(*hdr) + count * sizeof(hdr->attrs[0]);
}

static void drop_attr(struct ib_uverbs_ioctl_hdr *hdr, unsigned int which)
{
	hdr->attrs[which] = hdr->attrs[hdr->num_attrs - 1];
	set_count(hdr, hdr->num_attrs - 1);
}

static void repeat_attr(struct random_state *random,
			struct ib_uverbs_ioctl_hdr *hdr, unsigned int which)
{
	if (hdr->num_attrs == CALL_ATTRS)
		return;
	hdr->attrs[hdr->num_attrs] = hdr->attrs[which];
	if (random_below(random, 2))
		hdr->attrs[hdr->num_attrs].attr_id = some_id(random, ATTR_IDS);
	set_count(hdr, hdr->num_attrs + 1);
}

static void change_header(struct random_state *random,
			  struct ib_uverbs_ioctl_hdr *hdr)
{
	switch (random_below(random, 5)) {
	case 0:
		hdr->object_id = some_id(random, OBJECTS);
		break;
	case 1:
		hdr->method_id = some_id(random, METHODS);
		break;
	case 2:
		hdr->num_attrs = random_below(random, CALL_ATTRS);
		break;
	case 3:
		hdr->length = fuzz_number(random) % CALL_BYTES;
		break;
	default:
		hdr->driver_id = fuzz_number(random);
		break;
	}
}

static void change_ioctl(struct random_state *random,
			 struct ib_uverbs_ioctl_hdr *hdr)
{
	unsigned int which;
	struct ib_uverbs_attr *attr;

	if (!hdr->num_attrs || !random_below(random, 12)) {
		change_header(random, hdr);
		return;
	}
	which = random_below(random, hdr->num_attrs);
	attr = &hdr->attrs[which];
	switch (random_below(random, 16)) {
	case 0:
		drop_attr(hdr, which);
		break;
	case 1:
		repeat_attr(random, hdr, which);
		break;
	case 2:
		attr->attr_id = some_id(random, ATTR_IDS);
		break;
	case 3:
		attr->len = fuzz_number(random);
		break;
	case 4:
		attr->flags = random_below(random, 4);
		break;
	case 5:
		attr->attr_data.reserved = random_below(random, 8);
		break;
	case 6:
		attr->data = some_pointer(random);
		break;
	default:
		change_value(random, attr);
		break;
	}
}

static bool replay_ioctl(struct random_state *random, int fd,
			 const struct call *call, unsigned int changes)
{
	static _Thread_local uint64_t space[CALL_BYTES / sizeof(uint64_t) * 2];
	struct ib_uverbs_ioctl_hdr *hdr = (void *)space;
	unsigned int i;

	memcpy(hdr, call->words, call->length);
	for (i = 0; i < hdr->num_attrs; i++) {
		if (!call->payload_bytes[i])
			continue;
		memcpy(scratch[i], call->payloads[i], call->payload_bytes[i]);
		hdr->attrs[i].data = (uintptr_t)scratch[i];
	}
	while (changes--)
		change_ioctl(random, hdr);
	return !ioctl(fd, RDMA_VERBS_IOCTL, hdr);
}

/* --- writes ------------------------------------------------------------------- */

/* Its second word of 64 bits says where the response goes, if there is one. */
static void set_response(uint64_t *words)
{
	const struct ib_uverbs_cmd_hdr *hdr = (void *)words;

	if (hdr->out_words)
		words[1] = (uintptr_t)scratch;
}

static size_t change_write(struct random_state *random, uint64_t *words,
			   size_t length)
{
	struct ib_uverbs_cmd_hdr *hdr = (void *)words;

	switch (random_below(random, 16)) {
	case 0:
		hdr->command = (hdr->command &
				IB_USER_VERBS_CMD_FLAG_EXTENDED) |
			       random_below(random, 70);
		break;
	case 1:
		hdr->in_words = random_below(random, 64);
		break;
	case 2:
		hdr->out_words = random_below(random, 64);
		break;
	case 3:
		words[1] = some_pointer(random);
		break;
	case 4:
		return fuzz_number(random) % CALL_BYTES;
	default:
		change_word(random, hdr + 1, length - sizeof(*hdr));
		break;
	}
	return length;
}

static const void *payload_of(const struct call *call, uint16_t id,
			      size_t *bytes)
{
	const struct ib_uverbs_ioctl_hdr *hdr = (void *)call->words;
	const struct ib_uverbs_attr *attr = find_attr(hdr, id);

	*bytes = attr ? call->payload_bytes[attr - hdr->attrs] : 0;
	return attr ? call->payloads[attr - hdr->attrs] : NULL;
}

static size_t words_in(const struct call *call, uint16_t id, size_t size)
{
	size_t bytes;

	payload_of(call, id, &bytes);
	return bytes / size;
}

/* The same command, as it is written. Returns its length. */
static size_t make_write(const struct call *call, uint64_t *words)
{
	const struct ib_uverbs_ioctl_hdr *ioctl_hdr = (void *)call->words;
	struct ib_uverbs_cmd_hdr *hdr = (void *)words;
	struct ib_uverbs_ex_cmd_hdr *ex = (void *)(hdr + 1);
	uint8_t *to = (uint8_t *)(hdr + 1);
	size_t core, own, size = sizeof(uint32_t);
	const void *from;

	hdr->command = find_attr(ioctl_hdr, UVERBS_ATTR_WRITE_CMD)->data;
	if (hdr->command & IB_USER_VERBS_CMD_FLAG_EXTENDED) {
		size = sizeof(uint64_t);
		to = (uint8_t *)(ex + 1);
		ex->provider_in_words = words_in(call, UVERBS_ATTR_UHW_IN,
						 size);
		ex->provider_out_words = words_in(call, UVERBS_ATTR_UHW_OUT,
						  size);
	}
	from = payload_of(call, UVERBS_ATTR_CORE_IN, &core);
	if (from)
		memcpy(to, from, core);
	from = payload_of(call, UVERBS_ATTR_UHW_IN, &own);
	if (from)
		memcpy(to + core, from, own);
	hdr->in_words = core / size;
	hdr->out_words = words_in(call, UVERBS_ATTR_CORE_OUT, size);
	if (size == sizeof(uint32_t)) {
		hdr->in_words = (sizeof(*hdr) + core + own) / size;
		hdr->out_words += words_in(call, UVERBS_ATTR_UHW_OUT, size);
	}
	set_response(words);
	return to + core + own - (uint8_t *)words;
}

static bool replay_write(struct random_state *random, int fd,
			 const struct call *call, unsigned int changes)
{
	/* all of the payloads, should the command have so many */
	uint64_t
		words[(CALL_BYTES + 2 * PAYLOAD_BYTES) / sizeof(uint64_t)] = {};
	size_t length = make_write(call, words);

	while (changes-- && length >= sizeof(struct ib_uverbs_cmd_hdr))
		length = change_write(random, words, length);
	return write(fd, words, length) > 0;
}

int replay(struct random_state *random, int fd, const struct call *call)
{
	const struct ib_uverbs_ioctl_hdr *hdr = (void *)call->words;
	unsigned int changes = random_below(random, CHANGES + 1);

	if (is_invoke_write(hdr) && find_attr(hdr, UVERBS_ATTR_WRITE_CMD) &&
	    random_below(random, 2)) {
		if (!replay_write(random, fd, call, changes))
			return -1;
		return changes ? GOAL_CHANGED_WRITES : GOAL_WRITES;
	}
	if (!replay_ioctl(random, fd, call, changes))
		return -1;
	return changes ? GOAL_CHANGED_IOCTLS : GOAL_IOCTLS;
}
