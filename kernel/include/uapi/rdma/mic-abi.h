/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * The contract between the ib_mic kernel driver and its userspace provider:
 * driver data of uverbs commands, the layout of the queues in shared memory
 * and the doorbell file.
 *
 * Each field in shared memory is written by one side, named beside it, but for
 * the word that arms a completion queue. The kernel treats all of it as hostile:
 * it reads a field once, checks the copy and uses only that.
 */
#ifndef MIC_ABI_USER_H
#define MIC_ABI_USER_H

#include <linux/types.h>
#include <linux/ioctl.h>
#include <rdma/ib_user_ioctl_cmds.h>

/* ib_device.ops.uverbs_abi_ver: raised when a change here is incompatible. */
#define MIC_UVERBS_ABI_VERSION	1

/* ib_device.ops.driver_id: "mic" in ASCII, far above the assigned ids. */
#define MIC_DRIVER_ID		0x6d6963

/*
 * The doorbell file. Each user context owns one; the kernel returns its file
 * descriptor (close-on-exec) when the context is allocated or queried. Queue
 * memory is mapped through it: mmap(fd, size, ..., mmap_offset) with the two
 * values a create command returned, shared, read-write.
 *
 * MIC_IOC_DOORBELL tells the engine that the send queue of QP number @arg has
 * new work. It is needed only if mic_ring_ctl.need_kick says so. Returns 0, or
 * -1 with errno ENOENT (no such QP in this context), EIO (the device is gone).
 */
#define MIC_IOC_MAGIC		'm'
#define MIC_IOC_DOORBELL	_IO(MIC_IOC_MAGIC, 0x80)

/*
 * The same for a caller that does not want to do the work: the kernel's worker
 * does it, soon.
 */
#define MIC_IOC_DOORBELL_LATER	_IO(MIC_IOC_MAGIC, 0x84)

/*
 * More calls on the doorbell file. A process that completes requests of its
 * own queue pairs by itself (see the windows below) makes them for what only
 * the kernel can do; @arg is a QP number, whose send CQ is meant.
 *
 * MIC_IOC_WINDOWS: no argument; returns the descriptor (close-on-exec) of a
 *	new windows file.
 * MIC_IOC_CQ_EVENT: a completion was added; raise the event if it is waited
 *	for.
 * MIC_IOC_CQ_OVERRUN: a completion was lost for want of room.
 *
 * MIC_IOC_POLL (no argument) is for who polls a completion queue in vain of which
 * mic_cq_ctl.remote says so: it looks whether other machines have sent something,
 * as the kernel would do a little later. Returns 1 if there was something, not
 * necessarily a completion, and 0 if there was not, or somebody else looks.
 *
 * Errors: of those with a QP number ENOENT and EIO, as above; of MIC_IOC_POLL EIO; of
 * MIC_IOC_WINDOWS EMFILE, ENFILE, ENOMEM. Calls that this kernel does not have: ENOTTY.
 */
#define MIC_IOC_WINDOWS		_IO(MIC_IOC_MAGIC, 0x81)
#define MIC_IOC_CQ_EVENT	_IO(MIC_IOC_MAGIC, 0x82)
#define MIC_IOC_CQ_OVERRUN	_IO(MIC_IOC_MAGIC, 0x83)
#define MIC_IOC_POLL		_IO(MIC_IOC_MAGIC, 0x85)

