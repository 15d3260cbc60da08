// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Tracepoints: which events, in which order, and what they say.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe.h"
#include "tap.h"
#include "tracing.h"

enum { MAX_EVENTS = 24 };

/* What the trace has to say: parts of the lines, separated by spaces. */
struct story {
	int count;
	char event[MAX_EVENTS][EVENT_BYTES];
};

static void tell(struct story *story, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void tell(struct story *story, const char *fmt, ...)
{
	char *event = story->event[story->count];
	va_list args;

	va_start(args, fmt);
	vsnprintf(event, EVENT_BYTES, fmt, args);
	va_end(args);
	if (++story->count == MAX_EVENTS)
		bail("more than %d events", MAX_EVENTS);
}

static bool is_story(char *text, const struct story *story)
{
	char *line;
	int i;

	for (i = 0; i < story->count; i++) {
		line = next_event(&text);
		if (!check(line && has_words(line, story->event[i]),
			   "event %d should be %s, it is: %s", i,
			   story->event[i], line ? line : "missing"))
			return false;
	}
	line = next_event(&text);
	return check(!line, "an event too many: %s", line);
}

/* --- the parts of a story ------------------------------------------------- */

static void tell_doorbell(struct story *story, const struct setup *setup)
{
	tell(story, "mic_doorbell: dev=%s qpn=%u producer=1 consumer=0",
	     setup->a_dev.name, setup->a.qp->qp_num);
}

static void tell_submit(struct story *story, const struct setup *setup,
			const char *rest)
{
	tell(story, "mic_submit: dev=%s qpn=%u dst_qpn=%u wr_id=0x1 %s",
	     setup->a_dev.name, setup->a.qp->qp_num, setup->b.qp->qp_num, rest);
}

static void tell_data(struct story *story, const struct setup *setup,
		      const char *rest)
{
	tell(story, "mic_data: dev=%s qpn=%u %s", setup->a_dev.name,
	     setup->a.qp->qp_num, rest);
}

static void tell_ack(struct story *story, const struct setup *setup,
		     const char *ack)
{
	tell(story, "mic_ack: dev=%s qpn=%u wr_id=0x1 ack=%s",
	     setup->a_dev.name, setup->a.qp->qp_num, ack);
}

static void tell_retry(struct story *story, const struct setup *setup,
		       const char *event, const char *rest)
{
	tell(story, "%s: dev=%s qpn=%u dst_qpn=%u wr_id=0x1 %s", event,
	     setup->a_dev.name, setup->a.qp->qp_num, setup->b.qp->qp_num, rest);
}

static void tell_complete(struct story *story, const struct endpoint *ep,
			  const char *rest)
{
	tell(story, "mic_complete: dev=%s qpn=%u event=0 lost=0 %s",
	     ep->dev->name, ep->qp->qp_num, rest);
}

static void tell_qp_error(struct story *story, const struct endpoint *ep)
{
	tell(story, "mic_qp_error: dev=%s qpn=%u from=RTS to=ERR",
	     ep->dev->name, ep->qp->qp_num);
}

static void tell_failure(struct story *story, const struct setup *setup,
			 const char *opcode, const char *status)
{
	char rest[EVENT_BYTES];

	tell(story,
	     "mic_req_error: dev=%s qpn=%u wr_id=0x1 opcode=%s status=%s",
	     setup->a_dev.name, setup->a.qp->qp_num, opcode, status);
	tell_qp_error(story, &setup->a);
	snprintf(rest, sizeof(rest), "wr_id=0x1 opcode=%s status=%s", opcode,
		 status);
	tell_complete(story, &setup->a, rest);
}

/* --- the stories --------------------------------------------------------- */

static bool case_send(struct setup *setup, struct story *story)
{
	tell_doorbell(story, setup);
	tell_submit(
		story, setup,
		"op=SEND psn=16777200 offset=0 bytes=64 of=64 flags=FIRST|LAST service=RC");
	tell_data(story, setup, "psn=16777200 offset=0");
	tell_complete(story, &setup->b,
		      "wr_id=0x5 opcode=RECV status=SUCCESS bytes=64");
	tell_ack(story, setup, "OK");
	tell_complete(story, &setup->a,
		      "wr_id=0x1 opcode=SEND status=SUCCESS bytes=64");
	receive(setup, 5);
	return request_ends(setup, IBV_WR_SEND, 64, IBV_WC_SUCCESS) &&
	       cq_expect(setup->b.recv_cq, 5, IBV_WC_SUCCESS);
}

/* Two segments, and immediate data with the last. */
static bool case_segments(struct setup *setup, struct story *story)
{
	tell_doorbell(story, setup);
	tell_submit(story, setup,
		    "op=WRITE offset=0 bytes=262144 of=262145 flags=FIRST");
	tell_data(story, setup, "offset=0");
	tell_ack(story, setup, "OK");
	tell_submit(story, setup,
		    "op=WRITE offset=262144 bytes=1 flags=LAST|IMM");
	tell_data(story, setup, "offset=262144 data=6d");
	tell_complete(story, &setup->b,
		      "wr_id=0x5 opcode=RECV_WRITE_IMM status=SUCCESS");
	tell_ack(story, setup, "OK");
	tell_complete(story, &setup->a,
		      "wr_id=0x1 opcode=WRITE status=SUCCESS bytes=262145");
	receive(setup, 5);
	setup->a_mem.addr[262144] = 'm';
	return request_ends(setup, IBV_WR_RDMA_WRITE_WITH_IMM, 262145,
			    IBV_WC_SUCCESS) &&
	       cq_expect(setup->b.recv_cq, 5, IBV_WC_SUCCESS);
}

/* What it asks for, and what came. */
static bool case_read(struct setup *setup, struct story *story)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 4);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	char rest[EVENT_BYTES];

	memcpy(setup->b_mem.addr, "mic\xff", 4);
	send_wr_aim(&wr, setup->b_mem.rdma_addr, setup->b_mem.mr->rkey);
	snprintf(rest, sizeof(rest), "op=READ bytes=4 raddr=0x%llx rkey=0x%x",
		 (unsigned long long)setup->b_mem.rdma_addr,
		 setup->b_mem.mr->rkey);
	tell_doorbell(story, setup);
	tell_submit(story, setup, rest);
	tell_data(story, setup, "psn=16777200 offset=0 data=6d6963ff");
	tell_ack(story, setup, "OK");
	tell_complete(story, &setup->a,
		      "wr_id=0x1 opcode=READ status=SUCCESS bytes=4");
	post_send(&setup->a, &wr);
	return cq_expect(setup->a.send_cq, 1, IBV_WC_SUCCESS);
}

