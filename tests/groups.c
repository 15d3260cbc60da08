// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Multicast groups: who gets a datagram, and who does not.
 */
#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "counter.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REGION_BYTES (1UL << 18)

enum {
	SLOT_BYTES = 128,
	SLOTS = 64,
	MEMBERS = 6,
	STREAM = 500,
	WITNESS_ID = 99999,
	BURST = 40, /* fewer than one run takes, and with all copies more */
};

/* The first half of the members is on the sender's device, the witness is not. */
struct stage {
	struct setup *setup;
	struct endpoint sender;
	struct endpoint members[MEMBERS];
	struct endpoint witness;
	union ibv_gid group;
	union ibv_gid other_group;
	struct ibv_ah *ah;
	struct ibv_ah *to_witness;
};

static union ibv_gid group_gid(uint8_t number)
{
	union ibv_gid gid = { .raw = { 0xff, 0x0e, [15] = number } };

	return gid;
}

static bool is_on_sender(unsigned int who)
{
	return who < MEMBERS / 2;
}

static const struct region *memory_of(struct stage *stage, unsigned int who)
{
	return is_on_sender(who) ? &stage->setup->a_mem : &stage->setup->b_mem;
}

static size_t slot_of(unsigned int who, uint64_t id)
{
	return ((size_t)(who + 1) * SLOTS + id % SLOTS) * SLOT_BYTES;
}

static void receive(struct stage *stage, unsigned int who, uint64_t id)
{
	struct ibv_sge sge = region_sge(memory_of(stage, who), slot_of(who, id),
					SLOT_BYTES);

	post_recv(&stage->members[who], id, &sge, 1);
}

static void stage_open(struct stage *stage, struct setup *setup)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_UD);
	unsigned int i;

	stage->setup = setup;
	stage->group = group_gid(1);
	stage->other_group = group_gid(2);
	endpoint_create(&stage->sender, &setup->a_dev, &options);
	endpoint_connect(&stage->sender, NULL);
	for (i = 0; i < MEMBERS; i++) {
		endpoint_create(&stage->members[i],
				is_on_sender(i) ? &setup->a_dev : &setup->b_dev,
				&options);
		endpoint_connect(&stage->members[i], NULL);
	}
	endpoint_create(&stage->witness, &setup->b_dev, &options);
	endpoint_connect(&stage->witness, NULL);
	stage->ah = address_handle(&setup->a_dev, &stage->group);
	stage->to_witness = address_handle(&setup->a_dev, &setup->b_dev.gid);
}

static void stage_close(struct stage *stage)
{
	unsigned int i;

	tap_must(!ibv_destroy_ah(stage->ah), "ibv_destroy_ah fails");
	tap_must(!ibv_destroy_ah(stage->to_witness), "ibv_destroy_ah fails");
	endpoint_destroy(&stage->witness);
	for (i = 0; i < MEMBERS; i++) {
		ibv_detach_mcast(stage->members[i].qp, &stage->group, 0);
		ibv_detach_mcast(stage->members[i].qp, &stage->other_group, 0);
		endpoint_destroy(&stage->members[i]);
	}
	ibv_detach_mcast(stage->sender.qp, &stage->group, 0);
	endpoint_destroy(&stage->sender);
}

static bool join(struct endpoint *ep, const union ibv_gid *gid)
{
	int error = ibv_attach_mcast(ep->qp, gid, 0);

	return check(!error, "ibv_attach_mcast: %s", strerror(error));
}

static bool leave(struct endpoint *ep, const union ibv_gid *gid)
{
	int error = ibv_detach_mcast(ep->qp, gid, 0);

	return check(!error, "ibv_detach_mcast: %s", strerror(error));
}

/* Every other one has immediate data. */
static bool has_imm(uint64_t id)
{
	return id % 2;
}

