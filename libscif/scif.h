/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * SCIF, the Symmetric Communication Interface, over RDMA devices.
 *
 * Endpoints on the nodes of a machine, or of several, connect to each other,
 * exchange messages, show each other parts of their memory and copy between
 * them. Every function has a manual page; scif(7) is the introduction.
 *
 * The names are those of Intel's library for the Xeon Phi. Where that
 * library's header and the header proposed for the Linux kernel spell a name
 * differently, both spellings are here. Neither has scif_alloc_dm() and
 * scif_free_dm().
 *
 * Except where a comment says otherwise, a function that fails returns -1
 * and sets errno. For all that take an endpoint, but scif_get_fd(): EBADF is a
 * descriptor that is not open, ENOTTY one that is no endpoint of this process.
 */
#ifndef SCIF_H
#define SCIF_H

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/select.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * typedef scif_epd_t - an endpoint: a file descriptor
 *
 * poll(), select(), epoll, fcntl(O_NONBLOCK), dup() and close() work on it;
 * scif_poll() says how poll() sees it. A process made by fork() cannot use the
 * endpoints of its parent.
 */
typedef int scif_epd_t;

#define SCIF_OPEN_FAILED ((scif_epd_t)-1)
#define SCIF_REGISTER_FAILED ((off_t)-1)
#define SCIF_MMAP_FAILED ((void *)-1)
#define SCIF_ALLOC_FAILED ((void *)-1)

/* Flags of scif_accept(), scif_send() and scif_recv(). */
#define SCIF_ACCEPT_SYNC 1
#define SCIF_SEND_BLOCK 1
#define SCIF_RECV_BLOCK 1
#define ACCEPT_SYNC SCIF_ACCEPT_SYNC
#define SEND_BLOCK SCIF_SEND_BLOCK
#define RECV_BLOCK SCIF_RECV_BLOCK

/* Protection of a window and of a mapping. */
enum { SCIF_PROT_READ = 1 << 0, SCIF_PROT_WRITE = 1 << 1 };

/*
 * Flags of scif_register() and scif_mmap(). SCIF_MAP_KERNEL is for callers in the
 * kernel; both refuse it with EINVAL.
 */
enum { SCIF_MAP_FIXED = 0x10, SCIF_MAP_KERNEL = 0x20 };

/* Flags of scif_fence_mark() and scif_fence_signal(). */
enum {
	SCIF_FENCE_INIT_SELF = 1 << 0,
	SCIF_FENCE_INIT_PEER = 1 << 1,
	SCIF_FENCE_RAS_SELF = 1 << 2,
	SCIF_FENCE_RAS_PEER = 1 << 3,
	SCIF_SIGNAL_LOCAL = 1 << 4,
	SCIF_SIGNAL_REMOTE = 1 << 5
};

/* Flags of the functions that copy. */
enum {
	SCIF_RMA_USECPU = 1 << 0,
	SCIF_RMA_USECACHE = 1 << 1,
	SCIF_RMA_SYNC = 1 << 2,
	SCIF_RMA_ORDERED = 1 << 3
};

#define SCIF_POLLIN POLLIN
#define SCIF_POLLOUT POLLOUT
#define SCIF_POLLERR POLLERR
#define SCIF_POLLHUP POLLHUP
#define SCIF_POLLNVAL POLLNVAL

/* Ports below are for privileged processes. */
#define SCIF_ADMIN_PORT_END 1024
/* Ports below are never chosen by scif_bind(). */
#define SCIF_PORT_RSVD 1088

