/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The shared region, byte by byte. Documentation/fabric.md tells how it is
 * used.
 *
 * All nodes run on one machine, so numbers have that machine's byte order; a
 * region of another order does not have the right magic. Every field has one
 * writer, and whoever reads one does not believe it.
 */
#ifndef MIC_IVSHMEM_LAYOUT_H
#define MIC_IVSHMEM_LAYOUT_H

#include <linux/build_bug.h>
#include <linux/if_ether.h>
#include <linux/types.h>

#define MIC_REGION_MAGIC	0x316261662d63696dULL	/* "mic-fab1" */
#define MIC_REGION_VERSION	2
#define MIC_BEACON_MAGIC	0x636165622d63696dULL	/* "mic-beac" */

enum mic_region_limits {
	MIC_REGION_NODES = 16,		/* nodes a region can have */
	MIC_REGION_GIDS = 56,		/* GIDs a node can publish */
	MIC_REGION_HDR = 4096,		/* bytes of the header */
	MIC_REGION_ALIGN = 64,		/* of records */
	MIC_LANE_MIN = 512 << 10,
	MIC_LANE_MAX = 4 << 20,
	MIC_MAP_SLOTS = 256,		/* grants of a node to another */
	MIC_REGION_BEACONS = 2,		/* beacons in a node's memory */
	MIC_BEACON_NODES = 8,		/* regions a machine is found in */
	MIC_BEACON_STEP = 1 << 20,	/* one in this much of an aperture */
};

/**
 * struct mic_region_hdr - at the region's start; written by who formats it
 * @magic: written last
 * @version: MIC_REGION_VERSION
 * @nodes: entries of the node table
 * @size: bytes of the region that are in use
 * @lane_size: bytes of a lane, a power of two
 * @id: random
 * @table: offset of the node table, &struct mic_region_node
 * @channels: offset of the channels, &struct mic_region_channel
 * @lanes: offset of the lanes
 * @slices: offset of the nodes' slices of device memory
 * @slice_size: bytes of each slice
 * @lock: not 0: someone formats the region
 */
struct mic_region_hdr {
	u64 magic;
	u32 version;
	u32 nodes;
	u64 size;
	u32 lane_size;
	u32 id;
	u64 table;
	u64 channels;
	u64 lanes;
	u64 slices;
	u64 slice_size;
	u32 lock;
	/* private: */
	u32 zero;			/* and all up to MIC_REGION_HDR */
};

/* A GID that a node can be reached under, and the Ethernet address it has. */
struct mic_region_gid {
	u8 gid[16];
	u8 mac[ETH_ALEN];
	u8 zero[10];
};

/**
 * struct mic_region_node - entry of the node table; written by the node
 * @owner: random, not 0 while the entry is taken; taken with compare-and-swap
 * @generation: one more with each owner
 * @doorbell: number that rings the node
 * @vectors: its interrupts; 0 if it can't be interrupted and polls
 * @mac: address of its network interface
 * @heartbeat: counts while the node lives
 * @beacon_id: random, what each &struct mic_beacon begins with; 0: there is none
 * @beacon: the node's addresses of them; 0: none
 * @gid_seq: odd while the GIDs change
 * @ngid: number of GIDs
 * @gid: GIDs
 */
struct mic_region_node {
	u32 owner;
	u32 generation;
	u32 doorbell;
	u32 vectors;
	u8 mac[ETH_ALEN];
	/* private: */
	u8 zero0[42];
	/* public: */
	u64 heartbeat;			/* 64 */
	u8 beacon_id[16];
	u64 beacon[MIC_REGION_BEACONS];
	/* private: */
	u8 zero1[24];
	/* public: */
	u32 gid_seq;			/* 128 */
	u32 ngid;
	/* private: */
	u8 zero2[56];
	/* public: */
	struct mic_region_gid gid[MIC_REGION_GIDS];	/* 192 */
	/* private: */
	u8 zero3[64];
};

/**
 * struct mic_beacon_node - which node of a region the memory is of
 * @owner: &mic_region_node.owner; 0: of none
 * @region: &mic_region_hdr.id
 * @slot: number of its entry
 */
struct mic_beacon_node {
	u32 owner;
	u32 region;
	u32 slot;
	/* private: */
	u32 zero;
};

/**
 * struct mic_beacon - at the beginning of a page of a node's own memory
 * @magic: MIC_BEACON_MAGIC
 * @id: &mic_region_node.beacon_id
 * @addr: address of the page, as the node has it
 * @start: first byte of the memory that the page is in
 * @end: behind its last byte
 * @node: what the machine is in the regions that it has joined
 *
 * Who has an aperture looks for it there, and knows by it whose memory that is, and
 * what is where. What a region says of it is not believed alone: there all nodes can
 * write, here only who has the aperture.
 */
struct mic_beacon {
	u64 magic;
	u8 id[16];
	u64 addr;
	u64 start;
	u64 end;
	struct mic_beacon_node node[MIC_BEACON_NODES];	/* 48 */
};

enum mic_lane_id {
	MIC_LANE_REQUEST,	/* operations and their data */
	MIC_LANE_RESPONSE,	/* answers, and the data of READs */
	MIC_LANE_FRAME,		/* Ethernet frames */
	MIC_LANES,
};

/**
 * struct mic_region_channel - from one node to another
 * @session: written by the sender: its session in the lower half, the session
 *	of the other direction that it has seen in the upper
 * @want_room: the sender waits for room in a lane
 * @prod: bytes that the sender has written to each lane, modulo 2^32
 * @maps: another number whenever the sender has changed a &struct mic_region_map
 *	that the receiver should look at
 * @cons: written by the receiver: bytes that it has done with
 * @need_kick: the receiver sleeps; another number each time
 */
