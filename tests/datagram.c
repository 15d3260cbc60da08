// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Unreliable datagrams: what arrives, with which header and completion,
 * where it goes, and what is dropped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 16)
#define QUIET_MS 50
/* IB_QP1_QKEY */
#define MANAGEMENT_QKEY 0x80010000U
/* IB_MGMT_MAD_SIZE */
#define MANAGEMENT_BYTES 256U
/* More than QP 1 has receives. */
#define OTHER_VERSIONS 600U
/* Bytes of the memory for what is sent, and for what is received. */
#define FROM 100U
#define TO 30000U

struct stage {
	struct setup setup;
	struct endpoint a;
	struct endpoint b;
	struct ibv_ah *to_b;
};

/* One datagram from an endpoint of @dev to another one. */
struct datagram {
	struct endpoint *from;
	struct region *from_mem;
	struct endpoint *to;
	struct region *to_mem;
	struct ibv_ah *ah;
	enum ibv_wr_opcode opcode;
	uint32_t length;
	uint32_t qkey;
	uint32_t qp_num;
	uint32_t seed;
	int flags;
};

static struct datagram datagram_to_b(struct stage *stage, uint32_t length)
{
	return (struct datagram){
		.from = &stage->a,
		.from_mem = &stage->setup.a_mem,
		.to = &stage->b,
		.to_mem = &stage->setup.b_mem,
		.ah = stage->to_b,
		.opcode = IBV_WR_SEND,
		.length = length,
		.qkey = ENDPOINT_QKEY,
		.qp_num = stage->b.qp->qp_num,
		.seed = length + 1,
	};
}

static int try_send(const struct datagram *datagram)
{
	struct ibv_sge sge = region_sge(datagram->from_mem, FROM,
					datagram->length);
	struct ibv_send_wr wr = send_wr(datagram->seed, datagram->opcode, &sge,
					1);

	memcpy(datagram->from_mem->addr + FROM,
	       pattern_bytes(datagram->seed, datagram->length),
	       datagram->length);
	wr.imm_data = htobe32(datagram->seed);
	wr.send_flags |= datagram->flags;
	wr.wr.ud.ah = datagram->ah;
	wr.wr.ud.remote_qpn = datagram->qp_num;
	wr.wr.ud.remote_qkey = datagram->qkey;
	return try_post_send(datagram->from, &wr);
}

static bool send_datagram(const struct datagram *datagram)
{
	int error = try_send(datagram);

	return check(!error, "posting a datagram: %s", strerror(error)) &&
	       cq_expect(datagram->from->send_cq, datagram->seed,
			 IBV_WC_SUCCESS);
}

/* A receive for the datagram, split after @first bytes. */
static void post_receive(const struct datagram *datagram, uint32_t first)
{
	uint32_t total = GRH_BYTES + datagram->length;
	struct ibv_sge sges[2] = {
		region_sge(datagram->to_mem, TO, first),
		region_sge(datagram->to_mem, TO + first, total - first),
	};

	memset(datagram->to_mem->addr + TO - 64, GUARD_BYTE, total + 128);
	post_recv(datagram->to, datagram->seed, sges, 2);
}

static bool check_completion(const struct datagram *datagram,
			     const struct ibv_wc *wc)
{
	bool has_imm = opcode_has_imm(datagram->opcode);

	return check(wc->opcode == IBV_WC_RECV, "opcode is %d", wc->opcode) &&
	       check(wc->byte_len == GRH_BYTES + datagram->length,
		     "byte_len is %u", wc->byte_len) &&
	       check(wc->qp_num == datagram->to->qp->qp_num, "qp_num is %u",
		     wc->qp_num) &&
	       check(wc->src_qp == datagram->from->qp->qp_num, "src_qp is %u",
		     wc->src_qp) &&
	       check(wc->wc_flags & IBV_WC_GRH, "no GRH") &&
	       check(!!(wc->wc_flags & IBV_WC_WITH_IMM) == has_imm,
		     "wc_flags are 0x%x", wc->wc_flags) &&
	       check(!has_imm || wc->imm_data == htobe32(datagram->seed),
		     "immediate data is 0x%x", be32toh(wc->imm_data)) &&
	       check(wc->pkey_index == 0, "pkey_index is %u", wc->pkey_index);
}

