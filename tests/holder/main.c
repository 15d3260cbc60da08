// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Two processes that hold objects of every kind that a device offers, with work in
 * their queues, for a test that kills them.
 *
 * usage: holder [--device NAME] [--peer NAME] [dm]
 *
 * Prints "first PID", "second PID" and, when both hold everything, "holding".
 * Then requests are carried out until SIGTERM. Who is left alone lets go of what it
 * has, says "let go", and ends.
 *
 * Exit status: 0 all went well, 3 the other process is gone, 1 something is wrong.
 *
 * With "dm" it allocates and frees all the memory of the first device instead.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "holder.h"
#include "process.h"
#include "tap.h"

enum { EXIT_GONE = 3 };

static const char *device, *peer;
static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

void *keep(struct holder *holder, const char *what, void *object,
	   int (*let_go)(void *object))
{
	if (!object)
		bail("%s: no %s: %s", holder->name, what, strerror(errno));
	if (holder->count == MAX_HELD)
		bail("more than %d objects", MAX_HELD);
	holder->held[holder->count++] = (struct held){
		.what = what,
		.object = object,
		.let_go = let_go,
	};
	return object;
}

bool let_go_of_all(struct holder *holder)
{
	struct held *held;
	bool good = true;
	int error;

	while (holder->count) {
		held = &holder->held[--holder->count];
		error = held->let_go(held->object);
		good = check(!error, "%s cannot let go of %s: %s", holder->name,
			     held->what, strerror(error)) &&
		       good;
	}
	if (good)
		printf("%s let go\n", holder->name);
	fflush(stdout);
	return good;
}

bool is_alone(const struct holder *holder)
{
	struct pollfd fd = { .fd = holder->socket, .events = POLLRDHUP };

	return poll(&fd, 1, 0) > 0;
}

void end_alone(struct holder *holder)
{
	uint64_t end = deadline();
	bool good;

	/* what it did may be seen before its end is */
	while (!is_alone(holder) && now_ms() < end)
		sleep_ms(10);
	good = check(is_alone(holder), "%s is not alone", holder->name);
	good = let_go_of_all(holder) && good;
	exit(good ? EXIT_GONE : 1);
}

void await(struct holder *holder, int fd)
{
	struct pollfd fds[] = {
		{ .fd = fd, .events = POLLIN },
		{ .fd = holder->socket, .events = POLLRDHUP },
	};
	uint64_t end = deadline();

	while (now_ms() < end) {
		if (poll(fds, 2, 1000) <= 0)
			continue;
		if (fds[0].revents)
			return;
		end_alone(holder);
	}
	bail("%s: nothing comes", holder->name);
}

void exchange(struct holder *holder, const void *mine, void *theirs,
	      size_t length)
{
	if (!message_send(holder->socket, mine, length) ||
	    !message_receive(holder->socket, theirs, length))
		end_alone(holder);
}

void meet(struct holder *holder)
{
	char mine = 0, theirs;

	exchange(holder, &mine, &theirs, 1);
}

static void hold_all(struct holder *holder)
{
	hold_domains(holder);
	hold_memory(holder);
	hold_queues(holder);
	hold_links(holder);
	hold_connections(holder);
	hold_imports(holder);
	meet(holder);
}

static void use_until_alone(struct holder *holder)
{
	while (!stopped && !is_alone(holder)) {
		use_links(holder);
		sleep_ms(1);
	}
}

static int hold_second(int socket, void *argument)
{
	static struct holder holder = { .name = "second", .second = true };

	(void)argument;
	/* it has to live on when the first one is killed */
	prctl(PR_SET_PDEATHSIG, 0);
	signal(SIGTERM, SIG_IGN);
	printf("second %d\n", getpid());
	fflush(stdout);
	holder.socket = socket;
	device_open(&holder.dev, peer);
	hold_all(&holder);
	use_until_alone(&holder);
	return let_go_of_all(&holder) ? 0 : 1;
}

static int hold_first(const struct process *second)
{
	static struct holder holder = { .name = "first" };
	int status;

	holder.socket = second->socket;
	device_open(&holder.dev, device);
	hold_all(&holder);
	printf("holding\n");
	fflush(stdout);
	use_until_alone(&holder);
	if (!stopped)
		end_alone(&holder);
	/* the second one has objects in this context, so it goes first */
	shutdown(holder.socket, SHUT_WR);
	if (waitpid(second->pid, &status, 0) != second->pid ||
	    !let_go_of_all(&holder))
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_GONE;
}

/* Nobody has any of it. */
static int take_all_dm(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_alloc_dm_attr dm_attr = { .comp_mask = 0 };
	struct device dev;
	struct ibv_dm *dm;

	device_open(&dev, device);
	if (ibv_query_device_ex(dev.ctx, NULL, &attr))
		bail("ibv_query_device_ex fails");
	dm_attr.length = attr.max_dm_size;
	dm = ibv_alloc_dm(dev.ctx, &dm_attr);
	return check(dm && !ibv_free_dm(dm), "%zu bytes: %s", dm_attr.length,
		     strerror(errno)) ?
		       0 :
		       1;
}

int main(int argc, char **argv)
{
	struct process second;

	device_names(&argc, argv, &device, &peer);
	if (argc == 2 && !strcmp(argv[1], "dm"))
		return take_all_dm();
	signal(SIGTERM, on_signal);
	printf("first %d\n", getpid());
	process_start(&second, hold_second, NULL);
	return hold_first(&second);
}
