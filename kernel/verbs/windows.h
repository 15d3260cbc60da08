/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Windows: memory of peers that is mapped into a process.
 */
#ifndef MIC_WINDOWS_H
#define MIC_WINDOWS_H

#include <linux/completion.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/xarray.h>
#include <rdma/mic-abi.h>

#include <mic/op.h>
#include <mic/share.h>
#include <mic/window.h>

struct address_space;
struct mic_doorbell;
struct mic_mkey;
struct mic_mr;
struct mic_node;
struct mic_qp;
struct seq_file;

#define MIC_WINDOW_STATE_PAGES \
	(MIC_WINDOW_SLOTS * sizeof(u32) / PAGE_SIZE)

/**
 * struct mic_windows - a windows file
 * @db: how queue pairs are found
 * @mm: the only address space that may import and map
 * @mapping: has all mappings of the file
 * @lock: faults hold it for reading while they install memory of peers; who
 *	holds it for writing knows that none does
 * @ref: one for the file, one for each who takes windows of it away
 * @gone: the last reference was dropped
 * @bury_lock: held while dead windows are taken out of the mappings
 * @dead: of @imports those that end, under mic_import_lock
 * @imports: struct mic_import by slot, and the slots that are watches'
 * @watches: struct mic_watch by slot
 * @state: pages with the state words of the slots
 * @scratch: what is behind revoked windows
 */
struct mic_windows {
	struct mic_doorbell *db;
	struct mm_struct *mm;
	struct address_space *mapping;
	struct rw_semaphore lock;
	refcount_t ref;
	struct completion gone;
	struct mutex bury_lock;
	struct list_head dead;
	struct xarray imports;
	struct xarray watches;
	struct page *state[MIC_WINDOW_STATE_PAGES];
	struct page *scratch;
};

/**
 * struct mic_import - a window of a peer
 * @ws: the file it can be mapped from
 * @slot: its index there
 * @pgoff: its first page in the file; 0 if it has none yet
 * @npages: its size
 * @qp: the initiator, while it is in the lists
 * @peer: the target, likewise; NULL if that is on another node
 * @mkey: the key, likewise
 * @qp_entry: in &mic_qp.imports of @qp
 * @peer_entry: in &mic_qp.exports of @peer
 * @mkey_entry: in &mic_mkey.imports of @mkey
 * @dead_entry: in &mic_windows.dead of @ws, or with who takes it out of the
 *	mappings
 * @qpn: number of the initiator
 * @rkey: key
 * @addr: first byte, in terms of the key
 * @length: bytes
 * @access: enum ib_access_flags
 * @win: the memory, if @live; NULL if @lease tells where it is
 * @win_off: where its first page is in @win
 * @lease: of another node's memory; of this node's that nodes share, only where it is
 * @brief: another node has little time to answer
 * @recalled: the other node wants it back; under mic_import_lock
 * @live: faults map the memory; changed under mic_import_lock
 * @busy: it is being made or given back; under the lock of
 *	&mic_windows.imports
 *
 * The lists are under mic_import_lock, and what is in that of a queue pair is in
 * the other's and in that of the key.
 */
struct mic_import {
	struct mic_windows *ws;
	u32 slot;
	unsigned long pgoff;
	unsigned long npages;
	struct mic_qp *qp;
	struct mic_qp *peer;
	struct mic_mkey *mkey;
	struct list_head qp_entry;
	struct list_head peer_entry;
	struct list_head mkey_entry;
	struct list_head dead_entry;
	u32 qpn;
	u32 rkey;
	u64 addr;
	u64 length;
	int access;
	const struct mic_window *win;
	u64 win_off;
	struct mic_lease lease;
	bool brief;
	bool recalled;
	bool live;
	bool busy;
};

/**
 * struct mic_export - what a process of another node may map
 * @grant: the backend's part
 * @qp: the target
 * @mkey: the key
 * @qp_entry: in &mic_qp.grants
 * @mkey_entry: in &mic_mkey.grants
 * @recalled: counted in &mic_qp.nrecalled
 *
 * All but @grant is under mic_import_lock.
 */
struct mic_export {
	struct mic_grant grant;
	struct mic_qp *qp;
	struct mic_mkey *mkey;
	struct list_head qp_entry;
	struct list_head mkey_entry;
	bool recalled;
};

/*
 * Wrong keys that a queue pair's peer may ask for before it gets no more windows.
 * A request with a wrong key ends the connection; windows that are refused must
 * not be the way to try all keys. Some are wrong for good reasons: a key may have
 * been withdrawn while it was on its way to the peer.
 */
#define MIC_WINDOW_GUESSES	8

#define MIC_REMOTE_RIGHTS \
	(IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE | \
	 IB_ACCESS_REMOTE_ATOMIC)

extern struct mutex mic_import_lock;

/* import.c: what may be mapped */
struct pid *mic_import_owner(struct mic_qp *qp, u32 rkey,
			     struct mm_struct **mm);
struct mic_import *mic_import_create(struct mic_windows *ws, struct mic_qp *qp,
				     struct mic_window_import *req,
				     const struct mm_struct *trusted_mm);
int mic_window_rights(const struct mic_qp *qp, const struct mic_mkey *mkey);
int mic_import_place(struct mic_import *imp, bool write,
		     struct mic_window_import *req);
void mic_import_unlock_req(struct mic_qp *qp);
void mic_imports_show(struct seq_file *m, struct mic_qp *qp);

/* import_remote.c: the same where the peer is on another node */
int mic_import_from_node(struct mic_import *imp, struct mic_qp *qp,
			 struct mic_node *node, const struct mic_addr *addr,
			 struct mic_window_import *req);

/* export.c: what other nodes may map */
enum mic_ack mic_export(struct mic_qp *qp, struct mic_op *op);
void mic_exports_wait(u32 *count);

/* revoke.c: until when */
void mic_import_mark(struct mic_import *imp);
void mic_import_revoke(struct mic_import *imp);
void mic_imports_mark_qp(struct mic_qp *qp);
void mic_imports_revoke_qp(struct mic_qp *qp);
void mic_imports_revoke_mkey(struct mic_mkey *mkey);
void mic_imports_revoke_peer(struct mic_mkey *mkey, const struct mic_qp *qp,
			     const struct mic_op *op);

/* windows.c: how it is mapped */
int mic_windows_open(struct mic_doorbell *db);
int mic_windows_add(struct mic_windows *ws, struct mic_import *imp, bool write);
void mic_window_free(struct mic_windows *ws, struct mic_import *imp);
int mic_windows_take_slot(struct mic_windows *ws, u32 *slot);
void mic_windows_give_slot(struct mic_windows *ws, u32 slot);
void mic_windows_set_state(struct mic_windows *ws, u32 slot, u32 state);
void mic_windows_add_state(struct mic_windows *ws, u32 slot, u32 bits);
void mic_windows_zap(struct mic_windows *ws, const struct mic_import *imp);
void mic_windows_zap_all(struct mic_windows *ws);
void mic_windows_put(struct mic_windows *ws);

/* watch.c: the process's own memory */
long mic_watch_add(struct mic_windows *ws,
		   struct mic_memory_watch __user *ureq);
long mic_watch_drop(struct mic_windows *ws, unsigned long slot);
void mic_watch_drop_all(struct mic_windows *ws);

/* attach.c: what a process could do to another anyway */
bool mic_may_attach(struct pid *pid, struct mm_struct *mm);

#endif /* MIC_WINDOWS_H */
