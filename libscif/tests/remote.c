// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Peers for test programs of another machine: each connection gets a process
 * that calls the library as it is told, and is killed when the connection ends.
 * usage: scif_peer NODES NODE PORT
 *   NODES  as in SCIF_NODES
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"
#include "tap.h"

static pid_t start_peer(int socket)
{
	pid_t pid = fork();

	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	peer_main(socket);
	_exit(1);
}

/* A byte for this process: the peer may have stopped, and shall go on. */
static void wake(int socket, pid_t peer)
{
	char byte;

	if (recv(socket, &byte, 1, MSG_OOB) == 1)
		kill(peer, SIGCONT);
}

/*
 * The peer may be in a call that does not return, or stopped: look after it. When it
 * ends, the connection does, too.
 */
static void attend(int socket)
{
	pid_t peer = start_peer(socket);
	struct pollfd pollfd[] = {
		{ .fd = socket, .events = POLLRDHUP | POLLPRI },
		{ .fd = syscall(SYS_pidfd_open, peer, 0), .events = POLLIN },
	};

	if (pollfd[1].fd < 0)
		bail("pidfd_open: %s", strerror(errno));
	while (!(pollfd[0].revents & (POLLRDHUP | POLLERR | POLLHUP)) &&
	       !pollfd[1].revents) {
		if (poll(pollfd, 2, -1) < 0)
			continue;
		if (pollfd[0].revents & POLLPRI)
			wake(socket, peer);
	}
	kill(peer, SIGKILL);
	waitpid(peer, NULL, 0);
	_exit(0);
}

static int listen_at(unsigned short port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(fd, 32))
		bail("listen: %s", strerror(errno));
	return fd;
}

int main(int argc, char **argv)
{
	int listener, socket;

	if (argc != 4)
		bail("usage: %s NODES NODE PORT", argv[0]);
	setenv("SCIF_NODES", argv[1], 1);
	peer_node = atoi(argv[2]);
	signal(SIGCHLD, SIG_IGN);
	listener = listen_at(atoi(argv[3]));
	while (1) {
		socket = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (socket < 0)
			bail("accept: %s", strerror(errno));
		if (!fork()) {
			signal(SIGCHLD, SIG_DFL);
			close(listener);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			attend(socket);
		}
		close(socket);
	}
}
