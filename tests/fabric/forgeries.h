/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The lies of forged: each with what it is answered with, and what it may change.
 */
#ifndef FORGERIES_H
#define FORGERIES_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "memory.h"

#define PAGE(n) ((n) * (int)PAGE_BYTES)

/* Whom the queue pairs are connected to; forgeries say so by these numbers. */
enum { PEER_QPN = 999, PEER_PSN = 100 };

enum { ARENA = PAGE(16), WORD = 64, TOLD = 0x5c, MAX_LIES = 128 };

enum key { OPEN, READONLY, OTHER_PD, GONE, DEVICE, SECOND, KEYS };

/* What is registered of the arena; the pages between them belong to nobody. */
static const struct {
	int offset;
	int length;
	int access;
} parts[] = {
	[OPEN] = { PAGE(4), PAGE(4), ACCESS_ALL },
	[READONLY] = { PAGE(9), PAGE(1), IBV_ACCESS_REMOTE_READ },
	[OTHER_PD] = { PAGE(11), PAGE(1), ACCESS_ALL },
	[GONE] = { PAGE(13), PAGE(1), ACCESS_ALL },
};

enum { LAND = PAGE(2), RECEIVE = PAGE(14) };

/**
 * struct forgery - a request
 * @name: what is wrong with it
 * @key: it names this memory,
 * @off: from this byte on
 * @lie: fields that are not those of a WRITE of 64 bytes
 * @outcome: beginning of what is said of it: the answer, enum mic_ack, and its result
 * @times: it is sent so often; 0: once
 * @again: to the same queue pair as the one before
 * @own: to one whose peer is on this machine
 * @ud: to one for datagrams
 * @access: rights of the queue pair; 0: all
 * @receive: one of 64 bytes is posted
 * @writes: so many bytes change, of the receive or at @off
 */
struct forgery {
	const char *name;
	enum key key;
	int64_t off;
	const char *lie;
	const char *outcome;
	int times;
	bool again;
	bool own;
	bool ud;
	int access;
	bool receive;
	int writes;
};

#define READ "code=2 bytes=0 "
#define ADD "code=4 bytes=0 length=8 seg_len=8 compare_add=1 "
#define PUT "code=5 bytes=8 length=8 seg_len=8 "
#define MAP "code=6 bytes=0 length=0 seg_len=0 compare_add=4096 swap=6 "
#define SEND "code=0 "
#define SIZE(n) "length=" #n " seg_len=" #n " bytes=" #n " "

#define OK "0 "
#define RNR "1 "
#define INVALID "2 "
#define ACCESS "3 "
#define NOTHING "5 "
#define BROKEN "broken"

/* What an atomic finds: GUARD_BYTE eight times, or a little more. */
#define FOUND(digit) "1193612851828265104" #digit " "

/* All that each has. */
#define FORGERY(name_, key_, off_, lie_, outcome_)                             \
	.name = (name_), .key = (key_), .off = (off_), .lie = (lie_),          \
	.outcome = (outcome_)