/*
 * The windows file: memory of peers, mapped into this process.
 *
 * MIC_IOC_IMPORT asks for the memory behind an rkey that a connected queue
 * pair may use, and gives it a slot. The memory can then be mapped, shared, at
 * @offset (rounded down to a page) of this file; with PROT_WRITE if @offset
 * has MIC_WINDOW_WRITABLE set. MIC_IOC_DROP (@arg is the slot) gives the slot
 * back; whoever did that must not access the memory any more.
 *
 * An offset is made of a class and the slot: class << MIC_WINDOW_CLASS_SHIFT |
 * slot << class | byte. The class is the log2 of the size of the slot's part
 * of the file, so many small windows can be mapped at once.
 *
 * Slot i has the state word i in the memory that is mapped, read-only, at
 * MIC_WINDOW_STATES. The kernel revokes a window at any time, whatever its
 * owner does: it sets MIC_WINDOW_REVOKED, and the window's memory is replaced
 * by a private page which nobody else sees. When an access meets that page,
 * MIC_WINDOW_SCRATCH is set before. So an access is known to have reached the
 * peer's memory, entirely, if MIC_WINDOW_SCRATCH is not set afterwards.
 *
 * Errors: ENOTCONN (not now: queue pair or peer are in no state for it),
 * EACCES (the key does not exist or does not allow it, or the peer was asked for
 * too many that don't exist; then it is so until it resets its queue pair), ERANGE
 * (not within the key's bounds), EPERM (the key allows it, but a mapping would give more),
 * EOPNOTSUPP (the peer or its memory can't be mapped), ENOSPC (no slot left),
 * ENOENT (no such queue pair), EINVAL (rights that are not remote ones; of
 * MIC_IOC_DROP, no such slot), ETIMEDOUT (another machine has not answered within
 * MIC_WINDOW_BRIEF's time; ENOTCONN if it never does), EIO (the device is gone),
 * ENOMEM, EFAULT. EPERM also if the file is another process's.
 */
#define MIC_IOC_IMPORT		_IOWR(MIC_IOC_MAGIC, 0x90, \
				      struct mic_window_import)
#define MIC_IOC_DROP		_IO(MIC_IOC_MAGIC, 0x91)

/*
 * With @access: who posts requests has no time. Where another machine has to be
 * asked, it has a tenth of a second to answer, otherwise ten.
 */
#define MIC_WINDOW_BRIEF	0x80000000U

/*
 * With the @access that is granted: the memory is the caller's own. What it copies there
 * may overlap with where it comes from, which addresses of a mapping do not tell. The
 * byte that the key calls A is at A, unless MIC_WINDOW_RENAMED is set as well.
 */
#define MIC_WINDOW_OWN		0x40000000U
#define MIC_WINDOW_RENAMED	0x20000000U

#define MIC_WINDOW_SLOTS	0x20000
#define MIC_WINDOW_CLASS_SHIFT	56
#define MIC_WINDOW_CLASS_MIN	12
#define MIC_WINDOW_CLASS_MAX	39
#define MIC_WINDOW_WRITABLE	0x4000000000000000ULL
#define MIC_WINDOW_STATES	0	/* MIC_WINDOW_SLOTS words of 32 bits */

enum mic_window_state {
	MIC_WINDOW_REVOKED = 1 << 0,
	MIC_WINDOW_SCRATCH = 1 << 1,
};

struct mic_window_import {
	/* in */
	__u32 qpn;
	__u32 rkey;
	/* in: the range wanted, 0 bytes for all there is; out: that granted */
	__aligned_u64 addr;
	__aligned_u64 length;
	/*
	 * in: the rights without which it is of no use, and MIC_WINDOW_BRIEF; out: those
	 * granted, and MIC_WINDOW_OWN
	 */
	__u32 access;		/* enum ib_uverbs_access_flags, remote ones */
	/* out */
	__u32 slot;
	__aligned_u64 offset;	/* of the byte at @addr */
};

/*
 * Watches, also of the windows file: a state word tells if a range of this
 * process's own memory is what it was.
 *
 * MIC_IOC_WATCH gives the range a slot, as above; its word is 0 at first. Before
 * any of the range is unmapped, moved, or gets another page, MIC_WATCH_CHANGED
 * is set, and before its protection changes MIC_WATCH_PROTECTED. Either may
 * also be set without need; neither is ever cleared. MIC_IOC_UNWATCH (@arg is
 * the slot) gives the slot back.
 *
 * So memory that is registered after the watch was made is the memory that is
 * mapped as long as the word is 0.
 *
 * Errors: EINVAL (an empty range, one beyond the last address, or no such slot; or
 * @reserved is not 0), ENOSPC (no slot left), ENOMEM, EFAULT, EPERM (the file is
 * another process's).
 */
#define MIC_IOC_WATCH		_IOWR(MIC_IOC_MAGIC, 0x92, \
				      struct mic_memory_watch)
#define MIC_IOC_UNWATCH		_IO(MIC_IOC_MAGIC, 0x93)