/* Ports that services of Intel's software stack used. */
#define SCIF_COI_PORT_0 40
#define SCIF_COI_PORT_1 41
#define SCIF_COI_PORT_2 42
#define SCIF_COI_PORT_3 43
#define SCIF_COI_PORT_4 44
#define SCIF_COI_PORT_5 45
#define SCIF_COI_PORT_6 46
#define SCIF_COI_PORT_7 47
#define SCIF_COI_PORT_8 48
#define SCIF_COI_PORT_9 49
#define SCIF_OFED_PORT_0 60
#define SCIF_OFED_PORT_1 61
#define SCIF_OFED_PORT_2 62
#define SCIF_OFED_PORT_3 63
#define SCIF_OFED_PORT_4 64
#define SCIF_OFED_PORT_5 65
#define SCIF_OFED_PORT_6 66
#define SCIF_OFED_PORT_7 67
#define SCIF_OFED_PORT_8 68
#define SCIF_OFED_PORT_9 69
#define SCIF_NETDEV_PORT_0 80
#define SCIF_NETDEV_PORT_1 81
#define SCIF_NETDEV_PORT_2 82
#define SCIF_NETDEV_PORT_3 83
#define SCIF_NETDEV_PORT_4 84
#define SCIF_NETDEV_PORT_5 85
#define SCIF_NETDEV_PORT_6 86
#define SCIF_NETDEV_PORT_7 87
#define SCIF_NETDEV_PORT_8 88
#define SCIF_NETDEV_PORT_9 89
#define SCIF_RAS_PORT_0 100
#define SCIF_RAS_PORT_1 101
#define SCIF_RAS_PORT_2 102
#define SCIF_RAS_PORT_3 103
#define SCIF_RAS_PORT_4 104
#define SCIF_RAS_PORT_5 105
#define SCIF_RAS_PORT_6 106
#define SCIF_RAS_PORT_7 107
#define SCIF_RAS_PORT_8 108
#define SCIF_RAS_PORT_9 109
#define SCIF_PM_PORT_0 120
#define SCIF_PM_PORT_1 121
#define SCIF_PM_PORT_2 122
#define SCIF_PM_PORT_3 123
#define SCIF_PM_PORT_4 124
#define SCIF_PM_PORT_5 125
#define SCIF_PM_PORT_6 126
#define SCIF_PM_PORT_7 127
#define SCIF_PM_PORT_8 128
#define SCIF_PM_PORT_9 129
#define SCIF_BT_PORT_0 130
#define SCIF_BT_PORT_1 131
#define SCIF_BT_PORT_2 132
#define SCIF_BT_PORT_3 133
#define SCIF_BT_PORT_4 134
#define SCIF_BT_PORT_5 135
#define SCIF_BT_PORT_6 136
#define SCIF_BT_PORT_7 137
#define SCIF_BT_PORT_8 138
#define SCIF_BT_PORT_9 139
#define SCIF_MPSSD_PORT_0 160
#define SCIF_MPSSD_PORT_1 161
#define SCIF_MPSSD_PORT_2 162
#define SCIF_MPSSD_PORT_3 163
#define SCIF_MPSSD_PORT_4 164
#define SCIF_MPSSD_PORT_5 165
#define SCIF_MPSSD_PORT_6 166
#define SCIF_MPSSD_PORT_7 167
#define SCIF_MPSSD_PORT_8 168
#define SCIF_MPSSD_PORT_9 169
#define SCIF_COSM_LISTEN_PORT 201
#define SCIF_MYO_PORT_0 1025
#define SCIF_MYO_PORT_1 1026
#define SCIF_MYO_PORT_2 1027
#define SCIF_MYO_PORT_3 1028
#define SCIF_MYO_PORT_4 1029
#define SCIF_MYO_PORT_5 1030
#define SCIF_MYO_PORT_6 1031
#define SCIF_MYO_PORT_7 1032
#define SCIF_MYO_PORT_8 1033
#define SCIF_MYO_PORT_9 1034
#define SCIF_ST_PORT_0 1044
#define SCIF_ST_PORT_1 1045
#define SCIF_ST_PORT_2 1046
#define SCIF_ST_PORT_3 1047
#define SCIF_ST_PORT_4 1048
#define SCIF_ST_PORT_5 1049
#define SCIF_ST_PORT_6 1050
#define SCIF_ST_PORT_7 1051
#define SCIF_ST_PORT_8 1052
#define SCIF_ST_PORT_9 1053

/**
 * struct scif_port_id - where an endpoint is
 * @node: number of the node
 * @port: number of the port on that node, 1 to 65535
 *
 * Intel's library calls it struct scif_portID, which is the same type here.
 */