static const struct forgery forgeries[] = {
	/* what the key gives, it gives to the whole node */
	{ FORGERY("a WRITE", OPEN, 0, "", OK), .writes = WORD },
	{ FORGERY("a READ", OPEN, WORD, READ, "0 0 0 0 0 165") },
	{ FORGERY("an atomic", OPEN, 2 * WORD, ADD, OK), .writes = 8 },

	{ FORGERY("a WRITE behind the region", OPEN, PAGE(4), "", ACCESS) },
	{ FORGERY("a WRITE across its end", OPEN, PAGE(4) - WORD + 1, "",
		  ACCESS) },
	{ FORGERY("a WRITE before it", OPEN, -1, "", ACCESS) },
	{ FORGERY("a READ before it", OPEN, -1, READ, ACCESS) },
	{ FORGERY("an address that wraps", OPEN, 0, "raddr=0xffffffffffffffe0",
		  ACCESS) },
	{ FORGERY("a WRITE by a key to read", READONLY, 0, "", ACCESS) },
	{ FORGERY("an atomic by a key to read", READONLY, 0, ADD, ACCESS) },
	{ FORGERY("a key of another domain", OTHER_PD, 0, "", ACCESS) },
	{ FORGERY("a key that is gone", GONE, 0, "", ACCESS) },
	{ FORGERY("no key", OPEN, 0, "rkey=0", ACCESS) },
	{ FORGERY("a queue pair without that right", OPEN, 0, "", INVALID),
	  .access = IBV_ACCESS_REMOTE_READ },
	{ FORGERY("an atomic across words", OPEN, 4, ADD, INVALID) },

	{ FORGERY("another sender's queue pair", OPEN, 0, "src_qpn=998",
		  NOTHING) },
	{ FORGERY("a GID of the node it is for", OPEN, 0, "sender=0",
		  NOTHING) },
	{ FORGERY("for a peer that is on the node it is for", OPEN, 0,
		  "sender=0", NOTHING),
	  .own = true },
	{ FORGERY("a GID of nobody", OPEN, 0, "sender=77", NOTHING) },
	{ FORGERY("a number out of sequence", OPEN, 0, "psn=105", NOTHING) },
	{ FORGERY("another service", OPEN, 0, "service=3", NOTHING) },
	{ FORGERY("an end without a beginning", OPEN, 0,
		  "seg_off=32768 length=32832 flags=2", NOTHING) },
	{ FORGERY("no such queue pair", OPEN, 0, "dst_qpn=0xabcdef", NOTHING) },

	{ FORGERY("the beginning of a message", OPEN, 4 * WORD,
		  "length=8192 seg_len=64 flags=1", OK),
	  .writes = WORD },
	{ FORGERY("its end with another key", OTHER_PD, 0,
		  "seg_off=64 length=128 flags=2", ACCESS),
	  .again = true },
	{ FORGERY("the beginning of a message", OPEN, 6 * WORD,
		  "length=128 seg_len=64 flags=1", OK),
	  .writes = WORD },
	{ FORGERY("its end elsewhere", OPEN, PAGE(4) - WORD,
		  "seg_off=64 length=128 flags=2", ACCESS),
	  .again = true },

	/* what has been carried out is not once more */
	{ FORGERY("a WRITE", OPEN, 8 * WORD, "", OK), .writes = WORD },
	{ FORGERY("the same number again", OPEN, PAGE(2), "", OK),
	  .again = true },
	{ FORGERY("as an atomic", OPEN, PAGE(2), ADD, NOTHING), .again = true },
	{ FORGERY("as a READ by a key that is gone", GONE, 0, READ, NOTHING),
	  .again = true },
	{ FORGERY("as a message of two numbers", OPEN, PAGE(2), "npsn=2",
		  NOTHING),
	  .again = true },
	{ FORGERY("the number before it", OPEN, PAGE(2), "psn=99", NOTHING),
	  .again = true },
	{ FORGERY("as a READ", OPEN, WORD, READ, "0 0 0 0 0 165"),
	  .again = true },
	{ FORGERY("the next WRITE", OPEN, 9 * WORD, "psn=101", OK),
	  .again = true, .writes = WORD },
	{ FORGERY("an atomic", OPEN, 10 * WORD, ADD, OK FOUND(5)),
	  .writes = 8 },
	{ FORGERY("the same number again", OPEN, PAGE(2), ADD, OK FOUND(5)),
	  .again = true },
	{ FORGERY("the next one", OPEN, 10 * WORD, ADD "psn=101", OK FOUND(6)),
	  .again = true, .writes = 8 },
	{ FORGERY("the first again", OPEN, 10 * WORD, ADD, OK FOUND(5)),
	  .again = true },
	{ FORGERY("the last one", OPEN, 10 * WORD, ADD "psn=102", OK FOUND(7)),
	  .again = true, .writes = 8 },
	{ FORGERY("an atomic write", OPEN, 11 * WORD, PUT, OK), .writes = 8 },
	{ FORGERY("the same number again", OPEN, PAGE(2), PUT, OK),
	  .again = true },
	/* it has found nothing that would be kept */
	{ FORGERY("as another atomic", OPEN, PAGE(2), ADD, NOTHING),
	  .again = true },
	{ FORGERY("a SEND", OPEN, 0, SEND, OK), .receive = true,
	  .writes = WORD },
	{ FORGERY("the same number again", OPEN, 0, SEND, OK), .again = true },
	{ FORGERY("the next one, without a receive", OPEN, 0, SEND "psn=101",
		  RNR),
	  .again = true },

	{ FORGERY("a SEND without a receive", OPEN, 0, SEND, RNR) },
	{ FORGERY("a SEND that is longer than the receive", OPEN, 0,
		  SEND SIZE(4096), INVALID),
	  .receive = true },
	{ FORGERY("the beginning of a SEND", OPEN, 0,
		  SEND "seg_len=32 bytes=32 flags=1", OK),
	  .receive = true, .writes = 32 },
	{ FORGERY("its end that is longer than the receive", OPEN, 0,
		  SEND "length=4096 seg_off=32 seg_len=4064 bytes=4064 flags=2",
		  INVALID),
	  .again = true },
	{ FORGERY("the beginning of a SEND", OPEN, 0,
		  SEND "seg_len=16 bytes=16 flags=1", OK),
	  .receive = true, .writes = 16 },
	{ FORGERY("the beginning of a READ with its number", OPEN, 0,
		  READ "seg_len=48 flags=1", OK),
	  .again = true },
	{ FORGERY("the SEND's end behind that", OPEN, 0,
		  SEND "seg_off=48 seg_len=16 bytes=16 flags=2", NOTHING),
	  .again = true },
	{ FORGERY("a datagram", OPEN, 0,
		  SEND SIZE(16) "service=4 qkey=0x11223344", OK),
	  .ud = true, .receive = true, .writes = 40 + 16 },
	{ FORGERY("a datagram of nobody", OPEN, 0,
		  SEND SIZE(16) "service=4 qkey=0x11223344 sender=77", NOTHING),
	  .ud = true, .receive = true },
	{ FORGERY("a datagram longer than the port's MTU", OPEN, 0,
		  SEND SIZE(8192) "service=4 qkey=0x11223344", NOTHING),
	  .ud = true, .receive = true },
	{ FORGERY("a short one to the same", OPEN, 0,
		  SEND SIZE(16) "service=4 qkey=0x11223344", OK),
	  .ud = true, .again = true, .writes = 40 + 16 },
	{ FORGERY("a datagram without its key", OPEN, 0,
		  SEND "service=4 qkey=0x11223345", NOTHING),
	  .ud = true },
	{ FORGERY("a datagram too long for management", OPEN, 0,
		  SEND SIZE(4096) "service=1 dst_qpn=1 qkey=0x80010000",
		  NOTHING) },

	{ FORGERY("a window of ordinary memory", OPEN, 0, MAP, OK "95 ") },
	{ FORGERY("a window by a key to read", READONLY, 0, MAP, OK "95 ") },
	{ FORGERY("a window by a key that is gone", GONE, 0, MAP, OK "13 "),
	  .times = 8 },
	{ FORGERY("a window by a true key after guessing", DEVICE, 0, MAP,
		  OK "13 "),
	  .again = true },
	{ FORGERY("a window of device memory", DEVICE, 0, MAP, OK "0 ") },
	{ FORGERY("another one", SECOND, 0, MAP, OK "0 ") },
};