enum mic_watch_state {
	MIC_WATCH_CHANGED = 1 << 0,
	MIC_WATCH_PROTECTED = 1 << 1,
};

struct mic_memory_watch {
	/* in */
	__aligned_u64 addr;
	__aligned_u64 length;
	/* out */
	__u32 slot;
	__u32 reserved;		/* 0 */
};

/* Attributes of our own on methods of uverbs. */
enum mic_ib_attrs_query_context {
	/* out: struct mic_alloc_ucontext_resp, with a descriptor of the caller */
	MIC_IB_ATTR_QUERY_CONTEXT_RESP = (1U << UVERBS_ID_NS_SHIFT),
};

enum mic_ib_attrs_alloc_dm {
	/* out: struct mic_mmap_info, where the memory can be mapped */
	MIC_IB_ATTR_ALLOC_DM_MAP = (1U << UVERBS_ID_NS_SHIFT),
};

/* A method of our own of device memory: what another process has allocated. */
enum mic_ib_dm_methods {
	MIC_IB_METHOD_DM_QUERY = (1U << UVERBS_ID_NS_SHIFT),
};

enum mic_ib_attrs_dm_query {
	MIC_IB_ATTR_DM_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),
	/* out: struct mic_dm_query_resp */
	MIC_IB_ATTR_DM_QUERY_RESP,
};

/* The answer to alloc_ucontext and query_context. */
struct mic_alloc_ucontext_resp {
	__s32 doorbell_fd;
	__u32 reserved;
};

/* Where a queue's memory is and what it looks like. */
struct mic_ring_info {
	__u32 offset;		/* first element, bytes from the mapping's start */
	__u32 stride;		/* bytes from one element to the next */
	__u32 entries;		/* number of elements, a power of two */
	__u32 ctl_offset;	/* struct mic_ring_ctl or mic_cq_ctl, same origin */
};

/*
 * Device memory that nodes share is mapped by the file of the verbs context, at an
 * offset that has this bit; the bit is not a part of it.
 */
#define MIC_MMAP_CONTEXT	0x8000000000000000ULL

struct mic_mmap_info {
	__aligned_u64 offset;	/* for mmap of the doorbell file */
	__aligned_u64 size;	/* bytes, a multiple of the page size */
};

struct mic_create_cq_resp {
	struct mic_mmap_info map;
	struct mic_ring_info ring;
};

struct mic_resize_cq_resp {
	struct mic_mmap_info map;
	struct mic_ring_info ring;
};

struct mic_create_qp_resp {
	struct mic_mmap_info map;
	struct mic_ring_info sq;	/* entries is 0 where there is no SQ */
	struct mic_ring_info rq;	/* entries is 0 with an SRQ */
	__u32 max_inline_data;
	__u32 reserved;
};

struct mic_create_srq_resp {
	struct mic_mmap_info map;
	struct mic_ring_info ring;
	__u32 srqn;
	__u32 reserved;
};

/*
 * With modify_srq to another size. The command has no room for an answer, so
 * the kernel stores it where @resp_addr says.
 */
struct mic_modify_srq_cmd {
	__aligned_u64 resp_addr;	/* of a struct mic_modify_srq_resp */
};

struct mic_modify_srq_resp {
	struct mic_mmap_info map;
	struct mic_ring_info ring;
};

/* With reg_mr; may be left out. */
enum mic_reg_mr_flags {
	/*
	 * No memory: what is written there is dropped, what is read is zero.
	 * Address and length of the command are 0, and the access is local.
	 */
	MIC_REG_MR_NULL = 1 << 0,
};

struct mic_reg_mr_cmd {
	__u32 flags;		/* enum mic_reg_mr_flags */
	__u32 reserved;
};

struct mic_dm_query_resp {
	struct mic_mmap_info map;
	__aligned_u64 length;	/* bytes, as allocated */
};

struct mic_create_ah_resp {
	__u32 ah_handle;	/* what mic_send_wqe.ud.ah takes */
	__u32 reserved;
};