struct scif_port_id {
	uint16_t node;
	uint16_t port;
};

#define scif_portID scif_port_id
#define portID scif_port_id
typedef struct scif_port_id portID_t;

/**
 * struct scif_pollepd - an endpoint and what is asked of it
 * @epd: the endpoint; below 0: the entry is ignored
 * @events: SCIF_POLLIN, SCIF_POLLOUT
 * @revents: set by scif_poll()
 */
struct scif_pollepd {
	scif_epd_t epd;
	short events;
	short revents;
};

/**
 * scif_open - make an endpoint
 *
 * It is neither bound nor connected, and will be closed by exec().
 *
 * Return: the endpoint, or SCIF_OPEN_FAILED.
 * Errors: ENODEV (no RDMA device), EAGAIN (the library's threads cannot be started),
 * ENOSPC (the user has as many watches of epoll as there may be), EMFILE, ENFILE,
 * ENOMEM.
 */
scif_epd_t scif_open(void);

/**
 * scif_close - end an endpoint
 * @epd: endpoint
 *
 * Closes the connection, unregisters the windows, frees the port. What was
 * sent stays readable for the peer. Copies that were under way complete or fail; those
 * that a thread of the process carries out itself before the call returns, so that the
 * memory of windows may then be unmapped.
 * Where dup() made other descriptors of it, only @epd ends. Calls of other threads
 * that wait end, too. Same as close(), but that the endpoint has ended, and its port is
 * free, when it returns. After close() it may be there for a second, if another thread
 * waits in scif_poll(), or until a program that is about to begin (posix_spawn(3)) has
 * begun.
 *
 * What is mapped, by either side, stays. The memory of windows that the peer has not
 * mapped is unlocked at once where nothing is, else ten seconds later.
 *
 * Return: 0.
 * Errors: EBADF, ENOTTY.
 */
int scif_close(scif_epd_t epd);

/**
 * scif_bind - give an endpoint a port
 * @epd: endpoint
 * @pn: port, or 0: choose one above SCIF_PORT_RSVD
 *
 * Ports below SCIF_ADMIN_PORT_END need CAP_NET_BIND_SERVICE.
 *
 * Return: the port.
 * Errors: EACCES (privileged port, or this thread's credentials changed), EINVAL
 * (bound before, or the port is in
 * use), EISCONN (listening, connecting, or connected, also before), ENOSPC (no port
 * left), ENODEV (the node's device was removed), ENOMEM.
 */
int scif_bind(scif_epd_t epd, uint16_t pn);

/**
 * scif_listen - let others connect
 * @epd: bound endpoint
 * @backlog: how many may wait to be accepted
 *
 * Return: 0.
 * Errors: EINVAL (@backlog below 1, not bound, or connected before), EISCONN
 * (listening, connecting or connected), EACCES (this thread's credentials changed).
 */
int scif_listen(scif_epd_t epd, int backlog);

/**
 * scif_connect - connect to a listening endpoint
 * @epd: endpoint; if it has no port, it gets one
 * @dst: the peer
 *
 * Blocks until the peer has accepted, about 10 seconds at most. After EINTR the
 * next call waits for the same attempt. With O_NONBLOCK it begins, and fails with
 * EINPROGRESS also while under way; when poll() shows POLLOUT, the next call
 * returns the result: success also if the peer has accepted and closed meanwhile.
 * After a failure the endpoint can be used again.
 *
 * Return: the endpoint's port.
 * Errors: EINVAL (@dst is NULL, its port is 0, or the endpoint was
 * connected before), ENODEV (no such node, or it does not answer),
 * ECONNREFUSED (nobody listens, the backlog is full, the peer's byte order or version
 * is another one, or it knows this node's number with another address), EOPNOTSUPP
 * (the endpoint listens), EISCONN, EINPROGRESS, EINTR, ENOSPC, ENOMEM, EACCES (this
 * thread's credentials changed).
 */
int scif_connect(scif_epd_t epd, struct scif_port_id *dst);

