// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * rdma resource show cm_id: both ends of a connection, each with its queue pair, its
 * addresses and its state, from the listener to the end.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "cm.h"
#include "observe.h"
#include "tap.h"
#include "text.h"

enum { CM_PORT = 4711, ADDRESS_BYTES = 64 };

/* Both ends are this process's; each has a device. */
struct link {
	struct setup *setup;
	struct cm_side client; /* at a */
	struct cm_side server; /* at b */
	struct cm_conn *near;
	struct cm_conn *far;
};

static struct sockaddr_in address_of(const struct device *dev)
{
	struct sockaddr_in address = { .sin_family = AF_INET };

	memcpy(&address.sin_addr, dev->gid.raw + 12, 4);
	return address;
}

/* "10.77.0.1:4711", as the tool writes it. */
static void print_address(const struct sockaddr *address, char *text)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;
	char name[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &in->sin_addr, name, sizeof(name));
	snprintf(text, ADDRESS_BYTES, "%s:%u", name, ntohs(in->sin_port));
}

/* The line of that end: its state, queue pair, and addresses. */
static bool end_is(const struct device *dev, const struct rdma_cm_id *id,
		   const char *state)
{
	char number[16], line[LINE_BYTES];
	char from[ADDRESS_BYTES], to[ADDRESS_BYTES];
	const struct filter filters[FILTERS] = { { "lqpn", number } };

	snprintf(number, sizeof(number), "%u", id->qp->qp_num);
	print_address(&id->route.addr.src_addr, from);
	print_address(&id->route.addr.dst_addr, to);
	return list_is(dev, "cm_id", filters, line, 1) &&
	       word_is(line, "state", state) &&
	       word_is(line, "qp-type", "RC") && word_is(line, "ps", "TCP") &&
	       word_is(line, "src-addr", from) &&
	       word_is(line, "dst-addr", to) &&
	       word_is(line, "comm", "observe");
}

/* One that is not connected has no queue pair yet that the kernel knows of. */
static bool is_in(const struct device *dev, const char *state)
{
	const struct filter filters[FILTERS] = { { "state", state } };

	return list_is(dev, "cm_id", filters, NULL, 1);
}

/* From a to a listener at b. Each state is that of the end that it is of. */
static bool connects(struct link *link)
{
	struct sockaddr_in from = address_of(&link->setup->a_dev);
	struct sockaddr_in to = address_of(&link->setup->b_dev);

	cm_listen(&link->server, &to, CM_PORT);
	link->near = cm_prepare(&link->client, &from, &to, CM_PORT);
	if (!link->near || !is_in(&link->setup->a_dev, "ROUTE_RESOLVED") ||
	    !is_in(&link->setup->b_dev, "LISTEN") ||
	    !cm_request(link->near, NULL, 0) ||
	    !end_is(&link->setup->a_dev, link->near->id, "CONNECT"))
		return false;
	link->far = cm_accept(&link->server);
	return link->far &&
	       cm_expect(&link->client, RDMA_CM_EVENT_ESTABLISHED) &&
	       cm_expect(&link->server, RDMA_CM_EVENT_ESTABLISHED) &&
	       end_is(&link->setup->a_dev, link->near->id, "CONNECT") &&
	       end_is(&link->setup->b_dev, link->far->id, "CONNECT");
}

/* Who wants to end it waits for the other one, and is connected until then. */
static bool disconnects(struct link *link)
{
	return cm_disconnect(link->near) &&
	       cm_expect(&link->server, RDMA_CM_EVENT_DISCONNECTED) &&
	       end_is(&link->setup->a_dev, link->near->id, "CONNECT") &&
	       end_is(&link->setup->b_dev, link->far->id, "DISCONNECT") &&
	       cm_disconnect(link->far) &&
	       cm_expect(&link->client, RDMA_CM_EVENT_DISCONNECTED) &&
	       end_is(&link->setup->a_dev, link->near->id, "DISCONNECT") &&
	       end_is(&link->setup->b_dev, link->far->id, "DISCONNECT");
}

void test_links(struct setup *setup)
{
	static struct link link;
	bool ok;

	link.setup = setup;
	cm_open(&link.client);
	cm_open(&link.server);
	ok = tap_ok(connects(&link), "resources: a connection of rdma_cm");
	tap_ok(ok && disconnects(&link), "resources: a connection has ended");
	cm_close(&link.client);
	cm_close(&link.server);
	tap_ok(list_is(&setup->a_dev, "cm_id", NULL, NULL, 0) &&
		       list_is(&setup->b_dev, "cm_id", NULL, NULL, 0),
	       "resources: no connection is left");
}
