// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * How long a request rests before it is tried again. The tracepoints say it in
 * advance, so nobody waits it out, and how fast the machine is does not matter.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "observe.h"
#include "tap.h"
#include "tracing.h"

enum { CODES = 32, MAX_RESTS = 16 };

/* IBA table 45, in microseconds. */
static const uint32_t rnr_us[CODES] = {
	655360, 10,    20,    30,     40,     60,     80,     120,
	160,	240,   320,   480,    640,    960,    1280,   1920,
	2560,	3840,  5120,  7680,   10240,  15360,  20480,  30720,
	40960,	61440, 81920, 122880, 163840, 245760, 327680, 491520,
};

/* Of each event @name in @text the time until the request comes again; how many. */
static int rests_in(char *text, const char *name, uint64_t *ns)
{
	static const char key[] = "again_in_ns=";
	char *rest = text, *line, *value;
	int n = 0;

	while (n < MAX_RESTS && (line = next_event(&rest)))
		if (has_words(line, name)) {
			value = strstr(line, key);
			if (!value)
				bail("no %s in: %s", key, line);
			ns[n++] = strtoull(value + strlen(key), NULL, 10);
		}
	return n;
}

/* The first rest of a request that is to be repeated once. */
static bool rests_for(struct setup *setup, enum ibv_wr_opcode opcode,
		      const char *name, uint64_t expected)
{
	uint64_t ns[MAX_RESTS] = { 0 };
	char *text;
	int n;

	trace_on();
	request(setup, 1, opcode, 8);
	text = trace_off();
	n = rests_in(text, name, ns);
	free(text);
	return check(n > 0 && ns[0] == expected,
		     "%s %d times, %" PRIu64 " ns instead of %" PRIu64, name, n,
		     ns[0], expected);
}

static struct endpoint_options once_more(void)
{
	struct endpoint_options options = impatient_options();

	options.retry_count = 1;
	options.rnr_retry = 1;
	return options;
}

static bool rnr_timers(struct setup *setup)
{
	struct endpoint_options options = once_more();
	uint64_t code;
	bool ok = true;

	for (code = 0; code < CODES; code++) {
		options.rnr_timer = code;
		pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
			    &options);
		ok = check(rests_for(setup, IBV_WR_SEND,
				     "mic_rnr_retry:", 1000ULL * rnr_us[code]),
			   "min_rnr_timer %" PRIu64, code) &&
		     ok;
		pair_destroy(&setup->a, &setup->b);
	}
	return ok;
}

/* IBA 9.7.6.1.3; 0, which is "for ever", asks ten times a second. */
static bool timeouts(struct setup *setup)
{
	struct endpoint_options options = once_more();
	uint64_t code;
	bool ok = true;

	for (code = 0; code < CODES; code++) {
		options.timeout = code;
		pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
			    &options);
		endpoint_set_state(&setup->b, IBV_QPS_ERR);
		ok = check(rests_for(setup, IBV_WR_RDMA_WRITE, "mic_retry:",
				     code ? 4096ULL << code : 100000000),
			   "timeout %" PRIu64, code) &&
		     ok;
		pair_destroy(&setup->a, &setup->b);
	}
	return ok;
}

/* Without an end, each time twice as long as the last, up to a millisecond. */
static bool rnr_for_ever(struct setup *setup)
{
	static const uint64_t expected[] = { 10000,  20000,   40000,
					     80000,  160000,  320000,
					     640000, 1000000, 1000000 };
	struct endpoint_options options = impatient_options();
	const uint64_t end = deadline();
	uint64_t ns[MAX_RESTS] = { 0 };
	char *text;
	int n, i;
	bool ok;

	options.rnr_retry = 7;
	options.rnr_timer = 1;
	pair_create(&setup->a, &setup->a_dev, &setup->b, &setup->b_dev,
		    &options);
	trace_on();
	request(setup, 1, IBV_WR_SEND, 8);
	do {
		sleep_ms(10);
		text = trace_read();
		n = rests_in(text, "mic_rnr_retry:", ns);
		free(text);
	} while (n < (int)COUNT(expected) && now_ms() < end);
	free(trace_off());
	ok = check(n >= (int)COUNT(expected), "tried %d times", n);
	for (i = 0; ok && i < (int)COUNT(expected); i++)
		ok = check(ns[i] == expected[i], "rest %d: %" PRIu64 " ns", i,
			   ns[i]);
	receive(setup, 5);
	ok = cq_expect(setup->a.send_cq, 1, IBV_WC_SUCCESS) &&
	     cq_expect(setup->b.recv_cq, 5, IBV_WC_SUCCESS) && ok;
	pair_destroy(&setup->a, &setup->b);
	return ok;
}

void test_timers(struct setup *setup)
{
	trace_open();
	tap_ok(rnr_timers(setup), "timers: each of min_rnr_timer");
	tap_ok(timeouts(setup), "timers: each timeout");
	tap_ok(rnr_for_ever(setup), "timers: not ready for long");
	trace_close();
}