/**
 * scif_accept - take a connection
 * @epd: listening endpoint
 * @peer: set to where the peer is
 * @newepd: set to the connected endpoint
 * @flags: SCIF_ACCEPT_SYNC: wait for a connection
 *
 * The new endpoint has the listener's port. O_NONBLOCK of @epd has no say. Who has asked
 * and does not complete the connection is given up after five seconds. The call returns
 * then without SCIF_ACCEPT_SYNC (EAGAIN), and if there was a signal (EINTR); others may
 * be waiting, and epoll tells of them anew. After ENOMEM one is refused, and others wait.
 *
 * Return: 0.
 * Errors: EINVAL (unknown flags, a NULL pointer, or not listening), EAGAIN
 * (nobody waits, or who did was given up), EINTR (a signal, or @epd was
 * closed), ENODEV (the node's device was removed, or this process's credentials
 * changed), EACCES (this thread's credentials changed), ENOSPC (the user has as
 * many watches of epoll as there may be), EMFILE, ENFILE, ENOMEM.
 */
int scif_accept(scif_epd_t epd, struct scif_port_id *peer, scif_epd_t *newepd,
		int flags);

/**
 * scif_send - send bytes
 * @epd: connected endpoint
 * @msg: bytes
 * @len: how many
 * @flags: SCIF_SEND_BLOCK: return when all are sent
 *
 * The bytes are a stream: the peer may receive them in other portions. 4095
 * bytes have room until the peer receives. Without SCIF_SEND_BLOCK, as many
 * as have room are sent, perhaps none.
 *
 * Return: how many were sent; 0 for @len 0 in any state.
 * Errors: EINVAL (@len below 0, unknown flags), ENOTCONN, ECONNRESET, EFAULT,
 * EINTR (a signal, before the first byte).
 */
int scif_send(scif_epd_t epd, void *msg, int len, int flags);

/**
 * scif_recv - receive bytes
 * @epd: connected endpoint
 * @msg: where to
 * @len: how many at most
 * @flags: SCIF_RECV_BLOCK: return when all of @len are there
 *
 * Without SCIF_RECV_BLOCK, what is there is received, perhaps nothing. When
 * the peer is gone, what it sent is received first.
 *
 * Return: how many were received; 0 for @len 0 in any state.
 * Errors: as scif_send().
 */
int scif_recv(scif_epd_t epd, void *msg, int len, int flags);

/**
 * scif_alloc_dm - allocate memory that peers on other machines can map
 * @epd: connected endpoint, whose node has the memory
 * @len: bytes, a multiple of the page size
 *
 * Machines that share a PCI region can map no memory of each other but what is in that
 * region, unless they have apertures. This allocates some of it, zeroed, as device memory
 * of the RDMA device. Windows of it, registered as any memory is, can be mapped with
 * scif_mmap() wherever the peer is. Any machine on the region can read and write it.
 * A mic device has 256 MiB of it, for all processes together. Where it is not to be had,
 * on other devices or when it is used up, this allocates ordinary memory, and does not
 * say so.
 *
 * It is used like any memory, but it is not inherited by fork(), can be registered on
 * endpoints of the same node only, and system calls that lock their buffer, as for direct
 * I/O, may refuse it. When the device is removed, what is in it is lost: one page may
 * then be behind all its addresses. Intel's library does not have this function.
 *
 * Return: the address, of a page, or SCIF_ALLOC_FAILED.
 * Errors: EINVAL (@len 0 or unaligned), ENOMEM, ENOTCONN, ECONNRESET.
 */
void *scif_alloc_dm(scif_epd_t epd, size_t len);

/**
 * scif_free_dm - free what scif_alloc_dm() allocated
 * @addr: address
 *
 * Windows of it, and the peer's mappings of these, stay what they are until they are
 * unregistered, and unmapped. The process must not use the addresses any more. Also when
 * the endpoint is closed.
 *
 * Return: 0.
 * Errors: EINVAL (nothing that scif_alloc_dm() returned).
 */
int scif_free_dm(void *addr);

