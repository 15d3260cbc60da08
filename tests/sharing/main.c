// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Objects that processes share which are not each other's children: XRC domains,
 * by a file that both open, and contexts with what is in them, by a descriptor
 * that one sends to the other. The second one is this program, started anew; it
 * finds the first by the name of a socket.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "process.h"
#include "sharing.h"
#include "tap.h"

#define SECOND "--second="

enum { MOST_ARGUMENTS = 16 };

extern char **environ;

bool meet(struct side *side, bool ok)
{
	bool theirs = false;

	exchange(side, &ok, &theirs, sizeof(ok));
	return ok && theirs;
}

void exchange(struct side *side, const void *mine, void *theirs, size_t length)
{
	if (!message_send(side->socket, mine, length) ||
	    !message_receive(side->socket, theirs, length))
		bail("the other process is gone");
}

int pass_fd(struct side *side, int fd)
{
	if (!side->second) {
		if (!descriptor_send(side->socket, fd))
			bail("no descriptor goes");
		return fd;
	}
	fd = descriptor_receive(side->socket);
	if (fd < 0)
		bail("no descriptor comes");
	return fd;
}

void report(struct side *side, bool ok, const char *name)
{
	ok = meet(side, ok);
	if (!side->second)
		tap_ok(ok, "%s", name);
}

/* --- the two processes ------------------------------------------------------ */

/* A name that is in no file system. */
static struct sockaddr_un socket_name(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s",
		 name);
	return address;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		bail("socket: %s", strerror(errno));
	return fd;
}

/* With the arguments that name devices. */
static pid_t start_second(const char *name, char **argv)
{
	char *arguments[MOST_ARGUMENTS] = { argv[0] };
	char text[96];
	unsigned int i;
	pid_t pid;

	snprintf(text, sizeof(text), SECOND "%s", name);
	arguments[1] = text;
	for (i = 1; i < MOST_ARGUMENTS - 2 && argv[i]; i++)
		arguments[i + 1] = argv[i];
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ))
		bail("posix_spawn: %s", strerror(errno));
	return pid;
}

static int wait_for_second(const char *name, char **argv, pid_t *pid)
{
	struct sockaddr_un address = socket_name(name);
	int listener = new_socket(), fd;

	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(listener, 1))
		bail("no socket to listen on: %s", strerror(errno));
	*pid = start_second(name, argv);
	if (!becomes_readable(listener))
		bail("the other process does not connect");
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		bail("accept4: %s", strerror(errno));
	close(listener);
	return fd;
}

static int find_first(const char *name)
{
	struct sockaddr_un address = socket_name(name);
	int fd = new_socket();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		bail("connect: %s", strerror(errno));
	return fd;
}

static int be_second(struct side *side)
{
	side->second = true;
	run_domains(side);
	run_contexts(side);
	run_death(side);
	return 1;
}

static int be_first(struct side *side, struct process *second)
{
	struct neighbours neighbours;

	neighbours_open(&neighbours, &side->setup);
	run_domains(side);
	run_contexts(side);
	tap_ok(neighbours_work(&neighbours),
	       "a connection of the first process still works");
	run_death(side);
	tap_ok(process_end(second) && neighbours_work(&neighbours),
	       "and when the second one has died");
	neighbours_close(&neighbours);
	setup_close(&side->setup);
	return tap_end();
}

int main(int argc, char **argv)
{
	struct process second;
	struct side side = { .second = false };
	char name[64];

	if (argc > 1 && !strncmp(argv[1], SECOND, strlen(SECOND))) {
		side.socket = find_first(argv[1] + strlen(SECOND));
		setup_open(&side.setup, &argc, argv, REGION_BYTES);
		return be_second(&side);
	}
	snprintf(name, sizeof(name), "mic-sharing-%d", getpid());
	second.socket = wait_for_second(name, argv, &second.pid);
	side.socket = second.socket;
	setup_open(&side.setup, &argc, argv, REGION_BYTES);
	return be_first(&side, &second);
}