static bool send_from(struct stage *stage, struct endpoint *sender, uint64_t id,
		      uint32_t qkey)
{
	struct setup *setup = stage->setup;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(
		id, has_imm(id) ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, &sge, 1);

	memcpy(setup->a_mem.addr, &id, 8);
	wr.imm_data = htobe32(~id);
	wr.wr.ud.ah = stage->ah;
	wr.wr.ud.remote_qpn = MULTICAST_QPN;
	wr.wr.ud.remote_qkey = qkey;
	post_send(sender, &wr);
	return cq_expect(sender->send_cq, id, IBV_WC_SUCCESS);
}

static bool send_datagram(struct stage *stage, uint64_t id, uint32_t qkey)
{
	return send_from(stage, &stage->sender, id, qkey);
}

static bool gets(struct stage *stage, unsigned int who, uint64_t id)
{
	const uint8_t *data = memory_of(stage, who)->addr + slot_of(who, id) +
			      GRH_BYTES;
	struct ibv_wc wc;
	uint64_t value;

	if (!check(cq_success(stage->members[who].recv_cq, id, &wc),
		   "member %u gets nothing", who))
		return false;
	memcpy(&value, data, 8);
	return check(wc.byte_len == GRH_BYTES + 8, "%u bytes", wc.byte_len) &&
	       check(wc.wc_flags & IBV_WC_GRH, "no GRH") &&
	       check(!!(wc.wc_flags & IBV_WC_WITH_IMM) == has_imm(id) &&
			     (!has_imm(id) || wc.imm_data == htobe32(~id)),
		     "flags 0x%x, immediate data 0x%x", wc.wc_flags,
		     be32toh(wc.imm_data)) &&
	       check(wc.src_qp == stage->sender.qp->qp_num, "sender %u",
		     wc.src_qp) &&
	       check(value == id, "member %u gets %" PRIu64, who, value);
}

/* What was sent to the other device before the witness's datagram got there, too. */
static bool has_arrived(struct stage *stage)
{
	struct ibv_send_wr wr = send_wr(WITNESS_ID, IBV_WR_SEND, NULL, 0);
	struct ibv_sge sge = region_sge(&stage->setup->b_mem,
					slot_of(MEMBERS, 0), SLOT_BYTES);

	post_recv(&stage->witness, WITNESS_ID, &sge, 1);
	wr.wr.ud.ah = stage->to_witness;
	wr.wr.ud.remote_qpn = stage->witness.qp->qp_num;
	wr.wr.ud.remote_qkey = ENDPOINT_QKEY;
	post_send(&stage->sender, &wr);
	return cq_expect(stage->sender.send_cq, WITNESS_ID, IBV_WC_SUCCESS) &&
	       cq_expect(stage->witness.recv_cq, WITNESS_ID, IBV_WC_SUCCESS);
}

static bool gets_nothing(struct stage *stage, unsigned int who)
{
	return check(has_arrived(stage), "the witness gets nothing") &&
	       check(cq_stays_empty(stage->members[who].recv_cq, 0),
		     "member %u gets a datagram", who);
}

/* A datagram that exactly those in @members get, a bit for each. */
static bool reaches(struct stage *stage, uint64_t id, unsigned int members)
{
	unsigned int i;

	for (i = 0; i < MEMBERS; i++)
		receive(stage, i, id);
	if (!send_datagram(stage, id, ENDPOINT_QKEY))
		return false;
	for (i = 0; i < MEMBERS; i++)
		if (members >> i & 1 ? !gets(stage, i, id) :
				       !gets_nothing(stage, i))
			return false;
	return true;
}

/* --- cases -------------------------------------------------------------------- */

static bool members_only(struct stage *stage)
{
	return reaches(stage, 1, 0) &&
	       join(&stage->members[1], &stage->group) &&
	       join(&stage->members[2], &stage->other_group) &&
	       join(&stage->members[4], &stage->group) &&
	       join(&stage->members[5], &stage->group) &&
	       reaches(stage, 1, 0x32);
}

static bool leaving(struct stage *stage)
{
	return join(&stage->members[0], &stage->group) &&
	       join(&stage->members[3], &stage->group) &&
	       join(&stage->members[4], &stage->group) &&
	       reaches(stage, 1, 0x19) &&
	       leave(&stage->members[3], &stage->group) &&
	       leave(&stage->members[0], &stage->group) &&
	       check(send_datagram(stage, 2, ENDPOINT_QKEY), "sending") &&
	       gets_nothing(stage, 0) && gets_nothing(stage, 3);
}