/**
 * scif_register - show memory to the peer
 * @epd: connected endpoint
 * @addr: memory, page-aligned
 * @len: bytes, a multiple of the page size
 * @offset: where in the endpoint's registered address space, with
 *	SCIF_MAP_FIXED; otherwise the library chooses
 * @prot: what RMAs may do with it: SCIF_PROT_READ, SCIF_PROT_WRITE, both, or 0
 * @flags: SCIF_MAP_FIXED
 *
 * The pages are locked in memory, on mic devices once for all of an endpoint's
 * windows that show the same range with the same protection. A window shows
 * them even if the memory is unmapped meanwhile. Where no more can be locked, those
 * that are about to be unlocked, on any endpoint, are waited for, two seconds at most.
 *
 * Return: the window's offset, or SCIF_REGISTER_FAILED.
 * Errors: EINVAL (flags, protection, alignment, length 0), EADDRINUSE (a window
 * is there, or was and is still mapped by the peer), EAGAIN (RLIMIT_MEMLOCK),
 * EFAULT (not mapped, or read-only and @prot has SCIF_PROT_WRITE), ENOMEM (out of
 * memory, or the endpoint has 65536 windows), ENOTCONN, ECONNRESET.
 */
off_t scif_register(scif_epd_t epd, void *addr, size_t len, off_t offset,
		    int prot, int flags);

/**
 * scif_unregister - stop showing memory
 * @epd: connected endpoint
 * @offset: a window's first byte
 * @len: bytes; several adjacent windows at once are fine
 *
 * Copies that a thread of the process carries out itself end first: then the memory
 * may be unmapped. Others that are under way use the pages, and the peer's mappings
 * stay valid; the pages are unlocked when both have ended. Of a peer that says nothing
 * for ten seconds, as one that was stopped, the copies are taken to have ended.
 *
 * Who unmaps the memory of a window that is registered has to see to it that no other
 * thread copies from or to it at the time: such a copy may end the process.
 *
 * Return: 0.
 * Errors: EINVAL (@len 0, unaligned, or a window is only partly inside), ENXIO
 * (no window, or a hole), ENOMEM, ENOTCONN.
 */
int scif_unregister(scif_epd_t epd, off_t offset, size_t len);

/**
 * scif_mmap - map windows of the peer
 * @addr: where, with SCIF_MAP_FIXED; or a hint
 * @len: bytes, a multiple of the page size
 * @prot: SCIF_PROT_READ, SCIF_PROT_WRITE, or both
 * @flags: SCIF_MAP_FIXED: at @addr, in place of what is mapped there
 * @epd: connected endpoint
 * @offset: in the peer's registered address space, page-aligned
 *
 * The range may span adjacent windows. The mapping is shared with the peer, is
 * not inherited by fork(), and lives until it is unmapped, or replaced, whatever becomes
 * of the endpoints. When the peer's process is gone, it stays, and reaches nobody.
 * The peer's process is told, and waited for. What SCIF_MAP_FIXED replaces may be gone
 * also where the call fails.
 *
 * Return: the address, or SCIF_MMAP_FAILED.
 * Errors: EINVAL (unaligned, @len 0, @prot 0, unknown flags or protection, or a
 * mapping that another thread is making is in the way), ENXIO (not all of it
 * is in windows), EACCES (against a window's protection, or a window cannot be read),
 * EOPNOTSUPP (the device cannot do it, only mic devices can, with a libmic that is not
 * older than this library; between machines without
 * apertures, only windows of memory of scif_alloc_dm() can be mapped, and in an aperture
 * none whose memory is in more than 2048 pieces), EAGAIN (the library cannot lock what
 * it needs itself, for RLIMIT_MEMLOCK), EMFILE, ENFILE, ENOMEM (out of memory, or
 * as many windows are mapped as can be; between two machines 256 each way, for all
 * processes), ENOTCONN, ECONNRESET.
 */
void *scif_mmap(void *addr, size_t len, int prot, int flags, scif_epd_t epd,
		off_t offset);

