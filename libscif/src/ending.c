// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Ending what rdma_cm has. The kernel does so only for who has the credentials with
 * which rdma_cm was opened. A thread that has changed its own leaves it to the thread
 * for connections; when the whole process has changed them, nobody can.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "internal.h"

struct ending {
	struct ending *next;
	struct rdma_cm_id *id;
	int (*end)(struct rdma_cm_id *id);
	int error;
	bool over;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;
static struct ending *endings;
static int kick = -1;
static __thread bool is_connections;

void scif_ending_here(void)
{
	is_connections = true;
}

void scif_ending_event(void)
{
	struct ending *one;
	uint64_t count;
	int err;

	pthread_mutex_lock(&lock);
	while (read(kick, &count, sizeof(count)) > 0)
		; /* The list tells what there is. */
	while ((one = endings)) {
		endings = one->next;
		pthread_mutex_unlock(&lock);
		err = one->end(one->id) ? errno : 0;
		pthread_mutex_lock(&lock);
		one->error = err;
		one->over = true;
		pthread_cond_broadcast(&over);
	}
	pthread_mutex_unlock(&lock);
}

/* With the lock. */
static bool wake_connections(void)
{
	const uint64_t once = 1;

	if (kick < 0) {
		kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (kick >= 0 && scif_watch_ending(kick)) {
			close(kick);
			kick = -1;
		}
	}
	return kick >= 0 && write(kick, &once, sizeof(once)) > 0;
}

/* By the thread for connections, which waits for nobody. 0 or an errno. */
static int leave(struct rdma_cm_id *id, int (*end)(struct rdma_cm_id *id))
{
	struct ending one = { .id = id, .end = end, .error = EACCES };

	pthread_mutex_lock(&lock);
	if (wake_connections()) {
		one.next = endings;
		endings = &one;
		while (!one.over)
			pthread_cond_wait(&over, &lock);
	}
	pthread_mutex_unlock(&lock);
	return one.error;
}

static int end_id(struct rdma_cm_id *id, int (*end)(struct rdma_cm_id *id))
{
	int err = end(id) ? errno : 0;

	return err == EACCES && !is_connections ? leave(id, end) : err;
}

/* May this thread end it? Changes nothing. */
static int ask(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int mask;

	return rdma_init_qp_attr(id, &attr, &mask);
}

/* Before it knows that it may not, rdma_disconnect() would break the queue pair. */
bool scif_end_connection(struct rdma_cm_id *id)
{
	if (end_id(id, ask) == EACCES)
		return false;
	end_id(id, rdma_disconnect);
	return true;
}

/* What stays until the process ends tells nobody anything. */
void scif_end_id(struct rdma_cm_id *id)
{
	if (!end_id(id, rdma_destroy_id))
		return;
	pthread_mutex_lock(&scif_process.cm_lock);
	id->context = NULL;
	pthread_mutex_unlock(&scif_process.cm_lock);
}

void scif_ending_abandon(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&over, NULL);
	endings = NULL;
	if (kick >= 0)
		close(kick);
	kick = -1;
}
