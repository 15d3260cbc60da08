/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A second process and messages to and from it.
 */
#ifndef TESTS_PROCESS_H
#define TESTS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct process {
	pid_t pid; /* 0: it is on another machine */
	int socket;
};

/*
 * Fork: the child runs main(socket, argument) and exits with what it returns.
 * Fork before opening devices.
 */
void process_start(struct process *process, int (*main)(int, void *),
		   void *argument);

/* The same, by the process_serve() at ADDRESS:PORT. */
void process_connect(struct process *process, const char *where);

/* Fork for each that connects; never returns. */
void process_serve(const char *port, int (*main)(int, void *), void *argument)
	__attribute__((noreturn));

/* Close the socket, which ends the child, and take its exit status. */
bool process_end(struct process *process);

/* A connection with ADDRESS:PORT, or the end of the test. */
int connect_to(const char *where);

/* Whole messages; false when the other side is gone or silent too long. */
bool message_send(int socket, const void *data, size_t length);
bool message_receive(int socket, void *data, size_t length);
/* From one to the other; it is left in @message. */
bool message_relay(int from, int to, void *message, size_t length);

/* A descriptor, over a local socket; -1 if none comes. */
bool descriptor_send(int socket, int fd);
int descriptor_receive(int socket);

#endif /* TESTS_PROCESS_H */
