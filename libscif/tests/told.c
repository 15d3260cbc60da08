// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * What a peer does: it calls the library as it is told.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"
#include "process.h"

static int64_t do_poll(struct peer_call *call)
{
	struct scif_pollepd entry = { call->epd, call->flags, 0 };
	int ret = scif_poll(&entry, 1, call->length);

	call->flags = entry.revents;
	return ret;
}

static int64_t do_accept(struct peer_call *call)
{
	int epd, ret;

	ret = scif_accept(call->epd, &call->port, &epd, call->flags);
	return ret ? ret : epd;
}

static int64_t do_mmap(struct peer_call *call)
{
	void *mem = scif_mmap(NULL, call->length, call->prot, call->flags,
			      call->epd, call->remote);

	return mem == SCIF_MMAP_FAILED ? -1 : (intptr_t)mem;
}

/* Unmaps what @call lists, and tells the other side by a byte. */
static int64_t do_munmap_send(struct peer_call *call)
{
	void *mem;
	int i;

	for (i = 0; i < call->flags; i++) {
		memcpy(&mem, call->data + i * sizeof(mem), sizeof(mem));
		if (scif_munmap(mem, call->length))
			return -1;
	}
	return scif_send(call->epd, "", 1, SCIF_SEND_BLOCK);
}

static int64_t do_alloc(struct peer_call *call)
{
	void *mem = scif_alloc_dm(call->epd, call->length);

	return mem == SCIF_ALLOC_FAILED ? -1 : (intptr_t)mem;
}

static int64_t do_fence_mark(struct peer_call *call)
{
	int mark;

	return scif_fence_mark(call->epd, call->flags, &mark) ? -1 : mark;
}

/* How many descriptors of devices a child has. */
static int64_t do_fork(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(count_files("/dev/infiniband/"));
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A place below 0 is a bad address: nothing can be mapped so low. */
static void *memory_of(const struct peer_call *call, uint8_t *arena)
{
	return call->local < 0 ? (void *)-call->local : arena + call->local;
}

int64_t peer_perform(struct peer_call *call, uint8_t *arena)
{
	size_t length = call->length;

	switch (call->op) {
	case PEER_OPEN:
		return scif_open();
	case PEER_CLOSE:
		return scif_close(call->epd);
	case PEER_PLAIN_CLOSE:
		return close(call->epd);
	case PEER_BIND:
		return scif_bind(call->epd, call->port.port);
	case PEER_LISTEN:
		return scif_listen(call->epd, call->flags);
	case PEER_CONNECT:
		return scif_connect(call->epd, &call->port);
	case PEER_ACCEPT:
		return do_accept(call);
	case PEER_SEND:
		return scif_send(call->epd, call->data, length, call->flags);
	case PEER_RECV:
		return scif_recv(call->epd, call->data, length, call->flags);
	case PEER_POLL:
		return do_poll(call);
	case PEER_NONBLOCK:
		return fcntl(call->epd, F_SETFL, O_NONBLOCK);
	case PEER_REGISTER:
		return scif_register(call->epd, arena + call->local, length,
				     call->remote, call->prot, call->flags);
	case PEER_UNREGISTER:
		return scif_unregister(call->epd, call->remote, length);
	case PEER_READFROM:
		return scif_readfrom(call->epd, call->local, length,
				     call->remote, call->flags);
	case PEER_WRITETO:
		return scif_writeto(call->epd, call->local, length,
				    call->remote, call->flags);
	case PEER_VREADFROM:
		return scif_vreadfrom(call->epd, memory_of(call, arena), length,
				      call->remote, call->flags);
	case PEER_VWRITETO:
		return scif_vwriteto(call->epd, memory_of(call, arena), length,
				     call->remote, call->flags);
	case PEER_FENCE_MARK:
		return do_fence_mark(call);
	case PEER_FENCE_WAIT:
		return scif_fence_wait(call->epd, call->flags);
	case PEER_FENCE_SIGNAL:
		return scif_fence_signal(call->epd, call->local,
					 call->local_value, call->remote,
					 call->remote_value, call->flags);
	case PEER_MMAP:
		return do_mmap(call);
	case PEER_MUNMAP:
		return scif_munmap((void *)call->local, length);
	case PEER_MUNMAP_SEND:
		return do_munmap_send(call);
	case PEER_PEEK:
		memcpy(call->data, arena + call->local, length);
		return 0;
	case PEER_POKE:
		memcpy(arena + call->local, call->data, length);
		return 0;
	case PEER_LOAD:
		memcpy(call->data, (void *)call->local, length);
		return 0;
	case PEER_STORE:
		memcpy((void *)call->local, call->data, length);
		return 0;
	case PEER_ALLOC:
		return do_alloc(call);
	case PEER_FREE:
		return scif_free_dm((void *)call->local);
	case PEER_REGISTER_AT:
		return scif_register(call->epd, (void *)call->local, length,
				     call->remote, call->prot, call->flags);
	case PEER_SETGROUPS:
		return setgroups(0, NULL);
	case PEER_FORK:
		return do_fork();
	case PEER_STOP:
		raise(SIGSTOP);
		return 0;
	case PEER_EXIT:
		_exit(0);
	}
	errno = ENOSYS;
	return -1;
}

void peer_main(int socket)
{
	struct peer_call *call = calloc(1, sizeof(*call));
	char number[8];
	uint8_t *arena;

	snprintf(number, sizeof(number), "%u", peer_node);
	setenv("SCIF_NODE", number, 1);
	arena = mmap(NULL, PEER_ARENA, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (call && recv(socket, call, sizeof(*call), MSG_WAITALL) ==
			       sizeof(*call)) {
		errno = 0;
		call->ret = peer_perform(call, arena);
		call->error = errno;
		if (send(socket, call, sizeof(*call), MSG_NOSIGNAL) < 0)
			break;
	}
	_exit(0);
}