/**
 * scif_munmap - unmap what scif_mmap() mapped, or pages of it
 * @addr: address, page-aligned
 * @len: bytes, rounded up to whole pages
 *
 * As munmap(2): the range may have parts of mappings, several of them, and pages
 * where nothing is mapped, or something else, which is unmapped, too. The peer hears
 * of windows of which nothing is left, and is not waited for. In a child of fork(),
 * which has none of its parent's mappings, nothing is done.
 *
 * Return: 0.
 * Errors: EINVAL (@addr is unaligned, @len is 0 or goes beyond the last address, or
 * another thread is making a mapping there), ENOMEM (out of memory, or the process has
 * as many mappings as it can have).
 */
int scif_munmap(void *addr, size_t len);

/**
 * scif_readfrom - copy from the peer's windows into one's own
 * @epd: connected endpoint
 * @loffset: in this endpoint's registered address space
 * @len: bytes
 * @roffset: in the peer's
 * @rma_flags: SCIF_RMA_SYNC: return when it is done; SCIF_RMA_ORDERED: the last
 *	cache line arrives last; SCIF_RMA_USECPU: the caller copies, if it can;
 *	SCIF_RMA_USECACHE: for scif_vreadfrom() and scif_vwriteto()
 *
 * Without SCIF_RMA_SYNC the copy may be under way when this returns;
 * scif_fence_mark(), scif_fence_signal() tell when it is done. Both ranges
 * may span adjacent windows. Offsets need no alignment.
 *
 * Return: 0.
 * Errors: EINVAL (unknown flags, @len 0), ENXIO (not all of it is in windows),
 * EACCES (against a window's protection), ENOTCONN, ECONNRESET, EAGAIN (the
 * library cannot lock what it needs itself, for RLIMIT_MEMLOCK), ENOMEM.
 */
int scif_readfrom(scif_epd_t epd, off_t loffset, size_t len, off_t roffset,
		  int rma_flags);

/**
 * scif_writeto - copy from one's own windows into the peer's
 * @epd: connected endpoint
 * @loffset: in this endpoint's registered address space
 * @len: bytes
 * @roffset: in the peer's
 * @rma_flags: as for scif_readfrom()
 *
 * Return: 0. Errors: as scif_readfrom().
 */
int scif_writeto(scif_epd_t epd, off_t loffset, size_t len, off_t roffset,
		 int rma_flags);

/**
 * scif_vreadfrom - copy from the peer's windows into memory
 * @epd: connected endpoint
 * @addr: where to; need not be registered
 * @len: bytes
 * @roffset: in the peer's registered address space
 * @rma_flags: as for scif_readfrom(); SCIF_RMA_USECACHE: the memory is kept
 *	locked, for the next time
 *
 * What is kept is only used while it is what is mapped at @addr: memory may be
 * unmapped, replaced and protected at any time between calls. Devices that
 * cannot tell, which are all but mic, keep nothing, and SCIF_RMA_USECACHE has
 * no effect.
 *
 * Return: 0. Errors: as scif_readfrom(), and EFAULT for @addr.
 */
int scif_vreadfrom(scif_epd_t epd, void *addr, size_t len, off_t roffset,
		   int rma_flags);

/**
 * scif_vwriteto - copy from memory into the peer's windows
 * @epd: connected endpoint
 * @addr: where from; need not be registered
 * @len: bytes
 * @roffset: in the peer's registered address space
 * @rma_flags: as for scif_vreadfrom()
 *
 * Return: 0. Errors: as scif_vreadfrom().
 */
int scif_vwriteto(scif_epd_t epd, void *addr, size_t len, off_t roffset,
		  int rma_flags);

/**
 * scif_fence_mark - mark the copies begun so far
 * @epd: connected endpoint
 * @flags: SCIF_FENCE_INIT_SELF: those that this endpoint began, or
 *	SCIF_FENCE_INIT_PEER: those that the peer began
 * @mark: set to a value for scif_fence_wait()
 *
 * With SCIF_FENCE_INIT_PEER, the peer's process is asked, and waited for.
 *
 * Return: 0.
 * Errors: EINVAL (not exactly one of the flags), ENOTCONN, ECONNRESET.
 */
