// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Who asks for a window with a key that his peer does not have learns nothing of
 * whose it is. The kernel looks at a process's memory file, by its name, to see whether
 * the one may attach to the other; here /proc is a folder in which that shows.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <infiniband/micdv.h>

#include "device.h"
#include "endpoint.h"
#include "memory.h"
#include "process.h"
#include "tap.h"
#include "work.h"

/* What the owner of memory tells: a key of his, on the device of the peer. */
struct told {
	uint64_t addr;
	uint32_t rkey;
	pid_t pid;
};

struct owner {
	const char *device;
};

static int own(int socket, void *arg)
{
	const struct owner *owner = arg;
	struct told told = { .pid = getpid() };
	struct region memory;
	struct device dev;
	char end;

	device_open(&dev, owner->device);
	region_create(&memory, dev.pd, PAGE_BYTES);
	told.addr = memory.rdma_addr;
	told.rkey = memory.mr->rkey;
	if (!message_send(socket, &told, sizeof(told)))
		return 1;
	message_receive(socket, &end, 1);
	region_destroy(&memory);
	device_close(&dev);
	return 0;
}

/* A /proc of our own, in which only that process is; a watch of its memory file. */
static int false_proc(pid_t pid)
{
	char name[64];
	int fd, watch;

	if (unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc", "tmpfs", 0, NULL))
		bail("no /proc of one's own: %s", strerror(errno));
	snprintf(name, sizeof(name), "/proc/%d", pid);
	if (mkdir(name, 0755))
		bail("%s: %s", name, strerror(errno));
	strcat(name, "/mem");
	fd = open(name, O_CREAT | O_WRONLY, 0644);
	if (fd < 0)
		bail("%s: %s", name, strerror(errno));
	close(fd);
	watch = inotify_init1(IN_NONBLOCK);
	if (watch < 0 || inotify_add_watch(watch, name, IN_OPEN | IN_CLOSE) < 0)
		bail("inotify: %s", strerror(errno));
	return watch;
}

static bool was_opened(int watch)
{
	char events[4096];

	return read(watch, events, sizeof(events)) > 0;
}

static bool maps(struct endpoint *ep, const struct told *told, uint32_t rkey)
{
	struct micdv_window *window = micdv_map_window(ep->qp, told->addr, rkey,
						       PAGE_BYTES, PROT_READ);

	if (!window)
		return false;
	micdv_unmap_window(window);
	return true;
}

/* The key, and one that differs in what is random. */
static bool tells_nothing(struct endpoint *ep, const struct told *told,
			  int watch)
{
	return check(!maps(ep, told, told->rkey), "it is mapped") &&
	       check(!was_opened(watch), "it shows whose memory that is") &&
	       check(!maps(ep, told, told->rkey ^ 1), "it is mapped") &&
	       check(!was_opened(watch), "an index shows whose memory that is");
}

static void end_connection(struct endpoint *ep)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (ibv_modify_qp(ep->qp, &attr, IBV_QP_STATE))
		bail("the queue pair can't be ended");
}

int main(int argc, char **argv)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct device a_dev, b_dev;
	struct process process;
	struct endpoint a, b;
	struct owner owner;
	const char *device;
	struct told told;
	int watch;

	device_names(&argc, argv, &device, &owner.device);
	process_start(&process, own, &owner);
	if (!message_receive(process.socket, &told, sizeof(told)))
		bail("there is no owner");
	device_open(&a_dev, device);
	device_open(&b_dev, owner.device);
	pair_create(&a, &a_dev, &b, &b_dev, &options);
	watch = false_proc(told.pid);
	tap_ok(tells_nothing(&a, &told, watch),
	       "a key that the peer does not have");
	end_connection(&b);
	tap_ok(tells_nothing(&a, &told, watch), "the connection has ended");
	pair_destroy(&a, &b);
	device_close(&a_dev);
	device_close(&b_dev);
	close(watch);
	process_end(&process);
	return tap_end();
}
