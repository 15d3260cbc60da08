// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Requests to another machine, one after the other. This process receives their answers
 * itself, in the kernel's place, but it polls so seldom that it is not relied upon.
 *
 * usage: seldom [--device NAME] GID COUNT
 */
#include <arpa/inet.h>
#include <stdlib.h>

#include "clock.h"
#include "endpoint.h"
#include "tap.h"
#include "work.h"

/* Who polls that often in vain has looked what has come from other machines. */
enum { POLLS = 8, PAUSE_MS = 5, NOBODY = 999 };

static bool poll_seldom(struct ibv_cq *cq, struct ibv_wc *wc)
{
	const uint64_t limit = deadline();
	int i;

	do {
		sleep_ms(PAUSE_MS);
		for (i = 0; i < POLLS; i++)
			if (ibv_poll_cq(cq, 1, wc))
				return check(wc->status == IBV_WC_SUCCESS, "%s",
					     ibv_wc_status_str(wc->status));
	} while (check(now_ms() < limit, "nothing comes"));
	return false;
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint_address address;
	const char *name, *peer;
	struct endpoint ep;
	struct device dev;
	union ibv_gid gid;
	struct ibv_wc wc;
	bool ok = true;
	int count, i;

	device_names(&argc, argv, &name, &peer);
	if (argc != 3 || inet_pton(AF_INET6, argv[1], &gid) != 1)
		bail("usage: seldom [--device NAME] GID COUNT");
	count = atoi(argv[2]);
	/* longer than the other side ever takes */
	options.timeout = 18;
	device_open(&dev, name);
	endpoint_create(&ep, &dev, &options);
	address = endpoint_address(&ep);
	address.gid = gid;
	address.qp_num = NOBODY;
	endpoint_connect(&ep, &address);
	for (i = 0; i < count && ok; i++) {
		post_empty_send(&ep, i, IBV_SEND_SIGNALED);
		ok = poll_seldom(ep.send_cq, &wc);
	}
	tap_ok(ok, "%d requests are answered", count);
	endpoint_destroy(&ep);
	device_close(&dev);
	return tap_end();
}
