// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Polling of nodes behind a wire, on behalf of programs that poll.
 */
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/sched.h>
#include <linux/srcu.h>

#include <mic/fabric.h>

#include "poll.h"

static LIST_HEAD(mic_polled);			/* nodes that can be polled */
static DEFINE_MUTEX(mic_polled_lock);		/* serialises its changes */
DEFINE_STATIC_SRCU(mic_polled_srcu);

/* A node joins. */
void mic_polled_add(struct mic_node *node)
{
	mutex_lock(&mic_polled_lock);
	list_add_tail_rcu(&node->polled, &mic_polled);
	mutex_unlock(&mic_polled_lock);
}

/* A node leaves. On return nobody polls it. */
void mic_polled_del(struct mic_node *node)
{
	mutex_lock(&mic_polled_lock);
	list_del_rcu(&node->polled);
	mutex_unlock(&mic_polled_lock);
	synchronize_srcu(&mic_polled_srcu);
}

/**
 * mic_fabric_poll - receive what other nodes have sent
 *
 * Context: process context, may sleep.
 * Return: how many records there were.
 */
int mic_fabric_poll(void)
{
	struct mic_node *node;
	int idx, n = 0;

	idx = srcu_read_lock(&mic_polled_srcu);
	list_for_each_entry_srcu(node, &mic_polled, polled,
				 srcu_read_lock_held(&mic_polled_srcu)) {
		n += node->ops->poll(node);
		cond_resched();
	}
	srcu_read_unlock(&mic_polled_srcu, idx);
	return n;
}
EXPORT_SYMBOL_GPL(mic_fabric_poll);
