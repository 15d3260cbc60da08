// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A device that comes and goes, as "rdma link add" and "rdma link delete" have
 * it. That asks by itself, not through the tool: what fails are the allocations
 * of the thread that asks.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "injection.h"
#include "tap.h"

#define LINK_NAME "injected0"
#define LINK_PATH "/sys/class/infiniband/" LINK_NAME

enum { MESSAGE_BYTES = 512, ANSWER_BYTES = 32768, PATIENCE_S = 60 };

union message {
	struct nlmsghdr header;
	char bytes[MESSAGE_BYTES];
};

static int netlink = -1;

static void message_begin(union message *message, int command, int flags)
{
	memset(message, 0, sizeof(*message));
	message->header.nlmsg_len = NLMSG_HDRLEN;
	message->header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
	message->header.nlmsg_flags = NLM_F_REQUEST | flags;
}

static void message_add(union message *message, int type, const void *data,
			size_t length)
{
	struct nlattr attribute = { .nla_len = NLA_HDRLEN + length,
				    .nla_type = type };
	char *end = message->bytes + message->header.nlmsg_len;

	memcpy(end, &attribute, sizeof(attribute));
	memcpy(end + NLA_HDRLEN, data, length);
	message->header.nlmsg_len += NLA_ALIGN(attribute.nla_len);
}

static void message_add_text(union message *message, int type, const char *text)
{
	message_add(message, type, text, strlen(text) + 1);
}

/* Ask for something to be done: 0 or an error number. */
static int ask(union message *message)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[MESSAGE_BYTES];
	} answer;

	message->header.nlmsg_flags |= NLM_F_ACK;
	if (send(netlink, message, message->header.nlmsg_len, 0) < 0 ||
	    recv(netlink, &answer, sizeof(answer), 0) < 0)
		return errno;
	return -answer.error.error;
}

/* One device of a list: if it is ours, its index. */
static bool is_ours(const struct nlmsghdr *header, uint32_t *index)
{
	const char *at = (const char *)header + NLMSG_HDRLEN;
	const char *end = (const char *)header + header->nlmsg_len;
	struct nlattr attribute;
	bool ours = false;

	for (; at + NLA_HDRLEN <= end; at += NLA_ALIGN(attribute.nla_len)) {
		memcpy(&attribute, at, sizeof(attribute));
		if (attribute.nla_len < NLA_HDRLEN)
			break;
		if (attribute.nla_type == RDMA_NLDEV_ATTR_DEV_INDEX)
			memcpy(index, at + NLA_HDRLEN, sizeof(*index));
		if (attribute.nla_type == RDMA_NLDEV_ATTR_DEV_NAME)
			ours = !strcmp(at + NLA_HDRLEN, LINK_NAME);
	}
	return ours;
}

/* Returns whether there is such a device. */
static bool find_index(uint32_t *found)
{
	static char answer[ANSWER_BYTES]
		__attribute__((aligned(NLMSG_ALIGNTO)));
	const struct nlmsghdr *header;
	union message message;
	uint32_t index = 0;
	bool there = false;
	ssize_t length;

	message_begin(&message, RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	if (send(netlink, &message, message.header.nlmsg_len, 0) < 0)
		return false;
	while ((length = recv(netlink, answer, sizeof(answer), 0)) > 0) {
		header = (const void *)answer;
		for (; NLMSG_OK(header, length);
		     header = NLMSG_NEXT(header, length)) {
			if (header->nlmsg_type == NLMSG_DONE ||
			    header->nlmsg_type == NLMSG_ERROR)
				return there;
			if (!is_ours(header, &index))
				continue;
			there = true;
			*found = index;
		}
	}
	return false;
}

/*
 * The answer may get lost while the device is there; then what should fail has
 * failed, and looking is safe.
 */
static void *add_link(void)
{
	union message message;
	int error;

	message_begin(&message, RDMA_NLDEV_CMD_NEWLINK, 0);
	message_add_text(&message, RDMA_NLDEV_ATTR_DEV_NAME, LINK_NAME);
	message_add_text(&message, RDMA_NLDEV_ATTR_LINK_TYPE, "mic");
	message_add_text(&message, RDMA_NLDEV_ATTR_NDEV_NAME, bench.netdev);
	error = ask(&message);
	return done(error && !access(LINK_PATH, F_OK) ? 0 : error);
}

static int delete_link(void *object)
{
	union message message;
	uint32_t index;

	(void)object;
	if (!find_index(&index))
		return ENODEV;
	message_begin(&message, RDMA_NLDEV_CMD_DELLINK, 0);
	message_add(&message, RDMA_NLDEV_ATTR_DEV_INDEX, &index, sizeof(index));
	return ask(&message);
}

const struct verb link_verbs[] = {
	{ "rdma link add", add_link, delete_link },
	{ NULL, NULL, NULL },
};

void link_verbs_open(void)
{
	struct timeval patience = { .tv_sec = PATIENCE_S };

	netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (netlink < 0 || setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO,
				      &patience, sizeof(patience)))
		bail("netlink: %s", strerror(errno));
}

void link_verbs_close(void)
{
	close(netlink);
}