int scif_fence_mark(scif_epd_t epd, int flags, int *mark);

/**
 * scif_fence_wait - wait until the copies of a mark are done
 * @epd: connected endpoint
 * @mark: from scif_fence_mark() of this endpoint
 *
 * No signal ends the wait. For a mark of the peer's copies, it is the peer's
 * process that has to answer: one that is stopped is waited for.
 *
 * Return: 0.
 * Errors: EINVAL (no such mark), ENOTCONN, ECONNRESET.
 */
int scif_fence_wait(scif_epd_t epd, int mark);

/**
 * scif_fence_signal - write values when the copies begun so far are done
 * @epd: connected endpoint
 * @loff: in this endpoint's registered address space, multiple of 4
 * @lval: value for @loff
 * @roff: in the peer's, multiple of 4
 * @rval: value for @roff
 * @flags: SCIF_FENCE_INIT_SELF or SCIF_FENCE_INIT_PEER, whose copies; and
 *	SCIF_SIGNAL_LOCAL, SCIF_SIGNAL_REMOTE or both: which values
 *
 * Does not wait for the copies; with SCIF_FENCE_INIT_PEER, for the peer's
 * process to take it. Each value is written as 8 bytes.
 *
 * Return: 0.
 * Errors: EINVAL (flags, alignment), ENXIO (8 bytes at an offset are not in a
 * window), EACCES (the window has no SCIF_PROT_WRITE), EAGAIN (the library cannot
 * lock what it needs itself, for RLIMIT_MEMLOCK), ENOMEM, ENOTCONN, ECONNRESET.
 */
int scif_fence_signal(scif_epd_t epd, off_t loff, uint64_t lval, off_t roff,
		      uint64_t rval, int flags);

/**
 * scif_get_node_ids - which nodes are there
 * @nodes: filled with the numbers of the nodes; may be NULL if @len is 0
 * @len: how many fit into @nodes
 * @self: set to the number of the node this process is on
 *
 * The nodes are those that scif(7) describes, as they were when the process
 * first asked; of a fabric, those that are there now. Where they are configured,
 * a node whose machine is down is among them, which only scif_connect() finds out,
 * by ENODEV.
 *
 * Return: how many nodes there are, also if that is more than @len.
 * Errors: EFAULT (@self is NULL, or @nodes is and @len is not 0), EINVAL (@len
 * below 0), ENODEV (no RDMA device).
 */
int scif_get_node_ids(uint16_t *nodes, int len, uint16_t *self);
int scif_get_nodeIDs(uint16_t *nodes, int len, uint16_t *self);

/**
 * scif_get_fd - the file descriptor of an endpoint
 * @epd: endpoint
 *
 * Return: @epd.
 */
int scif_get_fd(scif_epd_t epd);

/**
 * scif_poll - wait until something can be done
 * @epds: endpoints; other file descriptors may be among them
 * @nepds: how many
 * @timeout_ms: milliseconds; 0: do not wait, below 0: no limit
 *
 * A listening endpoint: SCIF_POLLIN if accept will find somebody, SCIF_POLLERR
 * if its node's device was removed. A connected one: SCIF_POLLIN if there are
 * bytes, SCIF_POLLOUT if there is room; if the peer is gone SCIF_POLLHUP, and
 * SCIF_POLLIN while bytes remain. One that is being connected: SCIF_POLLOUT when
 * scif_connect() has the result. Any other: SCIF_POLLERR. One that another thread
 * closes: SCIF_POLLNVAL, within a second.
 *
 * poll(), select() and epoll agree, but for what a socket can show: POLLHUP
 * always comes with POLLIN, and POLLIN | POLLOUT stands for SCIF_POLLERR.
 *
 * Return: how many entries have events, 0 if the time is over.
 * Errors: EFAULT, EINTR, EINVAL (@nepds is above RLIMIT_NOFILE), ENOMEM.
 */
int scif_poll(struct scif_pollepd *epds, unsigned int nepds, long timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* SCIF_H */
