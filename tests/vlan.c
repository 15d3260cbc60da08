// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * GIDs of VLANs on the devices' netdevs.
 *
 * vlan tagged ID NETDEV PEER'S-NETDEV: both are of the VLAN ID (0: of none)
 * vlan apart NETDEV PEER'S-NETDEV: of two VLANs
 * vlan gone NETDEV PEER'S-NETDEV VICTIM: one of the two, deleted meanwhile
 */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)
#define LENGTH 1000U
#define QUIET_MS 50
/* Bytes of the memory for what is received. */
#define TO 8192U

static const char *const families[] = { "IPv4", "IPv6", "link-local" };

enum { IPV4, IPV6, LINK_LOCAL };

static int family_of(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	if (!memcmp(gid->raw, mapped, sizeof(mapped)))
		return IPV4;
	return gid->raw[0] == 0xfe ? LINK_LOCAL : IPV6;
}

/* Is there a GID of that family on @netdev? Then the device talks from it. */
static bool find_gid(struct device *dev, unsigned int netdev, int family)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; i < dev->port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(dev->ctx, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    entry.ndev_ifindex != netdev ||
		    family_of(&entry.gid) != family)
			continue;
		dev->gid = entry.gid;
		dev->gid_index = i;
		return true;
	}
	return false;
}

static bool use_gid(struct device *dev, const char *netdev, int family)
{
	unsigned int index = if_nametoindex(netdev);
	uint64_t end = deadline();

	if (!index)
		bail("there is no %s", netdev);
	while (!find_gid(dev, index, family)) {
		if (now_ms() > end)
			return check(false, "%s: no %s GID of %s", dev->name,
				     families[family], netdev);
		sleep_ms(10);
	}
	return true;
}

static bool use_gids(struct setup *setup, char **netdevs, int family)
{
	return use_gid(&setup->a_dev, netdevs[0], family) &&
	       use_gid(&setup->b_dev, netdevs[1], family);
}

/* --- connections ----------------------------------------------------------- */

/* What READ moves goes the other way. */
static bool moves(struct setup *setup, struct endpoint *a, struct endpoint *b,
		  enum ibv_wr_opcode opcode)
{
	bool read = opcode == IBV_WR_RDMA_READ;
	uint8_t *from = read ? setup->b_mem.addr : setup->a_mem.addr;
	uint8_t *to = read ? setup->a_mem.addr : setup->b_mem.addr;
	struct ibv_sge sge = region_sge(&setup->a_mem, read ? TO : 0, LENGTH);
	struct ibv_sge recv = region_sge(&setup->b_mem, TO, LENGTH);
	struct ibv_send_wr wr = send_wr(opcode, opcode, &sge, 1);
	bool takes_recv = opcode_takes_recv(opcode);

	memcpy(from, pattern_bytes(opcode + 1, LENGTH), LENGTH);
	memset(to + TO, GUARD_BYTE, LENGTH);
	send_wr_aim(&wr, setup->b_mem.rdma_addr + (read ? 0 : TO),
		    setup->b_mem.mr->rkey);
	if (takes_recv)
		post_recv(b, opcode, &recv, 1);
	post_send(a, &wr);
	return cq_expect(a->send_cq, opcode, IBV_WC_SUCCESS) &&
	       (!takes_recv || cq_expect(b->recv_cq, opcode, IBV_WC_SUCCESS)) &&
	       check(!memcmp(to + TO, from, LENGTH), "other bytes arrive");
}

static bool connects(struct setup *setup, enum ibv_qp_type type)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND,
		IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,
	};
	unsigned int count = COUNT(opcodes) - (type == IBV_QPT_UC), i;
	struct endpoint_options options = endpoint_options(type);
	struct endpoint a, b;
	bool ok = true;

	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	for (i = 0; ok && i < count; i++)
		ok = check(moves(setup, &a, &b, opcodes[i]), "%s",
			   opcode_name(opcodes[i]));
	pair_destroy(&a, &b);
	return ok;
}

/* --- datagrams ------------------------------------------------------------- */

static void post_datagram(struct endpoint *from, const struct region *mem,
			  struct ibv_ah *ah, uint32_t qp_num)
{
	struct ibv_sge sge = region_sge(mem, 0, LENGTH);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_SEND, &sge, 1);

	memcpy(mem->addr, pattern_bytes(qp_num, LENGTH), LENGTH);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_send(from, &wr);
}

