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