/* These make no sense to any kernel: the path goes down, and comes back. */
static const struct forgery nonsense[] = {
	{ FORGERY("no such request", OPEN, 0, "code=7", BROKEN) },
	{ FORGERY("more than a record may have", OPEN, 0,
		  "length=65536 seg_len=65536", BROKEN) },
	{ FORGERY("a READ of more than that", OPEN, 0,
		  READ "length=0x40000000 seg_len=0x40000000", BROKEN) },
	{ FORGERY("a READ that wants no answer", OPEN, 0, READ "rec_flags=3",
		  BROKEN) },
	{ FORGERY("a segment behind the message", OPEN, 0, "seg_off=64",
		  BROKEN) },
	{ FORGERY("a segment that wraps", OPEN, 0, "seg_off=0xffffffff",
		  BROKEN) },
	{ FORGERY("data behind the record", OPEN, 0, "payload=4096", BROKEN) },
	{ FORGERY("a record behind what is written", OPEN, 0, "size=0x100000",
		  BROKEN) },
	{ FORGERY("a record of no size", OPEN, 0, "size=0", BROKEN) },
	{ FORGERY("an answer as a request", OPEN, 0, "type=2", BROKEN) },
	{ FORGERY("and a WRITE after that", OPEN, 8 * WORD, "", OK),
	  .writes = WORD },
};

