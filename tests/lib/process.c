// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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

static void send_at_once(int fd)
{
	int yes = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

int connect_to(const char *where)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char host[INET_ADDRSTRLEN];
	unsigned short port;

	if (sscanf(where, "%15[0-9.]:%hu", host, &port) != 2 ||
	    inet_pton(AF_INET, host, &address.sin_addr) != 1)
		bail("not ADDRESS:PORT: %s", where);
	address.sin_port = htons(port);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		bail("%s: %s", where, strerror(errno));
	send_at_once(fd);
	return fd;
}

void process_connect(struct process *process, const char *where)
{
	process->pid = 0;
	process->socket = connect_to(where);
}

static int listen_at(const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int yes = 1;

	address.sin_port = htons(atoi(port));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(fd, 8))
		bail("port %s: %s", port, strerror(errno));
	return fd;
}

void process_serve(const char *port, int (*main)(int, void *), void *argument)
{
	int listener = listen_at(port), fd, status;

	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0 || fork()) {
			close(fd);
			continue;
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGCHLD, SIG_DFL);
		close(listener);
		send_at_once(fd);
		status = main(fd, argument);
		/* what waitpid() tells of a child */
		message_send(fd, &status, sizeof(status));
		exit(status);
	}
}

static bool remote_end(struct process *process)
{
	int status = -1;

	shutdown(process->socket, SHUT_WR);
	message_receive(process->socket, &status, sizeof(status));
	close(process->socket);
	return check(!status, "the other process ends with status %d", status);
}

bool process_end(struct process *process)
{
	uint64_t end = deadline();
	unsigned int round = 0;
	int status;

	if (!process->pid)
		return remote_end(process);
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
	       recv(socket, data, length, MSG_WAITALL) == (ssize_t)length;
}

bool message_relay(int from, int to, void *message, size_t length)
{
	return message_receive(from, message, length) &&
	       message_send(to, message, length);
}

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static struct msghdr message_of(struct iovec *byte, union control *control)
{
	return (struct msghdr){
		.msg_iov = byte,
		.msg_iovlen = 1,
		.msg_control = control->bytes,
		.msg_controllen = sizeof(control->bytes),
	};
}

bool descriptor_send(int socket, int fd)
{
	union control control = { .header = {
					  .cmsg_level = SOL_SOCKET,
					  .cmsg_type = SCM_RIGHTS,
					  .cmsg_len = CMSG_LEN(sizeof(fd)),
				  } };
	struct iovec byte = { "", 1 };
	struct msghdr message = message_of(&byte, &control);

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

int descriptor_receive(int socket)
{
	union control control = { .bytes = { 0 } };
	char text;
	struct iovec byte = { &text, 1 };
	struct msghdr message = message_of(&byte, &control);
	int fd = -1;

	if (!becomes_readable(socket) ||
	    recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 ||
	    control.header.cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	return fd;
}