/*
 * Control block of a work queue. Indices run free (modulo 2^32); element i is
 * in slot i & (entries - 1); producer - consumer elements are in use.
 *
 * User space fills a slot and then stores @producer with release semantics.
 * The kernel stores @consumer with release semantics when it is done with a
 * slot. On a send queue user space then executes a full barrier and reads
 * @need_kick: if MIC_KICK_ASLEEP or MIC_KICK_MORE is set, it rings the doorbell.
 * The kernel sets @need_kick before it goes to sleep, executes a full barrier and
 * looks at @producer once more, so no request is ever left behind. While a thread
 * of the kernel polls the queue @need_kick is MIC_KICK_POLLED instead. It is
 * MIC_KICK_MORE while answers are awaited and more requests may be on their way:
 * those that nobody rings for go when an answer comes. It is 0 while the kernel is
 * at work on the queue.
 */
enum mic_need_kick {
	MIC_KICK_ASLEEP = 1 << 0,
	MIC_KICK_POLLED = 1 << 1,
	MIC_KICK_MORE = 1 << 2,
};

/*
 * Of a send queue: what the process has executed by itself. The kernel shows it
 * as what the process says.
 */
enum mic_direct_count {
	MIC_DIRECT_WRITES,
	MIC_DIRECT_WRITE_BYTES,
	MIC_DIRECT_READS,
	MIC_DIRECT_READ_BYTES,
	MIC_DIRECT_ATOMICS,
	MIC_DIRECT_ATOMIC_BYTES,
	MIC_DIRECT_COUNTS
};

struct mic_ring_ctl {
	/* written by user space */
	__u32 producer;
	__u32 reserved1;
	__aligned_u64 direct[MIC_DIRECT_COUNTS];
	__u32 reserved3[2];
	/* written by the kernel */
	__u32 consumer;
	__u32 need_kick;
	__u32 reserved2[14];
};

/*
 * Scatter/gather element; the layout is that of struct ib_sge and ibv_sge.
 * A length of 0 means 0 bytes.
 */
struct mic_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

enum mic_wr_opcode {
	MIC_WR_RDMA_WRITE = 0,
	MIC_WR_RDMA_WRITE_WITH_IMM = 1,
	MIC_WR_SEND = 2,
	MIC_WR_SEND_WITH_IMM = 3,
	MIC_WR_RDMA_READ = 4,
	MIC_WR_ATOMIC_CMP_AND_SWP = 5,
	MIC_WR_ATOMIC_FETCH_AND_ADD = 6,
	MIC_WR_LOCAL_INV = 7,
	MIC_WR_BIND_MW = 8,
	MIC_WR_SEND_WITH_INV = 9,
	/* 8-byte write that is one atomic store (IBA 1.5 ATOMIC WRITE) */
	MIC_WR_ATOMIC_WRITE = 15,
	/* kernel queue pairs only */
	MIC_WR_REG_MR = 32,
};

enum mic_wqe_flags {
	MIC_WQE_FENCE = 1 << 0,
	MIC_WQE_SIGNALED = 1 << 1,
	MIC_WQE_SOLICITED = 1 << 2,
	/* the bytes after the header are data, @inline_len of them */
	MIC_WQE_INLINE = 1 << 3,
	MIC_WQE_FLAGS_ALL = (1 << 4) - 1,
};

/* A send queue element: this header, then num_sge mic_sge or inline data. */
struct mic_send_wqe {
	__aligned_u64 wr_id;
	__u8 opcode;		/* enum mic_wr_opcode */
	__u8 num_sge;		/* 0 with MIC_WQE_INLINE */
	__u16 flags;		/* enum mic_wqe_flags */
	__u32 inline_len;	/* bytes, with MIC_WQE_INLINE */
	__u32 ex;		/* immediate data as given, or rkey to invalidate */
	__u32 xrc_srqn;		/* XRC: the remote SRQ's number */
	union {
		struct {
			__aligned_u64 remote_addr;
			__u32 rkey;
			__u32 reserved;
		} rdma;
		struct {
			__aligned_u64 remote_addr;
			__aligned_u64 compare_add;
			__aligned_u64 swap;
			__u32 rkey;
			__u32 reserved;
		} atomic;
		struct {
			__u32 ah;	/* mic_create_ah_resp.ah_handle */
			__u32 remote_qpn;
			__u32 remote_qkey;
			__u32 reserved;
		} ud;
		struct {
			__aligned_u64 addr;
			__aligned_u64 length;
			__u32 mr_lkey;
			__u32 mw_rkey;	/* the window's current rkey */
			__u32 new_rkey;	/* type 2: the key it gets */
			__u32 access;	/* enum ib_access_flags */
		} bind;
		struct {		/* kernel only */
			__u32 key;
			__u32 access;
		} reg;
		__u8 bytes[40];
	};
};

