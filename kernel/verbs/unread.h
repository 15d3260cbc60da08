/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Events that a process has not read.
 */
#ifndef MIC_UNREAD_H
#define MIC_UNREAD_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <rdma/ib_verbs.h>

/* There are no more than that of each kind of an object. */
#define MIC_UNREAD_MAX	64

/*
 * How struct ib_uevent_object is, with which objects begin that have events, and which
 * is in a header of ib_core's own: @event_list has those that were not read yet,
 * @events_reported counts the others.
 */
struct mic_uevent_object {
	struct ib_uobject uobject;
	void *event_file;
	struct list_head event_list;
	u32 events_reported;
};

/**
 * struct mic_unread - asynchronous events of an object, as far as they are counted
 * @object: ib_core's; NULL: they are not counted, or those of @target are
 * @target: XRC target, of which each process that has opened it is told
 * @raised: as many, counted as &mic_uevent_object.events_reported counts what was read;
 *	those of @target since nobody had any to read
 * @kinds: bits of enum ib_event_type: such ones may be among those not read
 * @is_list: those who have opened @target have lists of events
 */
struct mic_unread {
	const struct mic_uevent_object *object;
	const struct ib_qp *target;
	atomic_t raised;
	unsigned long kinds;
	bool is_list;
};

void mic_unread_init(struct mic_unread *unread, const void *uobject);
void mic_unread_init_target(struct mic_unread *unread, const struct ib_qp *target);
bool mic_unread_may_raise(struct mic_unread *unread, enum ib_event_type type);
bool mic_unread_is_list(const struct list_head *list);

#endif /* MIC_UNREAD_H */