static bool joined_twice(struct stage *stage)
{
	return join(&stage->members[4], &stage->group) &&
	       join(&stage->members[4], &stage->group) &&
	       (receive(stage, 4, 1), true) && reaches(stage, 1, 0x10) &&
	       gets_nothing(stage, 4) &&
	       leave(&stage->members[4], &stage->group) &&
	       check(send_datagram(stage, 2, ENDPOINT_QKEY), "sending") &&
	       gets_nothing(stage, 4);
}

/* The device has no LIDs; ib_core counts a group for each, and what is in one. */
static bool two_lids(struct stage *stage)
{
	struct endpoint *ep = &stage->members[4];
	bool ok;

	ok = join(ep, &stage->group) &&
	     check(!ibv_attach_mcast(ep->qp, &stage->group, 7),
		   "joining with another LID") &&
	     (receive(stage, 4, 1), true) && reaches(stage, 1, 0x10) &&
	     gets_nothing(stage, 4) && leave(ep, &stage->group) &&
	     check(send_datagram(stage, 1, ENDPOINT_QKEY), "sending") &&
	     gets(stage, 4, 1);
	if (!check(!ibv_detach_mcast(ep->qp, &stage->group, 7),
		   "leaving with the other LID"))
		return false;
	/* and stage_close() destroys it */
	return ok && check(send_datagram(stage, 2, ENDPOINT_QKEY), "sending") &&
	       gets_nothing(stage, 4);
}

static bool sender_is_member(struct stage *stage)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, SLOT_BYTES,
					SLOT_BYTES);

	post_recv(&stage->sender, 9, &sge, 1);
	return join(&stage->sender, &stage->group) &&
	       join(&stage->members[5], &stage->group) &&
	       reaches(stage, 1, 0x20) &&
	       cq_expect(stage->sender.recv_cq, 9, IBV_WC_SUCCESS);
}

/* What others of its device send it gets. */
static bool sender_wants_none(struct stage *stage)
{
	struct ibv_sge sge = region_sge(&stage->setup->a_mem, SLOT_BYTES,
					SLOT_BYTES);

	endpoint_extend(&stage->sender, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, 0);
	endpoint_connect(&stage->sender, NULL);
	post_recv(&stage->sender, 9, &sge, 1);
	return join(&stage->sender, &stage->group) &&
	       join(&stage->members[1], &stage->group) &&
	       join(&stage->members[5], &stage->group) &&
	       reaches(stage, 1, 0x22) &&
	       check(cq_stays_empty(stage->sender.recv_cq, 0),
		     "the sender gets its own") &&
	       check(send_from(stage, &stage->members[0], 2, ENDPOINT_QKEY),
		     "sending") &&
	       cq_expect(stage->sender.recv_cq, 9, IBV_WC_SUCCESS);
}

/* One without a receive loses it, and the others don't notice. */
static bool no_receive(struct stage *stage)
{
	return join(&stage->members[3], &stage->group) &&
	       join(&stage->members[4], &stage->group) &&
	       (receive(stage, 4, 1), true) &&
	       send_datagram(stage, 1, ENDPOINT_QKEY) && gets(stage, 4, 1) &&
	       gets_nothing(stage, 3) && reaches(stage, 2, 0x18);
}

static bool wrong_qkey(struct stage *stage)
{
	if (!join(&stage->members[3], &stage->group))
		return false;
	receive(stage, 3, 1);
	return send_datagram(stage, 1, ENDPOINT_QKEY ^ 1) &&
	       gets_nothing(stage, 3) &&
	       send_datagram(stage, 1, ENDPOINT_QKEY) && gets(stage, 3, 1);
}