struct mic_region_channel {
	u64 session;
	u32 want_room;
	u32 prod[MIC_LANES];
	u32 maps;			/* 24 */
	/* private: */
	u8 zero0[36];
	/* public: */
	u32 cons[MIC_LANES];		/* 64 */
	u32 need_kick;
	/* private: */
	u8 zero1[48];
};

/**
 * struct mic_region_map - a part of a slice that another node may map
 * @grant: written by the slice's node: a number that is new each time (31 bits)
 *	times 2, plus 1 as long as it may be mapped
 * @ack: written by the other node: the last such number whose part it has not
 *	mapped any more, nor ever will
 *
 * A slice begins with MIC_MAP_SLOTS of them for each node that there can be.
 */
struct mic_region_map {
	u32 grant;
	u32 ack;
};

#define MIC_MAP_LIVE		1U
#define MIC_SLICE_TABLE		\
	(MIC_REGION_NODES * MIC_MAP_SLOTS * sizeof(struct mic_region_map))

enum mic_rec_type {
	MIC_REC_PAD,		/* nothing; up to the lane's end */
	MIC_REC_REQUEST,
	MIC_REC_RESPONSE,
	MIC_REC_FRAME,
	MIC_REC_PING,		/* to be answered with MIC_REC_PONG */
	MIC_REC_PONG,
};

enum mic_rec_flags {
	MIC_REC_FIRST = 1 << 0,	/* of the records that have one answer */
	MIC_REC_LAST = 1 << 1,
	MIC_REC_ACK = 1 << 2,	/* an answer is wanted */
	MIC_REC_FLAGS = MIC_REC_FIRST | MIC_REC_LAST | MIC_REC_ACK,
};

/**
 * struct mic_rec - what a record begins with
 * @size: bytes of the whole record, a multiple of MIC_REGION_ALIGN
 * @type: enum mic_rec_type
 * @flags: enum mic_rec_flags
 * @zero: 0
 * @tag: requests: to be returned with the answer
 * @payload: bytes behind the record's header
 */
struct mic_rec {
	u32 size;
	u8 type;
	u8 flags;
	u16 zero;
	u32 tag;
	u32 payload;
};

/* MIC_REC_REQUEST: the fields of &struct mic_op and &struct mic_addr. */
struct mic_rec_request {
	struct mic_rec rec;
	u8 code;			/* 16 */
	u8 flags;
	u8 service;
	u8 ipv4;
	u32 src_qpn;
	u32 dst_qpn;
	u32 psn;
	u32 npsn;
	u32 xrc_srqn;
	u32 rkey;
	u32 length;
	u64 raddr;			/* 48 */
	u64 compare_add;
	u64 swap;
	u32 seg_off;			/* 72 */
	u32 seg_len;
	u32 ex;
	u32 qkey;
	u16 pkey_index;			/* 88 */
	u16 vlan_id;
	u8 sl;
	u8 traffic_class;
	u8 hop_limit;
	u8 zero0;
	u32 flow_label;			/* 96 */
	u32 zero1;
	u8 sgid[16];			/* 104 */
	u8 dgid[16];
	u8 dmac[ETH_ALEN];		/* 136 */
	u8 smac[ETH_ALEN];
	u8 zero2[44];
};

/*
 * MIC_REC_RESPONSE; the payload is data of a READ. The answer to MIC_OP_MAP has the
 * fields of &struct mic_map, and perhaps a list of &struct mic_extent.
 */
struct mic_rec_response {
	struct mic_rec rec;
	u8 ack;				/* 16 */
	u8 rnr_timer;
	u16 zero0;
	u32 seg_off;			/* where the payload is in the message */
	u64 result;			/* 24 */
	u64 map_addr;			/* 32 */
	u64 map_length;
	u64 map_offset;
	u32 map_gen;			/* 56 */
	u16 map_slot;
	u8 map_access;
	u8 zero1;
};

/* MIC_REC_FRAME; the offloads are those of &struct virtio_net_hdr. */
struct mic_rec_frame {
	struct mic_rec rec;
	u8 vnet[12];			/* 16 */
	u8 zero[36];
};

static_assert(sizeof(struct mic_region_hdr) <= MIC_REGION_HDR);
static_assert(offsetof(struct mic_region_hdr, lock) == 72);
static_assert(sizeof(struct mic_region_hdr) == 80);
static_assert(sizeof(struct mic_region_node) == 2048);
static_assert(offsetof(struct mic_region_node, heartbeat) == 64);
static_assert(offsetof(struct mic_region_node, beacon_id) == 72);
static_assert(offsetof(struct mic_region_node, gid_seq) == 128);
static_assert(offsetof(struct mic_beacon, node) == 48);
static_assert(sizeof(struct mic_beacon_node) == 16);
static_assert(offsetof(struct mic_region_node, gid) == 192);
static_assert(sizeof(struct mic_region_channel) == 128);
static_assert(offsetof(struct mic_region_channel, cons) == 64);
static_assert(sizeof(struct mic_region_map) == 8);
static_assert(MIC_SLICE_TABLE == 32768);
static_assert(sizeof(struct mic_rec) == 16);
static_assert(sizeof(struct mic_rec_request) == 192);
static_assert(offsetof(struct mic_rec_request, raddr) == 48);
static_assert(offsetof(struct mic_rec_request, sgid) == 104);
static_assert(sizeof(struct mic_rec_response) == 64);
static_assert(sizeof(struct mic_rec_frame) == 64);

#endif /* MIC_IVSHMEM_LAYOUT_H */