/* What a READ is answered with. A repetition is refused. */
static const struct {
	const char *name;
	const char *lie;
	enum ibv_wc_status status;
} answers[] = {
	{ "the truth", "lie=truth", IBV_WC_SUCCESS },
	{ "answers to nobody first", "lie=nobody", IBV_WC_SUCCESS },
	{ "more than was asked for", "lie=more", IBV_WC_REM_ACCESS_ERR },
	{ "data behind it", "lie=elsewhere", IBV_WC_REM_ACCESS_ERR },
	{ "data before it", "lie=before", IBV_WC_REM_ACCESS_ERR },
	{ "the data twice", "lie=twice", IBV_WC_REM_ACCESS_ERR },
	{ "some of the data", "lie=little", IBV_WC_REM_ACCESS_ERR },
	{ "data behind the record", "lie=longer", IBV_WC_REM_ACCESS_ERR },
	{ "no answer that there is", "lie=pending", IBV_WC_REM_ACCESS_ERR },
};

/* What may be mapped, it says, where so many pages were asked for. */
struct offer {
	const char *name;
	const char *lie;
	bool granted;
	int pages;
};

static const struct offer maps[] = {
	{ "memory of its slice", "lie=window", true, 1 },
	{ "the table there", "lie=table", false, 1 },
	{ "the region's header", "lie=header", false, 1 },
	{ "a slice of this node", "lie=victim", false, 1 },
	{ "more than its slice has", "lie=end", false, 1 },
	{ "an offset that wraps", "lie=wrap", false, 1 },
	{ "a part of a page", "lie=part", false, 1 },
	{ "no place in the table", "lie=slot", false, 1 },
	{ "what the table does not say", "lie=dead", false, 1 },
	{ "more than was asked for", "lie=size", false, 1 },
	{ "something else", "lie=place", false, 1 },
	{ "without the rights", "lie=rights", false, 1 },
};

/* Where in its memory that is, it says. */
static const struct offer extents[] = {
	{ "two of its pages", "lie=extents-two", true, 2 },
	{ "the same page twice", "lie=extents-same", true, 2 },
	{ "as many extents as there can be", "lie=extents-most", true, 2048 },
	{ "one extent more", "lie=extents-too-many", false, 2049 },
	{ "less than was asked for", "lie=extents-few", false, 2 },
	{ "more than was asked for", "lie=extents-more", false, 2 },
	{ "an empty extent between", "lie=extents-none", false, 2 },
	{ "empty extents alone", "lie=extents-empty", false, 2 },
	{ "a part of a page", "lie=extents-odd", false, 2 },
	{ "lengths that are not of pages", "lie=extents-bytes", false, 2 },
	{ "an extent at the end of all addresses", "lie=extents-wrap", false,
	  2 },
	{ "lengths whose sum wraps", "lie=extents-around", false, 2 },
	{ "a length that nothing has", "lie=extents-huge", false, 2 },
	{ "what is before its memory", "lie=extents-before", false, 2 },
	{ "what is behind its memory", "lie=extents-behind", false, 2 },
	{ "from one piece of it to the next", "lie=extents-both", false, 2 },
	{ "across its end", "lie=extents-across", false, 2 },
	{ "half an extent", "lie=extents-half", false, 2 },
	{ "the list twice", "lie=extents-again", false, 2 },
	{ "a list behind the record", "lie=extents-behind-record", false, 2 },
	{ "two of its pages after that", "lie=extents-two", true, 2 },
	/* Who has told the last one leaves, and takes back what it has granted. */
	{ "less again", "lie=extents-few", false, 2 },
};

#endif /* FORGERIES_H */
