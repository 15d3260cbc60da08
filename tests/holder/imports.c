// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The first process's context, which the second one imports, with objects that it
 * makes there.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "holder.h"
#include "process.h"
#include "tap.h"

static struct device imported;

static int let_go_of_import(void *dev)
{
	return ibv_close_device(((struct device *)dev)->ctx);
}

static int let_go_of_imported_pd(void *pd)
{
	ibv_unimport_pd(pd);
	return 0;
}

static int let_go_of_imported_mr(void *mr)
{
	ibv_unimport_mr(mr);
	return 0;
}

static int let_go_of_imported_dm(void *dm)
{
	ibv_unimport_dm(dm);
	return 0;
}

/* Handles of objects are there as long as the first process is. */
static void *keep_import(struct holder *holder, const char *what, void *object,
			 int (*let_go)(void *object))
{
	if (!check(object, "no %s: %s", what, strerror(errno)))
		end_alone(holder);
	return keep(holder, what, object, let_go);
}

static void import(struct holder *holder, const struct handles *handles, int fd)
{
	imported = (struct device){ .name = "import",
				    .ctx = ibv_import_device(fd) };
	if (!imported.ctx)
		bail("ibv_import_device: %s", strerror(errno));
	keep(holder, "imported device", &imported, let_go_of_import);
	imported.pd = keep_import(holder, "imported domain",
				  ibv_import_pd(imported.ctx, handles->pd),
				  let_go_of_imported_pd);
	keep_import(holder, "imported region",
		    ibv_import_mr(imported.pd, handles->mr),
		    let_go_of_imported_mr);
	keep_import(holder, "imported device memory",
		    ibv_import_dm(imported.ctx, handles->dm),
		    let_go_of_imported_dm);
	if (ibv_query_port(imported.ctx, 1, &imported.port))
		bail("ibv_query_port fails");
	imported.gid = holder->theirs.links[LINK_BUSY].gid;
	imported.gid_index = handles->gid_index;
}

/* The first one's domain, if it has that still. */
static void open_same_domain(struct holder *holder)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
		.oflags = O_CREAT,
	};

	keep(holder, "shared XRC domain", ibv_open_xrcd(imported.ctx, &attr),
	     let_go_of_xrcd);
	close(attr.fd);
}

/* Here everything is waited for, too. */
static void make_objects(struct holder *holder)
{
	static struct region region;
	static struct endpoint a, b;
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct ibv_send_wr wr = send_wr(0, IBV_WR_SEND, NULL, 0);
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = QUEUED, .max_sge = 1 },
	};
	unsigned int i;

	region_create(&region, imported.pd, REGION_BYTES);
	keep(holder, "region of an import", region.mr, let_go_of_mr);
	options.srq = keep(holder, "receive queue of an import",
			   ibv_create_srq(imported.pd, &attr), let_go_of_srq);
	post_shared_receives(options.srq, QUEUED);
	endpoint_create(&a, &imported, &options);
	keep(holder, "queue pair of an import", &a, let_go_of_endpoint);
	options.srq = NULL;
	endpoint_create(&b, &holder->dev, &options);
	keep(holder, "queue pair", &b, let_go_of_endpoint);
	pair_connect(&a, &b);
	for (i = 0; i < QUEUED; i++) {
		post_send(&a, &wr);
		post_send(&b, &wr);
	}
}

void hold_imports(struct holder *holder)
{
	struct handles handles = {
		.pd = holder->dev.pd->handle,
		.mr = holder->region.mr->handle,
		.dm = holder->dm->handle,
		.gid_index = holder->dev.gid_index,
	};
	int fd;

	if (!holder->second) {
		descriptor_send(holder->socket, holder->dev.ctx->cmd_fd);
		message_send(holder->socket, &handles, sizeof(handles));
		return;
	}
	fd = descriptor_receive(holder->socket);
	if (fd < 0 ||
	    !message_receive(holder->socket, &handles, sizeof(handles)))
		end_alone(holder);
	import(holder, &handles, fd);
	open_same_domain(holder);
	hold_missing_page(holder, imported.pd);
	make_objects(holder);
}