static bool all_guard(const uint8_t *bytes, size_t length)
{
	while (length && *bytes == GUARD_BYTE) {
		bytes++;
		length--;
	}
	return !length;
}

/* As of the packet that it would be: UDP, BTH, DETH, and the CRC behind the data. */
static bool check_lengths(const struct datagram *datagram)
{
	const uint8_t *grh = datagram->to_mem->addr + TO;
	uint32_t length = 8 + 12 + 8 + (datagram->length + 3) / 4 * 4 + 4;
	uint16_t found;
	bool ipv4 = grh[0] >> 4 != 6;

	if (opcode_has_imm(datagram->opcode))
		length += 4;
	if (ipv4)
		length += 20;
	memcpy(&found, ipv4 ? grh + 22 : grh + 4, sizeof(found));
	return check(be16toh(found) == length, "the header has length %u of %u",
		     be16toh(found), length);
}

static bool check_payload(const struct datagram *datagram)
{
	const uint8_t *buffer = datagram->to_mem->addr + TO;
	uint32_t total = GRH_BYTES + datagram->length;

	return check(!memcmp(buffer + GRH_BYTES,
			     pattern_bytes(datagram->seed, datagram->length),
			     datagram->length),
		     "other bytes arrive") &&
	       check(all_guard(buffer - 64, 64) &&
			     all_guard(buffer + total, 64),
		     "bytes around the buffer are written");
}

static bool receive_datagram(const struct datagram *datagram, struct ibv_wc *wc)
{
	return cq_success(datagram->to->recv_cq, datagram->seed, wc) &&
	       check_completion(datagram, wc) && check_payload(datagram) &&
	       check_lengths(datagram);
}

static bool transfer(const struct datagram *datagram, uint32_t first)
{
	struct ibv_wc wc;

	post_receive(datagram, first);
	return send_datagram(datagram) && receive_datagram(datagram, &wc);
}

static bool case_sizes(struct stage *stage)
{
	uint32_t mtu = device_mtu(&stage->setup.b_dev);
	const uint32_t sizes[] = { 0, 1, 63, 64, 1000, mtu - 1, mtu };
	struct datagram datagram;
	unsigned int i;

	for (i = 0; i < COUNT(sizes); i++) {
		datagram = datagram_to_b(stage, sizes[i]);
		if (!check(transfer(&datagram, GRH_BYTES), "size %u", sizes[i]))
			return false;
		datagram.opcode = IBV_WR_SEND_WITH_IMM;
		if (!check(transfer(&datagram, GRH_BYTES),
			   "size %u with immediate data", sizes[i]))
			return false;
	}
	return true;
}

/* Header and payload meet the receive's SGEs anywhere. */
static bool case_splits(struct stage *stage)
{
	static const uint32_t firsts[] = { 0, 1, 19, 20, 39, 40, 41, 100 };
	struct datagram datagram = datagram_to_b(stage, 333);
	unsigned int i;

	for (i = 0; i < COUNT(firsts); i++)
		if (!check(transfer(&datagram, firsts[i]), "split after %u",
			   firsts[i]))
			return false;
	return true;
}

static bool case_inline(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, stage->a.max_inline);
	struct ibv_wc wc;

	if (!check(stage->a.max_inline > 0, "no inline data"))
		return false;
	datagram.flags = IBV_SEND_INLINE;
	post_receive(&datagram, GRH_BYTES);
	if (try_send(&datagram))
		return check(false, "posting fails");
	memset(stage->setup.a_mem.addr + FROM, 0, datagram.length);
	return cq_expect(stage->a.send_cq, datagram.seed, IBV_WC_SUCCESS) &&
	       receive_datagram(&datagram, &wc);
}

static bool case_ipv4_header(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 100);
	const uint8_t *header = stage->setup.b_mem.addr + TO + 20;

	return transfer(&datagram, GRH_BYTES) &&
	       check(header[0] == 0x45, "version and length are 0x%02x",
		     header[0]) &&
	       check(!memcmp(header + 12, stage->setup.a_dev.gid.raw + 12, 4),
		     "the source address is another one") &&
	       check(!memcmp(header + 16, stage->setup.b_dev.gid.raw + 12, 4),
		     "the destination address is another one");
}

