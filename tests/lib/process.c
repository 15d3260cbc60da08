// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "process.h"
#include "tap.h"

void process_start(struct process *process, int (*main)(int, void *),
		   void *argument)
{
	int sockets[2];

	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets))
		bail("socketpair: %s", strerror(errno));
	process->pid = fork();
	if (process->pid < 0)
		bail("fork: %s", strerror(errno));
	if (!process->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sockets[0]);
		exit(main(sockets[1], argument));
	}
	close(sockets[1]);
	process->socket = sockets[0];
}

bool process_end(struct process *process)
{
	uint64_t end = deadline();
	unsigned int round = 0;
	int status;

	close(process->socket);
	while (waitpid(process->pid, &status, WNOHANG) == 0) {
		if (now_ms() > end) {
			kill(process->pid, SIGKILL);
			waitpid(process->pid, &status, 0);
			return check(false, "the other process does not end");
		}
		sleep_ms(round++ < 10 ? 1 : 20);
	}
	return check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
		     "the other process ends with status 0x%x", status);
}

bool message_send(int socket, const void *data, size_t length)
{
	return send(socket, data, length, MSG_NOSIGNAL) == (ssize_t)length;
}

bool message_receive(int socket, void *data, size_t length)
{
	return becomes_readable(socket) &&
	       recv(socket, data, length, 0) == (ssize_t)length;
}

bool message_relay(int from, int to, void *message, size_t length)
{
	return message_receive(from, message, length) &&
	       message_send(to, message, length);
}