static bool refused(struct stage *stage)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct endpoint *ep = &stage->members[0];
	struct endpoint rc;
	bool ok;

	endpoint_create(&rc, &stage->setup->a_dev, &options);
	ok = check(ibv_attach_mcast(rc.qp, &stage->group, 0) == EINVAL,
		   "an RC queue pair joins") &&
	     check(ibv_attach_mcast(ep->qp, &stage->setup->a_dev.gid, 0) ==
			   EINVAL,
		   "a GID that is no group's") &&
	     check(ibv_detach_mcast(ep->qp, &stage->group, 0) == EINVAL,
		   "leaving a group it is not in");
	endpoint_destroy(&rc);
	return ok;
}

static bool member_in_use(struct stage *stage)
{
	return join(&stage->members[0], &stage->group) &&
	       check(ibv_destroy_qp(stage->members[0].qp) == EBUSY,
		     "a member is destroyed") &&
	       reaches(stage, 1, 1);
}

static bool stream(struct stage *stage)
{
	unsigned int i;
	uint64_t id;

	for (i = 0; i < MEMBERS; i++)
		if (!join(&stage->members[i], &stage->group))
			return false;
	for (id = 0; id < repetitions(stage->setup, STREAM); id++)
		if (!reaches(stage, id, (1U << MEMBERS) - 1))
			return false;
	return true;
}

/* A counter of the sender's device, when it is not remembered any more. */
static uint64_t counter(struct stage *stage, const char *name)
{
	counter_settle();
	return counter_now(&stage->setup->a_dev, name);
}

/* Each member's copy counts, when it is others' turn. */
static bool gives_way(struct stage *stage)
{
	static const char exhausted[] = "engine_budget_exhausted";
	struct ibv_send_wr wr[BURST], *bad;
	uint64_t before;
	unsigned int i;

	for (i = 0; i < MEMBERS; i++)
		if (!join(&stage->members[i], &stage->group))
			return false;
	before = counter(stage, exhausted);
	for (i = 0; i < BURST; i++) {
		wr[i] = send_wr(i, IBV_WR_SEND, NULL, 0);
		wr[i].next = i + 1 < BURST ? &wr[i + 1] : NULL;
		wr[i].wr.ud.ah = stage->ah;
		wr[i].wr.ud.remote_qpn = MULTICAST_QPN;
		wr[i].wr.ud.remote_qkey = ENDPOINT_QKEY;
	}
	if (!check(!ibv_post_send(stage->sender.qp, wr, &bad),
		   "ibv_post_send fails"))
		return false;
	for (i = 0; i < BURST; i++)
		if (!cq_expect(stage->sender.send_cq, i, IBV_WC_SUCCESS))
			return false;
	return check(counter(stage, exhausted) > before + 1,
		     "%u datagrams to %u members are sent at a stretch", BURST,
		     MEMBERS);
}

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
	bool one_machine; /* the members are those of the sender's kernel */
} cases[] = {
	{ members_only, "members on both devices, and nobody else", false },
	{ leaving, "who has left gets nothing", false },
	{ joined_twice, "joining twice is joining once", false },
	{ two_lids, "joining with two LIDs is leaving twice", false },
	{ sender_is_member, "a sender that is a member", false },
	{ sender_wants_none, "a sender that wants none of its own", false },
	{ no_receive, "a member without a receive", false },
	{ wrong_qkey, "a wrong Q_Key", false },
	{ refused, "what is refused", false },
	{ member_in_use, "a member can't be destroyed", false },
	{ stream, "many datagrams in order to six members", false },
	{ gives_way, "a datagram to many is as much work as many", true },
};

int main(int argc, char **argv)
{
	struct setup setup;
	struct stage stage;
	unsigned int i;
	bool ok;

	setup_open(&setup, &argc, argv, REGION_BYTES);
	for (i = 0; i < COUNT(cases); i++) {
		if (cases[i].one_machine && setup_is_remote(&setup))
			continue;
		stage_open(&stage, &setup);
		ok = cases[i].run(&stage);
		stage_close(&stage);
		tap_ok(ok, "%s", cases[i].name);
	}
	setup_close(&setup);
	return tap_end();
}