/* The GID of a global or unique local IPv6 address; -1 without one. */
static int find_ipv6_gid(const struct device *dev, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; i < dev->port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(dev->ctx, 1, i, &entry, 0) ||
		    entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    (entry.gid.raw[0] & 0xfc) == 0 || entry.gid.raw[0] == 0xfe)
			continue;
		*gid = entry.gid;
		return i;
	}
	return -1;
}

static bool case_ipv6_header(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 100);
	const uint8_t *header = stage->setup.b_mem.addr + TO;
	struct device a_dev = stage->setup.a_dev;
	union ibv_gid a_gid, b_gid;
	int index;
	bool ok;

	index = find_ipv6_gid(&a_dev, &a_gid);
	if (!check(index >= 0 &&
			   find_ipv6_gid(&stage->setup.b_dev, &b_gid) >= 0,
		   "no GID of an IPv6 address"))
		return false;
	a_dev.gid_index = index;
	datagram.ah = address_handle(&a_dev, &b_gid);
	ok = transfer(&datagram, GRH_BYTES) &&
	     check(header[0] >> 4 == 6, "the version is %u", header[0] >> 4) &&
	     check(!memcmp(header + 8, a_gid.raw, 16),
		   "the source GID is another one") &&
	     check(!memcmp(header + 24, b_gid.raw, 16),
		   "the destination GID is another one");
	return check(!ibv_destroy_ah(datagram.ah), "ibv_destroy_ah fails") &&
	       ok;
}

/* An address handle made from what arrived leads back. */
static bool case_reply(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 100), reply;
	struct ibv_wc wc;
	bool ok;

	post_receive(&datagram, GRH_BYTES);
	if (!send_datagram(&datagram) || !receive_datagram(&datagram, &wc))
		return false;
	reply = datagram;
	reply.from = &stage->b;
	reply.from_mem = &stage->setup.b_mem;
	reply.to = &stage->a;
	reply.to_mem = &stage->setup.a_mem;
	reply.qp_num = wc.src_qp;
	reply.ah = ibv_create_ah_from_wc(
		stage->setup.b_dev.pd, &wc,
		(struct ibv_grh *)(stage->setup.b_mem.addr + TO), 1);
	if (!check(reply.ah, "ibv_create_ah_from_wc: %s", strerror(errno)))
		return false;
	ok = transfer(&reply, GRH_BYTES);
	return check(!ibv_destroy_ah(reply.ah), "ibv_destroy_ah fails") && ok;
}

#define TARGETS 12

/* One sender, many receivers on both devices, in changing order. */
static bool send_around(struct stage *stage, struct endpoint *targets,
			struct ibv_ah *to_a)
{
	struct random_state random;
	struct datagram datagram;
	unsigned int i, who;

	random_seed(&random, 9);
	for (i = 0; i < 300; i++) {
		who = random_below(&random, TARGETS);
		datagram = datagram_to_b(stage, random_below(&random, 900));
		datagram.to = &targets[who];
		datagram.qp_num = targets[who].qp->qp_num;
		if (who % 2) {
			datagram.to_mem = &stage->setup.a_mem;
			datagram.ah = to_a;
		}
		if (!check(transfer(&datagram, GRH_BYTES), "to target %u", who))
			return false;
	}
	for (i = 0; i < TARGETS; i++)
		if (!cq_stays_empty(targets[i].recv_cq, 0))
			return false;
	return true;
}

static bool case_destinations(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct ibv_ah *to_a = address_handle(&stage->setup.a_dev,
					     &stage->setup.a_dev.gid);
	struct endpoint targets[TARGETS];
	unsigned int i;
	bool ok;

	for (i = 0; i < TARGETS; i++) {
		endpoint_create(&targets[i],
				i % 2 ? &stage->setup.a_dev :
					&stage->setup.b_dev,
				&options);
		endpoint_connect(&targets[i], NULL);
	}
	ok = send_around(stage, targets, to_a);
	for (i = 0; i < TARGETS; i++)
		endpoint_destroy(&targets[i]);
	return check(!ibv_destroy_ah(to_a), "ibv_destroy_ah fails") && ok;
}

