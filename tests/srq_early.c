// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * An XRC receive queue is made, but whoever is to be told of it can't be: the answer's
 * page does not come, and then is gone. Its number can be guessed. Until it is certain
 * that it is made nobody reaches it by that: ib_core keeps no events of a queue that
 * isn't made.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include "clock.h"
#include "srq.h"
#include "tap.h"
#include "withhold.h"
#include "work.h"

static struct setup setup;
static struct xrc xrc;
/* Where the answer is to go, once. */
static _Atomic(uint8_t *) elsewhere;

/* The library calls this one. */
int ioctl(int fd, unsigned long request, ...)
{
	struct ib_uverbs_ioctl_hdr *hdr;
	va_list list;
	unsigned int i;

	va_start(list, request);
	hdr = va_arg(list, void *);
	va_end(list);
	if (request == RDMA_VERBS_IOCTL &&
	    hdr->object_id == UVERBS_OBJECT_SRQ &&
	    hdr->method_id == UVERBS_METHOD_SRQ_CREATE)
		for (i = 0; i < hdr->num_attrs; i++)
			if (hdr->attrs[i].attr_id == UVERBS_ATTR_UHW_OUT &&
			    atomic_load(&elsewhere))
				hdr->attrs[i].data = (uintptr_t)atomic_exchange(
					&elsewhere, NULL);
	return syscall(SYS_ioctl, fd, request, hdr);
}

static void *creates(void *error)
{
	*(int *)error = xrc_try_create_srq(&xrc, 4, 1) ? 0 : errno;
	return NULL;
}

/* Numbers are given out in turn. */
static bool sends_to_next(void)
{
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, NULL, 0);

	xrc_aim(&xrc, 0, &wr);
	wr.qp_type.xrc.remote_srqn++;
	post_send(&xrc.a, &wr);
	return cq_expect(xrc.a.send_cq, 1, IBV_WC_REM_INV_REQ_ERR);
}

static bool is_not_there(void)
{
	uint8_t *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	int withheld, error = 0;
	bool ok;

	if (page == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	withheld = withhold(page, PAGE_BYTES);
	if (withheld < 0)
		bail("no page can be withheld");
	atomic_store(&elsewhere, page);
	if (pthread_create(&thread, NULL, creates, &error))
		bail("no thread");
	while (atomic_load(&elsewhere))
		sleep_ms(1);
	sleep_ms(200 * slowness());
	ok = sends_to_next();
	/* the page goes, and so whoever waits for it goes on */
	munmap(page, PAGE_BYTES);
	close(withheld);
	pthread_join(thread, NULL);
	return check(error == EFAULT, "making it gives %s", strerror(error)) &&
	       ok;
}

int main(int argc, char **argv)
{
	setup_open(&setup, &argc, argv, PAGE_BYTES);
	xrc_open_domain(&xrc, &setup);
	xrc.srq[0] = xrc_create_srq(&xrc, 4, 1);
	xrc_connect(&xrc);
	tap_ok(is_not_there(),
	       "a receive queue whose making fails is not found");
	xrc_close(&xrc);
	setup_close(&setup);
	return tap_end();
}
