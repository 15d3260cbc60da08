// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A program that loads the library when it runs, and unloads it, as some do; and
 * its node is there only after a while.
 * usage: scif_loaded NODES OWN
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <scif.h>

#include "clock.h"
#include "tap.h"

static const char *const names[] = {
	"scif_open",	     "scif_close",	 "scif_bind",
	"scif_listen",	     "scif_connect",	 "scif_accept",
	"scif_send",	     "scif_recv",	 "scif_register",
	"scif_unregister",   "scif_mmap",	 "scif_munmap",
	"scif_readfrom",     "scif_writeto",	 "scif_vreadfrom",
	"scif_vwriteto",     "scif_fence_mark",	 "scif_fence_wait",
	"scif_fence_signal", "scif_get_nodeIDs", "scif_get_node_ids",
	"scif_get_fd",	     "scif_poll",
};

static bool has_all(void *library)
{
	bool ok = true;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ok = check(dlvsym(library, names[i], "SCIF_0.0"), "%s: %s",
			   names[i], dlerror()) &&
		     ok;
	return ok;
}

/* None of the nodes is here; the next call may find one. */
static bool finds_none(void *library)
{
	__typeof__(&scif_open) make;

	*(void **)&make = dlsym(library, "scif_open");
	setenv("SCIF_NODES", "0=192.0.2.1", 1);
	return check(make() == SCIF_OPEN_FAILED && errno == ENODEV,
		     "without a node: %s", strerror(errno));
}

static bool works(void *library, int own)
{
	__typeof__(&scif_get_nodeIDs) get_nodes;
	__typeof__(&scif_open) make;
	__typeof__(&scif_bind) name;
	__typeof__(&scif_listen) wait;
	__typeof__(&scif_close) end;
	uint16_t self = UINT16_MAX;
	int epd;

	*(void **)&get_nodes = dlsym(library, "scif_get_nodeIDs");
	*(void **)&make = dlsym(library, "scif_open");
	*(void **)&name = dlsym(library, "scif_bind");
	*(void **)&wait = dlsym(library, "scif_listen");
	*(void **)&end = dlsym(library, "scif_close");
	epd = make();
	return check(get_nodes(NULL, 0, &self) > 0 && self == own, "node %u",
		     self) &&
	       check(epd >= 0 && name(epd, 0) > 0 && !wait(epd, 1),
		     "endpoint %d", epd) &&
	       check(!end(epd), "close");
}

int main(int argc, char **argv)
{
	void *library;
	bool ok = true;
	int i;

	if (argc != 3)
		bail("usage: %s NODES OWN", argv[0]);
	setenv("SCIF_NODE", argv[2], 1);
	for (i = 0; i < 3 && ok; i++) {
		library = dlopen("libscif.so.0", RTLD_NOW | RTLD_LOCAL);
		ok = check(library, "dlopen: %s", dlerror()) &&
		     has_all(library) && (i || finds_none(library));
		setenv("SCIF_NODES", argv[1], 1);
		ok = ok && works(library, atoi(argv[2])) &&
		     check(!dlclose(library), "dlclose");
		sleep_ms(20); /* for the library's threads */
	}
	tap_ok(ok, "loaded and unloaded, time %d", i);
	return tap_end();
}