static void post_room(struct endpoint *to, const struct region *mem)
{
	struct ibv_sge sge = region_sge(mem, TO, GRH_BYTES + LENGTH);

	memset(mem->addr + TO, GUARD_BYTE, GRH_BYTES + LENGTH);
	post_recv(to, 2, &sge, 1);
}

static bool names_both(const uint8_t *header, const struct setup *setup)
{
	bool ipv4 = family_of(&setup->a_dev.gid) == IPV4;
	const uint8_t *from = setup->a_dev.gid.raw + (ipv4 ? 12 : 0);
	const uint8_t *to = setup->b_dev.gid.raw + (ipv4 ? 12 : 0);
	unsigned int length = ipv4 ? 4 : 16;

	header += ipv4 ? 32 : 8;
	return check(!memcmp(header, from, length), "the source is another") &&
	       check(!memcmp(header + length, to, length),
		     "the destination is another");
}

static bool holds_datagram(const struct region *mem, uint32_t qp_num)
{
	return check(!memcmp(mem->addr + TO + GRH_BYTES,
			     pattern_bytes(qp_num, LENGTH), LENGTH),
		     "other bytes arrive");
}

/* An address handle made from what arrived at b leads back over the VLAN. */
static bool answers(struct setup *setup, struct endpoint *a, struct endpoint *b,
		    struct ibv_wc *wc)
{
	uint32_t qp_num = a->qp->qp_num;
	struct ibv_ah *ah;
	bool ok;

	ah = ibv_create_ah_from_wc(setup->b_dev.pd, wc,
				   (struct ibv_grh *)(setup->b_mem.addr + TO),
				   1);
	if (!check(ah, "ibv_create_ah_from_wc: %s", strerror(errno)))
		return false;
	post_room(a, &setup->a_mem);
	post_datagram(b, &setup->b_mem, ah, qp_num);
	ok = cq_expect(b->send_cq, 1, IBV_WC_SUCCESS) &&
	     cq_expect(a->recv_cq, 2, IBV_WC_SUCCESS) &&
	     holds_datagram(&setup->a_mem, qp_num);
	return check(!ibv_destroy_ah(ah), "ibv_destroy_ah fails") && ok;
}

static bool exchange(struct setup *setup, struct endpoint *a,
		     struct endpoint *b, struct ibv_ah *ah)
{
	uint32_t qp_num = b->qp->qp_num;
	struct ibv_wc wc;

	post_room(b, &setup->b_mem);
	post_datagram(a, &setup->a_mem, ah, qp_num);
	return cq_expect(a->send_cq, 1, IBV_WC_SUCCESS) &&
	       cq_success(b->recv_cq, 2, &wc) &&
	       holds_datagram(&setup->b_mem, qp_num) &&
	       names_both(setup->b_mem.addr + TO, setup) &&
	       answers(setup, a, b, &wc);
}

static bool datagrams(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct endpoint a, b;
	struct ibv_ah *ah;
	bool ok;

	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	ok = exchange(setup, &a, &b, ah);
	tap_must(!ibv_destroy_ah(ah), "ibv_destroy_ah fails");
	pair_destroy(&a, &b);
	return ok;
}

/* --- the VLAN of a completion ---------------------------------------------- */

static bool poll_vlan(struct ibv_cq_ex *cq, unsigned int id)
{
	struct ibv_poll_cq_attr attr = {};
	uint64_t end = deadline();
	uint16_t vlan;
	bool ok;

	while (ibv_start_poll(cq, &attr)) {
		if (now_ms() > end)
			return check(false, "no completion came");
		relax(100);
	}
	vlan = ibv_wc_read_cvlan(cq);
	ok = check(cq->status == IBV_WC_SUCCESS, "it is '%s'",
		   ibv_wc_status_str(cq->status)) &&
	     check(vlan == id, "it says VLAN %u", vlan);
	ibv_end_poll(cq);
	return ok;
}

static bool tells_vlan(struct setup *setup, struct ibv_cq_ex *cq,
		       unsigned int id)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct endpoint a, b;
	struct ibv_ah *ah;
	bool ok;

	endpoint_create(&a, &setup->a_dev, &options);
	endpoint_connect(&a, NULL);
	options.recv_cq = ibv_cq_ex_to_cq(cq);
	endpoint_create(&b, &setup->b_dev, &options);
	endpoint_connect(&b, NULL);
	ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
	post_room(&b, &setup->b_mem);
	post_datagram(&a, &setup->a_mem, ah, b.qp->qp_num);
	ok = cq_expect(a.send_cq, 1, IBV_WC_SUCCESS) && poll_vlan(cq, id);
	tap_must(!ibv_destroy_ah(ah), "ibv_destroy_ah fails");
	pair_destroy(&a, &b);
	return ok;
}

