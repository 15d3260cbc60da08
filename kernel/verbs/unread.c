// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Events that a process has not read are memory of ib_core's that is charged to nobody,
 * and a process can cause as many as it likes: by arming its completion queues again
 * and again (moderation.c), by going to SQD and back, by setting the limit of a shared
 * receive queue. So whoever raises one looks how many of that object there are.
 *
 * One that is not raised because of that is no news lost: who is told of so many has
 * still to read that there was one of its kind, and then looks at the object.
 */
#include <linux/bitops.h>
#include <linux/printk.h>

#include "unread.h"

/**
 * mic_unread_is_list - whether a list of a new object is what it is taken for
 * @list: list, if ib_core's structures are as they were
 *
 * Return: false, with a warning the first time, if it is not one, or not empty.
 */
bool mic_unread_is_list(const struct list_head *list)
{
	if (list->next == list && list->prev == list)
		return true;
	pr_warn_once("ib_mic: events that are not read are not counted on this kernel\n");
	return false;
}

/**
 * mic_unread_init - begin to count the asynchronous events of an object
 * @unread: zeroed
 * @uobject: ib_core's object, which is there as long as events are raised; NULL for a
 *	kernel consumer, whose events are not kept
 */
void mic_unread_init(struct mic_unread *unread, const void *uobject)
{
	const struct mic_uevent_object *object = uobject;

	if (object && mic_unread_is_list(&object->event_list))
		unread->object = object;
}

/**
 * mic_unread_init_target - begin to count the asynchronous events of an XRC target
 * @unread: zeroed
 * @target: target, which outlives @unread; it need not be complete
 */
void mic_unread_init_target(struct mic_unread *unread, const struct ib_qp *target)
{
	unread->target = target;
}

/*
 * Whether those who have opened a target have events of it to read. What a kernel
 * consumer is told is not kept. The caller holds the lock of the list of openers.
 */
static bool mic_unread_by_openers(struct mic_unread *unread)
{
	const struct mic_uevent_object *object;
	const struct ib_qp *opener;
	bool none = true;

	list_for_each_entry(opener, &unread->target->open_list, open_list) {
		object = (const void *)READ_ONCE(opener->uobject);
		if (!object)
			continue;
		/* before the first one, which finds all of them empty */
		if (!unread->is_list && !mic_unread_is_list(&object->event_list))
			return false;
		unread->is_list = true;
		none = none && list_empty(&object->event_list);
	}
	return !none;
}

/*
 * It has no object of its own. Those who have opened it get the same events, and who
 * is slow to read them has the others miss some.
 */
static bool mic_unread_target_may_raise(struct mic_unread *unread,
					enum ib_event_type type)
{
	struct ib_device *ibdev = unread->target->device;
	unsigned long flags;
	bool may = true;

	/* a kernel consumer's: nobody opens it */
	if (!unread->target->open_list.next)
		return true;
	spin_lock_irqsave(&ibdev->qp_open_list_lock, flags);
	if (!mic_unread_by_openers(unread)) {
		atomic_set(&unread->raised, 0);
		unread->kinds = 0;
	}
	if (unread->is_list && __test_and_set_bit(type, &unread->kinds) &&
	    atomic_read(&unread->raised) >= MIC_UNREAD_MAX)
		may = false;
	else
		atomic_inc(&unread->raised);
	spin_unlock_irqrestore(&ibdev->qp_open_list_lock, flags);
	return may;
}

/**
 * mic_unread_may_raise - whether there is room for one more
 * @unread: what counts them
 * @type: event that is to be raised
 *
 * Without the list's lock: what is read right now counts the next time. The first of
 * its kind is always raised, so that there may be a few more than MIC_UNREAD_MAX.
 *
 * Context: any.
 * Return: false if it is not to be raised.
 */
bool mic_unread_may_raise(struct mic_unread *unread, enum ib_event_type type)
{
	const struct mic_uevent_object *object = unread->object;
	u32 reported;

	if (unread->target)
		return mic_unread_target_may_raise(unread, type);
	if (!object)
		return true;
	reported = READ_ONCE(object->events_reported);
	if (list_empty(&object->event_list)) {
		/* some may have been lost, for want of memory or of who reads them */
		atomic_set(&unread->raised, reported);
		WRITE_ONCE(unread->kinds, 0);
	}
	if (test_and_set_bit(type, &unread->kinds) &&
	    (s32)(atomic_read(&unread->raised) - reported) >= MIC_UNREAD_MAX)
		return false;
	atomic_inc(&unread->raised);
	return true;
}