/* Sent, completed, and not arrived; the receive is there for the next one. */
static bool is_dropped(struct stage *stage, const struct datagram *datagram)
{
	struct datagram next = datagram_to_b(stage, datagram->length);
	struct ibv_wc wc;

	next.seed = datagram->seed;
	post_receive(datagram, GRH_BYTES);
	return send_datagram(datagram) &&
	       cq_stays_empty(stage->b.recv_cq, QUIET_MS) &&
	       check(all_guard(stage->setup.b_mem.addr + TO, datagram->length),
		     "a dropped datagram is written") &&
	       send_datagram(&next) && receive_datagram(&next, &wc);
}

static bool case_wrong_qkey(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 64);

	datagram.qkey = ENDPOINT_QKEY + 1;
	return is_dropped(stage, &datagram);
}

/* A Q_Key with the highest bit set stands for the sender's own. */
static bool case_own_qkey(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 64);

	datagram.qkey = 0x80000000U;
	return transfer(&datagram, GRH_BYTES);
}

static bool case_unknown_qp(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 64);

	datagram.qp_num = 0xfffffe;
	return is_dropped(stage, &datagram);
}

static bool case_connected_qp(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct datagram datagram = datagram_to_b(stage, 64);
	struct endpoint rc_a, rc_b;
	bool ok;

	pair_create(&rc_a, &stage->setup.a_dev, &rc_b, &stage->setup.b_dev,
		    &options);
	post_recv(&rc_b, 1, NULL, 0);
	datagram.qp_num = rc_b.qp->qp_num;
	ok = is_dropped(stage, &datagram) && cq_stays_empty(rc_b.recv_cq, 0) &&
	     check(endpoint_state(&rc_b) == IBV_QPS_RTS, "the RC QP is in %s",
		   state_name(endpoint_state(&rc_b)));
	pair_destroy(&rc_a, &rc_b);
	return ok;
}

/* As ib_core shows it, the kernel's own queue pair for management datagrams. */
static bool management_works(const struct device *dev)
{
	return check(!device_run(dev, "rdma resource show qp link $DEVICE/1 | "
				      "grep -q 'type GSI state RTS'"),
		     "QP 1 of %s is not in RTS", dev->name);
}

/* Who may use its Q_Key could send QP 1 more than its receives have room for. */
static bool case_no_management(struct stage *stage)
{
	struct ibv_qp_attr attr = { .qkey = MANAGEMENT_QKEY };
	struct datagram datagram = datagram_to_b(stage, 300);

	datagram.qp_num = 1;
	datagram.qkey = MANAGEMENT_QKEY;
	return check(!ibv_modify_qp(stage->a.qp, &attr, IBV_QP_QKEY),
		     "the Q_Key can't be set") &&
	       management_works(&stage->setup.b_dev) &&
	       send_datagram(&datagram) &&
	       management_works(&stage->setup.b_dev);
}

/* ib_mad would tell the log of each. */
static bool case_other_version(struct stage *stage)
{
	struct ibv_qp_attr attr = { .qkey = MANAGEMENT_QKEY };
	struct datagram datagram = datagram_to_b(stage, MANAGEMENT_BYTES);
	unsigned int i;
	bool ok;

	datagram.qp_num = 1;
	datagram.qkey = MANAGEMENT_QKEY;
	ok = check(!ibv_modify_qp(stage->a.qp, &attr, IBV_QP_QKEY),
		   "the Q_Key can't be set");
	for (i = 0; i < OTHER_VERSIONS; i++) {
		datagram.seed = 2 + i;
		ok = ok && send_datagram(&datagram);
	}
	return ok &&
	       check(!system("! dmesg | grep 'unsupported base version'"),
		     "the log has them") &&
	       management_works(&stage->setup.b_dev);
}

static bool case_no_receive(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 64);

	return send_datagram(&datagram) &&
	       cq_stays_empty(stage->b.recv_cq, QUIET_MS) &&
	       transfer(&datagram, GRH_BYTES);
}