static void case_vlan(struct setup *setup, unsigned int id, const char *family)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 16,
		.wc_flags = IBV_WC_EX_WITH_CVLAN,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(setup->b_dev.ctx, &attr);

	if (!cq && errno == EOPNOTSUPP) {
		tap_skip("the device's completions have no VLAN",
			 "%s: the completion's VLAN", family);
		return;
	}
	tap_ok(check(cq, "ibv_create_cq_ex: %s", strerror(errno)) &&
		       tells_vlan(setup, cq, id),
	       "%s: the completion's VLAN is %u", family, id);
	if (cq)
		tap_must(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)),
			 "ibv_destroy_cq fails");
}

static void run_tagged(struct setup *setup, unsigned int id, char **netdevs)
{
	const char *name;
	unsigned int i;

	for (i = 0; i < COUNT(families); i++) {
		name = families[i];
		if (!tap_ok(use_gids(setup, netdevs, i),
			    "%s: the tables have the GIDs", name))
			continue;
		tap_ok(connects(setup, IBV_QPT_RC), "%s: RC", name);
		tap_ok(connects(setup, IBV_QPT_UC), "%s: UC", name);
		tap_ok(datagrams(setup), "%s: UD, and an answer", name);
		case_vlan(setup, id, name);
	}
}

/* --- GIDs that are not reached --------------------------------------------- */

/* What a program is told whose neighbour is not found. */
static bool is_unreachable(int error)
{
	return error == ETIMEDOUT || error == EHOSTUNREACH ||
	       error == ENETUNREACH;
}

static bool no_handle(struct setup *setup)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = {
			.dgid = setup->b_dev.gid,
			.sgid_index = setup->a_dev.gid_index,
			.hop_limit = 64,
		},
	};
	struct ibv_ah *ah = ibv_create_ah(setup->a_dev.pd, &attr);
	int error = errno;

	if (ah) {
		ibv_destroy_ah(ah);
		return check(false, "there is an address handle");
	}
	tap_note("ibv_create_ah: %s", strerror(error));
	return check(is_unreachable(error), "ibv_create_ah: %s",
		     strerror(error));
}

