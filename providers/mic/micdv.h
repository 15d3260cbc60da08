/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Direct verbs of the mic device: what it can that other RDMA devices can't.
 * Link with libmic; each function has a man page in section 3.
 */
#ifndef INFINIBAND_MICDV_H
#define INFINIBAND_MICDV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is @device one of ours? The other functions want objects of such ones. */
bool micdv_is_supported(struct ibv_device *device);

enum micdv_device_caps {
	/* RDMA requests may be executed by the process itself */
	MICDV_CAP_DIRECT = 1 << 0,
	/* memory of a peer can be mapped */
	MICDV_CAP_MAP_WINDOW = 1 << 1,
	/* changes of one's own memory can be watched */
	MICDV_CAP_WATCH = 1 << 2,
};

struct micdv_device_attr {
	uint64_t comp_mask;   /* in: 0 */
	uint64_t caps;	      /* enum micdv_device_caps */
	uint32_t max_windows; /* of a context, mapped or used by its QPs */
	uint32_t reserved;
	uint64_t max_window_size; /* bytes */
};

/* Returns 0 or an errno value. */
int micdv_query_device(struct ibv_context *context,
		       struct micdv_device_attr *attr);

/*
 * A peer's registered memory, mapped into this process: an access through
 * @addr is an access to the byte at @remote_addr of the peer. @length bytes.
 */
struct micdv_window {
	void *addr;
	uint64_t remote_addr;
	size_t length;
	int prot; /* PROT_READ, or PROT_READ | PROT_WRITE */
};

/*
 * Map what @rkey lets @qp, which is connected, reach at its peer. @prot is
 * PROT_READ, or PROT_READ | PROT_WRITE. @qp is of type RC.
 *
 * When the peer takes its memory away, or one of the queue pairs fails, the
 * mapping stays, but with private memory of this process behind it: accesses
 * are harmless and reach nobody. micdv_window_valid() tells.
 *
 * Returns NULL and sets errno: ENOTCONN, EACCES (no such key, or it does not
 * allow it), ERANGE (not within the key's bounds), EPERM (a mapping would allow
 * more than the key, or the context is a parent's, before fork()), EOPNOTSUPP
 * (the peer's memory can't be mapped from here), EINVAL, ENOSPC, EMFILE, ENFILE
 * (of the context's file for windows), ENOMEM, EIO (the device is gone).
 */
struct micdv_window *micdv_map_window(struct ibv_qp *qp, uint64_t remote_addr,
				      uint32_t rkey, size_t length, int prot);

/*
 * The same at @addr, in place of whatever is mapped there, as with MAP_FIXED;
 * anywhere if it is NULL. EINVAL also where @addr has not the place in its page
 * that the peer's memory has.
 */
struct micdv_window *micdv_map_window_at(struct ibv_qp *qp,
					 uint64_t remote_addr, uint32_t rkey,
					 size_t length, int prot, void *addr);

/*
 * Is the peer's memory still there? What was accessed before this said yes was
 * the peer's memory. Once false it stays so.
 */
bool micdv_window_valid(const struct micdv_window *window);

/* Returns 0 or an errno value. Also for windows whose queue pair is gone. */
int micdv_unmap_window(struct micdv_window *window);

/*
 * The same for callers who have unmapped it themselves, by munmap(), in parts if they
 * like, or by a mapping in its place: the addresses, where something else may be by
 * now, are left alone. What is mapped of the window still must not be accessed.
 */
int micdv_release_window(struct micdv_window *window);

/* What may have become of memory that is watched. */
enum micdv_watch_state {
	/* it was unmapped or moved, or other pages are there */
	MICDV_WATCH_CHANGED = 1 << 0,
	/* its protection was changed */
	MICDV_WATCH_PROTECTED = 1 << 1,
};

struct micdv_watch;

/*
 * Watch a range of this process's memory. A region that is registered after
 * this is the memory that is mapped there for as long as nothing changed.
 *
 * Returns NULL and sets errno: EINVAL (no bytes, or beyond the last address),
 * EOPNOTSUPP (another device, or the kernel can't do it), ENOSPC (as many windows
 * and watches as a context can have), EMFILE, ENFILE (of the context's file for
 * windows), EPERM (the context is a parent's, before fork()), ENOMEM.
 */
struct micdv_watch *micdv_watch_memory(struct ibv_context *context, void *addr,
				       size_t length);

/*
 * What changed since; enum micdv_watch_state, 0 if nothing did. Bits stay, and
 * may come without need, but never late: they are there before the change is.
 * No system call.
 */
unsigned int micdv_watch_state(const struct micdv_watch *watch);

/* Also where the context is gone. */
void micdv_unwatch(struct micdv_watch *watch);

/*
 * Where device memory of this process is mapped: loads and stores at this address
 * and behind it, up to its length, are loads and stores of the memory, until
 * ibv_free_dm() or ibv_unimport_dm(). NULL with errno EOPNOTSUPP: it is another
 * device's.
 */
void *micdv_dm_addr(struct ibv_dm *dm);

/* Who executes the requests of a queue pair. */
enum micdv_path {
	MICDV_PATH_ENGINE, /* the kernel, all of them */
	MICDV_PATH_DIRECT, /* this process, those that it may */
	MICDV_PATH_RANDOM, /* now the one, now the other: for tests */
	MICDV_PATH_WORKER, /* a thread of the kernel's, all of them */
};

struct micdv_qp_attr {
	uint64_t comp_mask; /* in: 0 */
	enum micdv_path path;
	uint32_t windows; /* in use by this queue pair */
	uint64_t direct;  /* requests executed by this process */
	uint64_t engine;  /* requests given to the kernel */
};

/* Both return 0 or an errno value. */
int micdv_query_qp(struct ibv_qp *qp, struct micdv_qp_attr *attr);
int micdv_set_path(struct ibv_qp *qp, enum micdv_path path);

#ifdef __cplusplus
}
#endif

#endif /* INFINIBAND_MICDV_H */
