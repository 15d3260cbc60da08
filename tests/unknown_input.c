// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A command with more input for the driver than this kernel knows, as a later libmic
 * may have it: refused if there is something in it, so that nothing which a program
 * asks for is passed over in silence; zeros ask for nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "memory.h"
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
static struct ibv_srq *srq;
static struct region region;

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

static struct ibv_srq *create_srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { 4, 1, 0 } };

	return ibv_create_srq(setup.a_dev.pd, &init);
}

static bool makes_srq(void)
{
	struct ibv_srq *made = create_srq();

	if (!made)
		return false;
	more = NULL;
	return !ibv_destroy_srq(made);
}

/* The rest are commands of write(), which the library sends as one of the device. */

static bool limits_srq(void)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };

	errno = ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
	return !errno;
}

static bool changes_rights(void)
{
	return !ibv_rereg_mr(region.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
			     0, IBV_ACCESS_LOCAL_WRITE);
}

static bool opens_xrcd(void)
{
	struct ibv_xrcd_init_attr init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(setup.a_dev.ctx, &init);

	if (!xrcd)
		return false;
	more = NULL;
	return !ibv_close_xrcd(xrcd);
}

static const struct {
	const char *name;
	uint16_t object;
	bool (*makes)(void);
} cases[] = {
	{ "a completion queue", UVERBS_OBJECT_CQ, makes_cq },
	{ "a queue pair", UVERBS_OBJECT_QP, makes_qp },
	{ "a shared receive queue", UVERBS_OBJECT_SRQ, makes_srq },
	{ "a limit of one", UVERBS_OBJECT_DEVICE, limits_srq },
	{ "other rights of a region", UVERBS_OBJECT_DEVICE, changes_rights },
	{ "an XRC domain", UVERBS_OBJECT_DEVICE, opens_xrcd },
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
	srq = create_srq();
	if (!srq)
		bail("no shared receive queue: %s", strerror(errno));
	region_create(&region, setup.a_dev.pd, PAGE_BYTES);
	for (i = 0; i < COUNT(cases); i++) {
		object = cases[i].object;
		was_seen = false;
		tap_ok(is_refused(cases[i].makes), "%s: input that is unknown",
		       cases[i].name);
	}
	region_destroy(&region);
	ibv_destroy_srq(srq);
	ibv_destroy_cq(cq);
	setup_close(&setup);
	return tap_end();
}