#define MIC_SEND_WQE_HDR	64	/* sizeof(struct mic_send_wqe) */

/* A receive queue element: this header, then num_sge mic_sge. */
struct mic_recv_wqe {
	__aligned_u64 wr_id;
	__u32 num_sge;
	__u32 reserved;
};

/*
 * Control block of a completion queue. The kernel writes elements, user space
 * consumes them in order and stores @consumer with release semantics.
 *
 * To arm, user space stores the kind of completion it waits for into @arm,
 * executes a full barrier and polls the queue again. The kernel publishes an
 * element, executes a full barrier and looks at @arm; when the element is of
 * the kind asked for, it sets @arm back to MIC_CQ_ARM_NONE and raises the
 * event. Either the event comes or the poll sees the element.
 *
 * With too many events of the queue that were not read it does neither: who reads
 * one of those polls the queue, after a full barrier.
 */
enum mic_cq_arm {
	MIC_CQ_ARM_NONE = 0,
	MIC_CQ_ARM_SOLICITED = 1,	/* solicited or in error */
	MIC_CQ_ARM_NEXT = 2,		/* any */
};

struct mic_cq_ctl {
	/* written by user space */
	__u32 consumer;
	__u32 reserved1[15];
	/* written by both, with atomic exchange */
	__u32 arm;
	/* written by the kernel: other machines bring about completions */
	__u32 remote;
	/* likewise: a completion was lost, the queue takes no more */
	__u32 overrun;
	__u32 reserved2[13];
};

enum mic_wc_opcode {
	MIC_WC_SEND = 0,
	MIC_WC_RDMA_WRITE = 1,
	MIC_WC_RDMA_READ = 2,
	MIC_WC_COMP_SWAP = 3,
	MIC_WC_FETCH_ADD = 4,
	MIC_WC_BIND_MW = 5,
	MIC_WC_LOCAL_INV = 6,
	MIC_WC_ATOMIC_WRITE = 9,
	MIC_WC_REG_MR = 32,	/* kernel only */
	MIC_WC_RECV = 128,
	MIC_WC_RECV_RDMA_WITH_IMM = 129,
};

enum mic_wc_flags {
	MIC_WC_GRH = 1 << 0,
	MIC_WC_WITH_IMM = 1 << 1,
	MIC_WC_WITH_INV = 1 << 2,
	MIC_WC_IPV4 = 1 << 3,		/* the GRH area holds an IPv4 header */
	MIC_WC_WITH_VLAN = 1 << 4,
	MIC_WC_WITH_SMAC = 1 << 5,
};

/*
 * A completion queue element. Slot i & (entries - 1) holds element i when the
 * lowest bit of @owner is 1 for an even and 0 for an odd number of wraps, that
 * is when (@owner & 1) == !(i & entries); a new queue is all zero. @owner is
 * stored last, with release semantics.
 */
struct mic_cqe {
	__aligned_u64 wr_id;
	__aligned_u64 timestamp;	/* ns, CLOCK_MONOTONIC_RAW */
	__u32 byte_len;
	__u32 ex;		/* immediate data as sent, or invalidated rkey */
	__u32 qp_num;
	__u32 src_qp;
	__u32 vendor_err;
	__u16 pkey_index;
	__u16 vlan_id;
	__u8 status;		/* enum ib_wc_status == enum ibv_wc_status */
	__u8 opcode;		/* enum mic_wc_opcode */
	__u8 wc_flags;		/* enum mic_wc_flags */
	__u8 sl;
	__u8 smac[6];
	__u8 port_num;
	__u8 dlid_path_bits;
	__u32 srqn;		/* XRC: number of the SRQ the receive was in */
	__u32 reserved;
	__u32 owner;
};

#endif /* MIC_ABI_USER_H */