static int try_connect(struct endpoint *from, const struct endpoint *to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = to->qp->qp_num,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {
				.dgid = to->dev->gid,
				.sgid_index = from->dev->gid_index,
				.hop_limit = 64,
			},
		},
	};

	return ibv_modify_qp(from->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static bool no_connection(struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint a, b;
	int error;
	bool ok;

	endpoint_create(&a, &setup->a_dev, &options);
	endpoint_create(&b, &setup->b_dev, &options);
	endpoint_to_init(&a);
	error = try_connect(&a, &b);
	tap_note("ibv_modify_qp: %s", strerror(error));
	ok = check(is_unreachable(error), "ibv_modify_qp: %s",
		   strerror(error)) &&
	     check(endpoint_state(&a) == IBV_QPS_INIT, "it is in %s",
		   state_name(endpoint_state(&a)));
	pair_destroy(&a, &b);
	return ok;
}

static void run_apart(struct setup *setup, char **netdevs)
{
	const char *name;
	unsigned int i;

	for (i = 0; i < COUNT(families); i++) {
		name = families[i];
		if (!tap_ok(use_gids(setup, netdevs, i),
			    "%s: the tables have the GIDs", name))
			continue;
		tap_ok(no_handle(setup), "%s: no address handle", name);
		tap_ok(no_connection(setup), "%s: no connection", name);
	}
}

/* --- a VLAN goes ----------------------------------------------------------- */

/* Whose netdev goes, and two queue pairs on each side that talk meanwhile. */
struct leaving {
	struct setup *setup;
	struct device *dev;
	const char *netdev;
	unsigned int index;
	struct endpoint a;
	struct endpoint b;
	struct ibv_ah *ah;
	struct endpoint rc_a;
	struct endpoint rc_b;
};

static bool run_ip(const struct leaving *leaving, const char *arguments)
{
	char command[200];

	snprintf(command, sizeof(command), "timeout %u ip %s dev %s",
		 20 * slowness(), arguments, leaving->netdev);
	return check(!device_run(leaving->dev, command), "%s fails", command);
}

/* The address that is the device's GID. */
static bool run_ip_address(const struct leaving *leaving, const char *verb)
{
	const uint8_t *ip = leaving->dev->gid.raw + 12;
	char arguments[100];

	snprintf(arguments, sizeof(arguments), "address %s %u.%u.%u.%u/24",
		 verb, ip[0], ip[1], ip[2], ip[3]);
	return run_ip(leaving, arguments);
}

static bool gid_goes(const struct leaving *leaving)
{
	uint64_t end = deadline();

	while (find_gid(leaving->dev, leaving->index, IPV4)) {
		if (now_ms() > end)
			return check(false, "the GID stays");
		sleep_ms(10);
	}
	return true;
}

static bool talks(struct leaving *leaving)
{
	struct setup *setup = leaving->setup;

	return exchange(setup, &leaving->a, &leaving->b, leaving->ah) &&
	       moves(setup, &leaving->rc_a, &leaving->rc_b, IBV_WR_SEND);
}

/*
 * A datagram from or to a GID that is gone is sent, and dropped: in a moment, since the
 * driver hears of it when it can no longer be found.
 */
static bool is_dropped(struct leaving *leaving)
{
	struct setup *setup = leaving->setup;
	uint64_t end = deadline();
	struct ibv_wc wc;

	for (;;) {
		post_room(&leaving->b, &setup->b_mem);
		post_datagram(&leaving->a, &setup->a_mem, leaving->ah,
			      leaving->b.qp->qp_num);
		if (!cq_expect(leaving->a.send_cq, 1, IBV_WC_SUCCESS))
			return false;
		sleep_ms(QUIET_MS);
		if (!ibv_poll_cq(leaving->b.recv_cq, 1, &wc))
			return true;
		if (!check(now_ms() < end, "it arrives: %s",
			   ibv_wc_status_str(wc.status)))
			return false;
	}
}

/* Whom a connection reaches is known since its first message. */
static bool only_connected(struct leaving *leaving)
{
	return is_dropped(leaving) && moves(leaving->setup, &leaving->rc_a,
					    &leaving->rc_b, IBV_WR_SEND);
}

static void leaving_open(struct leaving *leaving)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct setup *setup = leaving->setup;

	pair_create(&leaving->a, &setup->a_dev, &leaving->b, &setup->b_dev,
		    &options);
	options = endpoint_options(IBV_QPT_RC);
	pair_create(&leaving->rc_a, &setup->a_dev, &leaving->rc_b,
		    &setup->b_dev, &options);
	leaving->ah = address_handle(&setup->a_dev, &setup->b_dev.gid);
}

static void leaving_close(struct leaving *leaving)
{
	tap_must(!ibv_destroy_ah(leaving->ah), "ibv_destroy_ah fails");
	pair_destroy(&leaving->rc_a, &leaving->rc_b);
	pair_destroy(&leaving->a, &leaving->b);
}

static void run_gone(struct setup *setup, char **netdevs, const char *victim)
{
	bool is_peers = !strcmp(victim, netdevs[1]);
	struct leaving leaving = {
		.setup = setup,
		.dev = is_peers ? &setup->b_dev : &setup->a_dev,
		.netdev = victim,
		.index = if_nametoindex(victim),
	};

	if (!use_gids(setup, netdevs, IPV4))
		bail("there are no GIDs");
	leaving_open(&leaving);
	tap_ok(talks(&leaving), "before");
	tap_ok(run_ip_address(&leaving, "delete") && gid_goes(&leaving),
	       "the address goes, and the GID");
	tap_ok(only_connected(&leaving), "datagrams are dropped");
	tap_ok(run_ip_address(&leaving, "add") &&
		       use_gid(leaving.dev, victim, IPV4),
	       "the address comes back, and the GID");
	tap_ok(talks(&leaving), "datagrams arrive again");
	tap_ok(run_ip(&leaving, "link delete") && gid_goes(&leaving),
	       "the netdev goes, and the GID");
	tap_ok(only_connected(&leaving), "datagrams are dropped then");
	leaving_close(&leaving);
}

int main(int argc, char **argv)
{
	struct setup setup;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	if (argc == 5 && !strcmp(argv[1], "tagged"))
		run_tagged(&setup, strtoul(argv[2], NULL, 10), argv + 3);
	else if (argc == 4 && !strcmp(argv[1], "apart"))
		run_apart(&setup, argv + 2);
	else if (argc == 5 && !strcmp(argv[1], "gone"))
		run_gone(&setup, argv + 2, argv[4]);
	else
		bail("what is to be tried? see the beginning of vlan.c");
	setup_close(&setup);
	return tap_end();
}
