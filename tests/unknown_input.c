// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A command with more input for the driver than this kernel knows, as a later libmic
 * may have it: refused if there is something in it, so that nothing which a program
 * asks for is passed over in silence; zeros ask for nothing.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { MOST_ATTRS = 32 };

/* What the next command of the object has for the driver; NULL: what it is. */
static const uint64_t *more;
static uint16_t object;
static bool was_seen;

/* A command with one attribute more, which is input for the driver. */
static int with_more(int fd, struct ib_uverbs_ioctl_hdr *hdr)
{
	const size_t size = sizeof(*hdr) + hdr->num_attrs * sizeof(*hdr->attrs);
	uint64_t room[(sizeof(*hdr) + (MOST_ATTRS + 1) * sizeof(*hdr->attrs)) /
			      sizeof(uint64_t) +
		      1] = { 0 };
	struct ib_uverbs_ioctl_hdr *longer = (void *)room;
	struct ib_uverbs_attr *last = &longer->attrs[hdr->num_attrs];
	int ret;

	memcpy(longer, hdr, size);
	last->attr_id = UVERBS_ATTR_UHW_IN;
	last->len = sizeof(*more);
	last->data = *more;
	longer->num_attrs++;
	longer->length = size + sizeof(*last);
	was_seen = true;
	ret = syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, longer);
	/* the number of what was made is in its attribute */
	memcpy(hdr->attrs, longer->attrs, size - sizeof(*hdr));
	return ret;
}

/* The library calls this one. */
int ioctl(int fd, unsigned long request, ...)
{
	struct ib_uverbs_ioctl_hdr *hdr;
	va_list list;

	va_start(list, request);
	hdr = va_arg(list, void *);
	va_end(list);
	if (request == RDMA_VERBS_IOCTL && more && hdr->object_id == object &&
	    hdr->num_attrs < MOST_ATTRS)
		return with_more(fd, hdr);
	return syscall(SYS_ioctl, fd, request, hdr);
}

static struct setup setup;
static struct ibv_cq *cq;

static bool makes_cq(void)
{
	struct ibv_cq *made = ibv_create_cq(setup.a_dev.ctx, 16, NULL, NULL, 0);

	if (!made)
		return false;
	more = NULL;
	return !ibv_destroy_cq(made);
}

static bool makes_qp(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { 4, 4, 1, 1, 0 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(setup.a_dev.pd, &init);

	if (!qp)
		return false;
	more = NULL;
	return !ibv_destroy_qp(qp);
}

static bool makes_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { 4, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(setup.a_dev.pd, &init);

	if (!srq)
		return false;
	more = NULL;
	return !ibv_destroy_srq(srq);
}

static const struct {
	const char *name;
	uint16_t object;
	bool (*makes)(void);
} cases[] = {
	{ "a completion queue", UVERBS_OBJECT_CQ, makes_cq },
	{ "a queue pair", UVERBS_OBJECT_QP, makes_qp },
	{ "a shared receive queue", UVERBS_OBJECT_SRQ, makes_srq },
};

static bool is_refused(bool (*makes)(void))
{
	static const uint64_t zero, unknown = 1ULL << 63;
	bool ok;

	more = &unknown;
	errno = 0;
	ok = check(!makes() && errno == EOPNOTSUPP, "with something: %s",
		   strerror(errno));
	more = &zero;
	ok = check(makes(), "with nothing: %s", strerror(errno)) && ok;
	more = NULL;
	return check(was_seen, "the command is not seen") && ok;
}

int main(int argc, char **argv)
{
	size_t i;

	setup_open(&setup, &argc, argv, PAGE_BYTES);
	cq = ibv_create_cq(setup.a_dev.ctx, 16, NULL, NULL, 0);
	if (!cq)
		bail("no completion queue: %s", strerror(errno));
	for (i = 0; i < COUNT(cases); i++) {
		object = cases[i].object;
		was_seen = false;
		tap_ok(is_refused(cases[i].makes), "%s: input that is unknown",
		       cases[i].name);
	}
	ibv_destroy_cq(cq);
	setup_close(&setup);
	return tap_end();
}