static bool case_nak(struct setup *setup, struct story *story)
{
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, 8);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);

	tell_doorbell(story, setup);
	tell_submit(story, setup, "op=READ bytes=8 of=8");
	tell(story, "mic_nak: dev=%s qpn=%u peer_qpn=%u ack=NAK_ACCESS",
	     setup->b_dev.name, setup->b.qp->qp_num, setup->a.qp->qp_num);
	tell_qp_error(story, &setup->b);
	tell_ack(story, setup, "NAK_ACCESS");
	tell_failure(story, setup, "READ", "REM_ACCESS_ERR");
	wr.wr.rdma.remote_addr = setup->b_mem.rdma_addr;
	post_send(&setup->a, &wr);
	return cq_expect(setup->a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
}

static bool case_rnr(struct setup *setup, struct story *story)
{
	int i;

	tell_doorbell(story, setup);
	for (i = 0; i < 4; i++) {
		tell_submit(story, setup, "op=SEND flags=FIRST|LAST");
		tell_data(story, setup, "offset=0");
		tell_ack(story, setup, "RNR");
		if (i < 3)
			tell_retry(story, setup, "mic_rnr_retry",
				   i == 0 ? "left=2 again_in_ns=10000" :
				   i == 1 ? "left=1 again_in_ns=20000" :
					    "left=0 again_in_ns=40000");
	}
	tell_failure(story, setup, "SEND", "RNR_RETRY_EXC_ERR");
	return request_ends(setup, IBV_WR_SEND, 64, IBV_WC_RNR_RETRY_EXC_ERR);
}

static bool case_retry(struct setup *setup, struct story *story)
{
	int i;

	tell_qp_error(story, &setup->b);
	tell_doorbell(story, setup);
	for (i = 0; i < 3; i++) {
		tell_submit(story, setup, "op=WRITE");
		tell_data(story, setup, "offset=0");
		tell_ack(story, setup, "NONE");
		if (i < 2)
			tell_retry(story, setup, "mic_retry",
				   i ? "left=0 again_in_ns=4194304" :
				       "left=1 again_in_ns=4194304");
	}
	tell_failure(story, setup, "WRITE", "RETRY_EXC_ERR");
	endpoint_set_state(&setup->b, IBV_QPS_ERR);
	return request_ends(setup, IBV_WR_RDMA_WRITE, 64, IBV_WC_RETRY_EXC_ERR);
}

static const struct {
	const char *name;
	bool (*run)(struct setup *setup, struct story *story);
} cases[] = {
	{ "a SEND and its receive", case_send },
	{ "a message in two segments", case_segments },
	{ "a READ and what it brings", case_read },
	{ "a remote access error", case_nak },
	{ "receiver not ready", case_rnr },
	{ "no answer", case_retry },
};

static void run_case(struct setup *setup, unsigned int i)
{
	struct endpoint_options options = impatient_options();
	struct story story = { 0 };
	char *text;
	bool ok;

	pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
		    &options);
	trace_on();
	ok = cases[i].run(setup, &story);
	text = trace_off();
	ok = is_story(text, &story) && ok;
	free(text);
	pair_destroy(&setup->a, &setup->b);
	tap_ok(ok, "trace: %s", cases[i].name);
}

/* The connection manager of the kernel sends and receives by QP 1. */
static bool kernel_posts_traced(const struct device *peer)
{
	char *text, *rest, *line;
	bool sent = false, received = false;

	trace_on();
	(void)!system(
		"timeout 60 rping -c -C 1 -a 10.77.0.2 -p 9 >/dev/null 2>&1");
	text = trace_off();
	rest = text;
	while ((line = next_event(&rest))) {
		sent |= has_words(line, "mic_post_send: qpn=1 opcode=SEND");
		received |= has_words(line, "mic_post_recv: qpn=1");
	}
	free(text);
	return check(sent, "no post of QP 1 to %s", peer->name) &&
	       check(received, "no post of a receive of QP 1");
}

static bool nothing_traced(struct setup *setup)
{
	struct endpoint_options options = impatient_options();
	char *text, *rest, *line;
	bool ok;

	trace_on();
	free(trace_off());
	pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
		    &options);
	trace_clear();
	ok = exchange(setup, IBV_WR_SEND, 64, 3);
	pair_destroy(&setup->a, &setup->b);
	text = trace_off();
	rest = text;
	line = next_event(&rest);
	ok = check(!line, "traced though off: %s", line) && ok;
	free(text);
	return ok;
}

void test_trace(struct setup *setup)
{
	unsigned int i;

	trace_open();
	for (i = 0; i < COUNT(cases); i++)
		run_case(setup, i);
	tap_ok(kernel_posts_traced(&setup->b_dev), "trace: the kernel's posts");
	tap_ok(nothing_traced(setup), "trace: nothing when off");
	trace_close();
}
