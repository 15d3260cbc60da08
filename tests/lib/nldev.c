// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "nldev.h"
#include "tap.h"

enum { MESSAGE_BYTES = 512, ANSWER_BYTES = 32768, PATIENCE_S = 60, PORT = 1 };

union message {
	struct nlmsghdr header;
	char bytes[MESSAGE_BYTES];
};

static int netlink = -1;
static uint32_t sequence;

static void message_begin(union message *message, int command, int flags)
{
	memset(message, 0, sizeof(*message));
	message->header.nlmsg_len = NLMSG_HDRLEN;
	message->header.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
	message->header.nlmsg_flags = NLM_F_REQUEST | flags;
	message->header.nlmsg_seq = ++sequence;
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

static void message_add_number(union message *message, int type,
			       uint32_t number)
{
	message_add(message, type, &number, sizeof(number));
}

/* Ask for something to be done: 0 or an error number. Other answers may come before. */
static int ask(union message *message)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[MESSAGE_BYTES];
	} answer;

	message->header.nlmsg_flags |= NLM_F_ACK;
	if (send(netlink, message, message->header.nlmsg_len, 0) < 0)
		return errno;
	do {
		if (recv(netlink, &answer, sizeof(answer), 0) < 0)
			return errno;
	} while (answer.header.nlmsg_type != NLMSG_ERROR ||
		 answer.header.nlmsg_seq != message->header.nlmsg_seq);
	return -answer.error.error;
}

/* One device of a list: is it @name, and its index. */
static bool is_named(const struct nlmsghdr *header, const char *name,
		     uint32_t *index)
{
	const char *at = (const char *)header + NLMSG_HDRLEN;
	const char *end = (const char *)header + header->nlmsg_len;
	struct nlattr attribute;
	bool named = false;

	for (; at + NLA_HDRLEN <= end; at += NLA_ALIGN(attribute.nla_len)) {
		memcpy(&attribute, at, sizeof(attribute));
		if (attribute.nla_len < NLA_HDRLEN)
			break;
		if (attribute.nla_type == RDMA_NLDEV_ATTR_DEV_INDEX)
			memcpy(index, at + NLA_HDRLEN, sizeof(*index));
		if (attribute.nla_type == RDMA_NLDEV_ATTR_DEV_NAME)
			named = !strcmp(at + NLA_HDRLEN, name);
	}
	return named;
}

bool nldev_find(const char *name, uint32_t *found)
{
	static char list[ANSWER_BYTES] __attribute__((aligned(NLMSG_ALIGNTO)));
	const struct nlmsghdr *header;
	union message message;
	uint32_t index = 0;
	bool there = false;
	ssize_t length;

	message_begin(&message, RDMA_NLDEV_CMD_GET, NLM_F_DUMP);
	if (send(netlink, &message, message.header.nlmsg_len, 0) < 0)
		return false;
	while ((length = recv(netlink, list, sizeof(list), 0)) > 0) {
		header = (const void *)list;
		for (; NLMSG_OK(header, length);
		     header = NLMSG_NEXT(header, length)) {
			if (header->nlmsg_seq != message.header.nlmsg_seq)
				continue;
			if (header->nlmsg_type == NLMSG_DONE ||
			    header->nlmsg_type == NLMSG_ERROR)
				return there;
			if (!is_named(header, name, &index))
				continue;
			there = true;
			*found = index;
		}
	}
	return false;
}

int nldev_add(const char *name, const char *netdev)
{
	union message message;

	message_begin(&message, RDMA_NLDEV_CMD_NEWLINK, 0);
	message_add_text(&message, RDMA_NLDEV_ATTR_DEV_NAME, name);
	message_add_text(&message, RDMA_NLDEV_ATTR_LINK_TYPE, "mic");
	message_add_text(&message, RDMA_NLDEV_ATTR_NDEV_NAME, netdev);
	return ask(&message);
}

int nldev_delete(const char *name)
{
	union message message;
	uint32_t index;

	if (!nldev_find(name, &index))
		return ENODEV;
	message_begin(&message, RDMA_NLDEV_CMD_DELLINK, 0);
	message_add_number(&message, RDMA_NLDEV_ATTR_DEV_INDEX, index);
	return ask(&message);
}

static void begin_counter(union message *message, uint32_t index, uint32_t mode)
{
	message_begin(message, RDMA_NLDEV_CMD_STAT_SET, 0);
	message_add_number(message, RDMA_NLDEV_ATTR_DEV_INDEX, index);
	message_add_number(message, RDMA_NLDEV_ATTR_PORT_INDEX, PORT);
	message_add_number(message, RDMA_NLDEV_ATTR_STAT_RES,
			   RDMA_NLDEV_ATTR_RES_QP);
	message_add_number(message, RDMA_NLDEV_ATTR_STAT_MODE, mode);
}

int nldev_bind_counter(uint32_t index, uint32_t qpn)
{
	union message message;

	begin_counter(&message, index, RDMA_COUNTER_MODE_MANUAL);
	message_add_number(&message, RDMA_NLDEV_ATTR_RES_LQPN, qpn);
	return ask(&message);
}

int nldev_set_auto(uint32_t index, enum nldev_auto by)
{
	union message message;

	begin_counter(&message, index, RDMA_COUNTER_MODE_AUTO);
	message_add_number(&message, RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, by);
	return ask(&message);
}

void nldev_open(void)
{
	struct timeval patience = { .tv_sec = PATIENCE_S };

	netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (netlink < 0 || setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO,
				      &patience, sizeof(patience)))
		bail("netlink: %s", strerror(errno));
}

void nldev_close(void)
{
	close(netlink);
}
