// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Objects are listed (rdma resource show) all the time, while they come and go.
 * No list breaks off, and who lists meets none that is gone.
 *
 * usage: listing [--device NAME] [--peer NAME] [MILLISECONDS of each case]
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>

#include "clock.h"
#include "setup.h"
#include "tap.h"

enum { REGION_BYTES = 4096, ANSWER_BYTES = 1 << 16, OBJECTS = 8 };

static unsigned int duration = 1500;
static struct setup setup;
static atomic_bool stop;
static atomic_ulong made;

/* --- the list --------------------------------------------------------------- */

struct request {
	struct nlmsghdr header;
	struct nlattr attr;
	uint32_t index;
};

/* Ask for all objects of a kind; without @command for the devices. */
static void ask(int fd, unsigned int command, uint32_t index)
{
	struct request request = {
		.header = {
			.nlmsg_len = sizeof(request),
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		},
		.attr = {
			.nla_len = sizeof(request.attr) + sizeof(index),
			.nla_type = RDMA_NLDEV_ATTR_DEV_INDEX,
		},
		.index = index,
	};

	if (command == RDMA_NLDEV_CMD_GET)
		request.header.nlmsg_len = sizeof(request.header);
	if (send(fd, &request, request.header.nlmsg_len, 0) < 0)
		bail("netlink: %s", strerror(errno));
}

static const void *find_attr(const struct nlmsghdr *header, int type)
{
	const char *at = (const char *)header + NLMSG_HDRLEN;
	const char *end = (const char *)header + header->nlmsg_len;
	const struct nlattr *attr;

	while (at + sizeof(*attr) <= end) {
		attr = (const struct nlattr *)at;
		if ((attr->nla_type & NLA_TYPE_MASK) == type)
			return at + NLA_HDRLEN;
		at += NLA_ALIGN(attr->nla_len);
	}
	return NULL;
}

/* The device's number, if the message is about it. */
static void look_for(const struct nlmsghdr *header, const char *name,
		     int64_t *index)
{
	const char *found = find_attr(header, RDMA_NLDEV_ATTR_DEV_NAME);
	const uint32_t *number = find_attr(header, RDMA_NLDEV_ATTR_DEV_INDEX);

	if (found && number && !strcmp(found, name))
		*index = *number;
}

/*
 * Take an answer to its end. Returns 0 or an errno value; for a list of devices
 * @index is set to that of @name.
 */
static int take(int fd, const char *name, int64_t *index)
{
	static __thread char answer[ANSWER_BYTES]
		__attribute__((aligned(NLMSG_ALIGNTO)));
	struct nlmsghdr *header;
	ssize_t left;

	for (;;) {
		left = recv(fd, answer, sizeof(answer), 0);
		if (left <= 0)
			return left ? errno : EPIPE;
		for (header = (struct nlmsghdr *)answer; NLMSG_OK(header, left);
		     header = NLMSG_NEXT(header, left)) {
			if (header->nlmsg_type == NLMSG_DONE)
				return -*(int *)NLMSG_DATA(header);
			if (header->nlmsg_type == NLMSG_ERROR)
				return -((struct nlmsgerr *)NLMSG_DATA(header))
						->error;
			if (name)
				look_for(header, name, index);
		}
	}
}

static int open_netlink(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);

	if (fd < 0)
		bail("netlink: %s", strerror(errno));
	return fd;
}

static uint32_t device_index(int fd, const char *name)
{
	int64_t index = -1;

	ask(fd, RDMA_NLDEV_CMD_GET, 0);
	if (take(fd, name, &index) || index < 0)
		bail("%s is not listed", name);
	return index;
}

/* --- what comes and goes ------------------------------------------------------ */

static void *new_cq(void)
{
	return ibv_create_cq(setup.a_dev.ctx, 16, NULL, NULL, 0);
}

static int end_cq(void *cq)
{
	return ibv_destroy_cq(cq);
}

static void *new_qp(void)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint *ep = calloc(1, sizeof(*ep));

	options.depth = 4;
	if (ep)
		endpoint_create(ep, &setup.a_dev, &options);
	return ep;
}

static int end_qp(void *object)
{
	endpoint_destroy(object);
	free(object);
	return 0;
}

static void *new_srq(void)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 16, .max_sge = 1 },
	};

	return ibv_create_srq(setup.a_dev.pd, &attr);
}

static int end_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *new_mr(void)
{
	return ibv_reg_mr(setup.a_dev.pd, setup.a_mem.addr, REGION_BYTES,
			  IBV_ACCESS_LOCAL_WRITE);
}

static int end_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static const struct kind {
	const char *name;
	unsigned int command;
	void *(*create)(void);
	int (*destroy)(void *object);
} kinds[] = {
	{ "completion queues", RDMA_NLDEV_CMD_RES_CQ_GET, new_cq, end_cq },
	{ "queue pairs", RDMA_NLDEV_CMD_RES_QP_GET, new_qp, end_qp },
	{ "shared receive queues", RDMA_NLDEV_CMD_RES_SRQ_GET, new_srq,
	  end_srq },
	{ "memory regions", RDMA_NLDEV_CMD_RES_MR_GET, new_mr, end_mr },
};

/* Some at a time, so that the list is never short. */
static void *come_and_go(void *argument)
{
	const struct kind *kind = argument;
	void *objects[OBJECTS] = { NULL };
	unsigned int i;

	for (i = 0; !atomic_load(&stop) || i % OBJECTS; i++) {
		void **object = &objects[i % OBJECTS];

		if (*object && kind->destroy(*object))
			bail("destroying fails");
		*object = kind->create();
		if (!*object)
			bail("creating fails: %s", strerror(errno));
		atomic_fetch_add(&made, 1);
	}
	for (i = 0; i < OBJECTS; i++)
		if (objects[i] && kind->destroy(objects[i]))
			bail("destroying fails");
	return NULL;
}

static bool lists(const struct kind *kind, int fd, uint32_t index)
{
	uint64_t end = now_ms() + duration, rounds = 0;
	pthread_t thread;
	int err = 0;

	atomic_store(&stop, false);
	atomic_store(&made, 0);
	if (pthread_create(&thread, NULL, come_and_go, (void *)kind))
		bail("pthread_create fails");
	while (!err && (now_ms() < end || atomic_load(&made) < 2 * OBJECTS)) {
		ask(fd, kind->command, index);
		err = take(fd, NULL, NULL);
		rounds++;
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	tap_note("%" PRIu64 " lists, %lu objects", rounds, atomic_load(&made));
	return check(!err, "a list ends with %s", strerror(err));
}

int main(int argc, char **argv)
{
	uint32_t index;
	size_t i;
	int fd;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	if (argc > 1)
		duration = atoi(argv[1]);
	fd = open_netlink();
	index = device_index(fd, setup.a_dev.name);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		tap_ok(lists(&kinds[i], fd, index),
		       "%s are listed while they come and go", kinds[i].name);
	close(fd);
	setup_close(&setup);
	return tap_end();
}