static bool is_too_long(struct stage *stage, enum ibv_wr_opcode opcode)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	struct datagram datagram;
	struct endpoint sender;
	int error;
	bool ok;

	endpoint_create(&sender, &stage->setup.a_dev, &options);
	endpoint_connect(&sender, NULL);
	datagram = datagram_to_b(stage, device_mtu(&stage->setup.a_dev) + 1);
	datagram.from = &sender;
	datagram.opcode = opcode;
	post_receive(&datagram, GRH_BYTES);
	error = try_send(&datagram);
	if (error)
		ok = check(error == EINVAL || error == EMSGSIZE, "errno %d",
			   error);
	else
		ok = cq_expect(sender.send_cq, datagram.seed,
			       IBV_WC_LOC_LEN_ERR);
	ok = ok && cq_stays_empty(stage->b.recv_cq, QUIET_MS);
	endpoint_destroy(&sender);
	/* Take the receive that is still there. */
	datagram = datagram_to_b(stage, 16);
	datagram.seed = device_mtu(&stage->setup.a_dev) + 2;
	return send_datagram(&datagram) &&
	       cq_expect(stage->b.recv_cq, datagram.seed, IBV_WC_SUCCESS) && ok;
}

static bool case_too_long(struct stage *stage)
{
	return is_too_long(stage, IBV_WR_SEND) &&
	       is_too_long(stage, IBV_WR_SEND_WITH_IMM);
}

static bool case_many_handles(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 50);
	struct ibv_ah *handles[200];
	unsigned int i;
	bool ok = true;

	for (i = 0; i < COUNT(handles); i++)
		handles[i] = address_handle(&stage->setup.a_dev,
					    &stage->setup.b_dev.gid);
	for (i = 0; i < COUNT(handles); i++) {
		datagram.ah = handles[i];
		ok = ok && transfer(&datagram, GRH_BYTES);
		ok = check(!ibv_destroy_ah(handles[i]),
			   "ibv_destroy_ah fails") &&
		     ok;
	}
	return ok;
}

/* Many datagrams with a full ring of receives; all arrive, in order. */
static bool case_stream(struct stage *stage)
{
	struct datagram datagram = datagram_to_b(stage, 64);
	unsigned int i, depth = stage->b.options.depth;
	unsigned int total = repetitions(&stage->setup, 5000);
	struct ibv_wc wc;

	for (i = 0; i < depth; i++) {
		datagram.seed = i;
		post_receive(&datagram, GRH_BYTES);
	}
	for (i = 0; i < total; i++) {
		datagram.seed = i;
		if (!send_datagram(&datagram) ||
		    !receive_datagram(&datagram, &wc))
			return false;
		if (i + depth < total) {
			datagram.seed = i + depth;
			post_receive(&datagram, GRH_BYTES);
		}
	}
	return true;
}

static const struct {
	const char *name;
	bool (*run)(struct stage *stage);
} cases[] = {
	{ "sizes up to the MTU, with and without immediate data", case_sizes },
	{ "header and payload split anywhere", case_splits },
	{ "inline data", case_inline },
	{ "the IPv4 header names both sides", case_ipv4_header },
	{ "the IPv6 header names both sides", case_ipv6_header },
	{ "an address handle from a completion leads back", case_reply },
	{ "one sender, twelve receivers on two devices", case_destinations },
	{ "a wrong Q_Key is dropped", case_wrong_qkey },
	{ "a Q_Key with the highest bit is the sender's", case_own_qkey },
	{ "an unknown queue pair number is dropped", case_unknown_qp },
	{ "a datagram for a connected queue pair is dropped",
	  case_connected_qp },
	{ "QP 1 survives what is no management datagram", case_no_management },
	{ "the log has nothing of management of another version",
	  case_other_version },
	{ "without a receive it is dropped", case_no_receive },
	{ "longer than the MTU", case_too_long },
	{ "200 address handles", case_many_handles },
	{ "many datagrams in order", case_stream },
};

/* Endpoints of its own for each case: a failure stays where it is. */
static void run_case(struct stage *stage, unsigned int i)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	bool ok;

	options.inline_bytes = 64;
	pair_create(&stage->a, &stage->setup.a_dev, &stage->b,
		    &stage->setup.b_dev, &options);
	ok = cases[i].run(stage);
	pair_destroy(&stage->a, &stage->b);
	tap_ok(ok, "%s", cases[i].name);
}

int main(int argc, char **argv)
{
	struct stage stage;
	unsigned int i;

	setup_open(&stage.setup, &argc, argv, REGION_BYTES);
	stage.to_b = address_handle(&stage.setup.a_dev, &stage.setup.b_dev.gid);
	for (i = 0; i < COUNT(cases); i++)
		run_case(&stage, i);
	tap_must(!ibv_destroy_ah(stage.to_b), "ibv_destroy_ah fails");
	setup_close(&stage.setup);
	return tap_end();
}
