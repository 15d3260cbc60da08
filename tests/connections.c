// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connections by rdma_cm that go wrong or come at once: refused, rejected,
 * crossing, ended by both sides or by death, and very many.
 *
 * usage: connections [CYCLES]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "cm.h"
#include "process.h"
#include "tap.h"

enum {
	ABSENT_PORT = 7999,
	PORT = 7500,
	AT_ONCE = 32,
	DEFAULT_CYCLES = 100,
	/* IBA 12.6.7.2: reasons to reject */
	REASON_NO_SERVICE = 8,
	REASON_CONSUMER = 28,
};

static const char offer[] = "an offer that is refused";
static const char refusal[] = "no, thank you";

static struct sockaddr_in server;
static struct sockaddr_in client;
static unsigned int cycle_count = DEFAULT_CYCLES;

/* Has that begun to arrive as the private data of an event? */
static bool event_says(const struct rdma_cm_event *event, const char *text,
		       size_t length)
{
	return check(event->param.conn.private_data_len >= length &&
			     !memcmp(event->param.conn.private_data, text,
				     length),
		     "the private data did not arrive");
}

/* The other process: it does this, and ends. */
static bool start(struct process *process, int (*main)(int, void *))
{
	char ready;

	process_start(process, main, NULL);
	return check(message_receive(process->socket, &ready, 1),
		     "the other process does not start");
}

static void open_server(struct cm_side *side, int socket)
{
	cm_open(side);
	cm_listen(side, &server, PORT);
	message_send(socket, "", 1);
}

static int reject(int socket, void *unused)
{
	struct rdma_cm_event *event;
	struct cm_side side;
	struct rdma_cm_id *id;
	bool good;

	(void)unused;
	open_server(&side, socket);
	event = cm_event(&side, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!event)
		return 1;
	good = event_says(event, offer, sizeof(offer));
	id = event->id;
	rdma_ack_cm_event(event);
	good = check(!rdma_reject(id, refusal, sizeof(refusal)), "reject: %s",
		     strerror(errno)) &&
	       good;
	rdma_destroy_id(id);
	becomes_readable(socket);
	cm_close(&side);
	return good ? 0 : 1;
}

/* Is a request to @port rejected for @reason, in those words? */
static bool is_rejected(uint16_t port, int reason, const char *text,
			size_t length)
{
	struct rdma_cm_event *event = NULL;
	struct cm_conn *conn;
	struct cm_side side;
	bool good = false;

	cm_open(&side);
	conn = cm_prepare(&side, &client, &server, port);
	if (conn && cm_request(conn, offer, sizeof(offer)))
		event = cm_event(&side, RDMA_CM_EVENT_REJECTED);
	if (event) {
		good = check(event->status == reason,
			     "the reason is %d instead of %d", event->status,
			     reason) &&
		       event_says(event, text, length);
		rdma_ack_cm_event(event);
	}
	cm_close(&side);
	return good;
}

static bool rejected(void)
{
	struct process process;
	bool good;

	good = start(&process, reject) &&
	       is_rejected(PORT, REASON_CONSUMER, refusal, sizeof(refusal));
	return process_end(&process) && good;
}

static int serve(int socket, void *unused)
{
	struct cm_side side;

	(void)unused;
	open_server(&side, socket);
	cm_serve(&side, socket);
	cm_close(&side);
	return 0;
}

static bool one_cycle(void)
{
	struct cm_conn *conn;
	struct cm_side side;
	bool good;

	cm_open(&side);
	conn = cm_connect(&side, &client, &server, PORT);
	good = conn && cm_ping(conn) && cm_disconnect(conn) &&
	       cm_expect(&side, RDMA_CM_EVENT_DISCONNECTED);
	cm_close(&side);
	return good;
}

static bool cycles(void)
{
	struct process process;
	unsigned int i = 0;

	if (start(&process, serve))
		while (i < cycle_count && check(one_cycle(), "in cycle %u", i))
			i++;
	return process_end(&process) && i == cycle_count;
}

static bool at_once_steps(struct cm_side *side)
{
	struct cm_conn *conns[AT_ONCE];
	int i;

	for (i = 0; i < AT_ONCE; i++) {
		conns[i] = cm_prepare(side, &client, &server, PORT);
		if (!conns[i])
			return false;
	}
	for (i = 0; i < AT_ONCE; i++)
		if (!cm_request(conns[i], NULL, 0))
			return false;
	for (i = 0; i < AT_ONCE; i++)
		if (!cm_expect(side, RDMA_CM_EVENT_ESTABLISHED))
			return false;
	for (i = 0; i < AT_ONCE; i++)
		if (!cm_ping(conns[i]))
			return false;
	for (i = 0; i < AT_ONCE; i++)
		if (!cm_disconnect(conns[i]))
			return false;
	for (i = 0; i < AT_ONCE; i++)
		if (!cm_expect(side, RDMA_CM_EVENT_DISCONNECTED))
			return false;
	return true;
}

static bool at_once(void)
{
	struct process process;
	struct cm_side side;
	bool good = false;

	if (start(&process, serve)) {
		cm_open(&side);
		good = at_once_steps(&side);
		cm_close(&side);
	}
	return process_end(&process) && good;
}

/* Let the sides of a case go on together. */
static bool meet(int socket)
{
	char word = 0;

	return message_send(socket, &word, 1) &&
	       message_receive(socket, &word, 1);
}

static bool let_meet(struct process sides[2])
{
	char word = 0;

	return message_receive(sides[0].socket, &word, 1) &&
	       message_receive(sides[1].socket, &word, 1) &&
	       message_send(sides[0].socket, &word, 1) &&
	       message_send(sides[1].socket, &word, 1);
}

/*
 * Listens, and connects to the other who does the same: what each sends on the
 * connection that it asked for arrives at the one that it accepted.
 */
static int cross(int socket, void *first)
{
	struct sockaddr_in *own = first ? &client : &server;
	struct sockaddr_in *other = first ? &server : &client;
	struct cm_side passive, active;
	struct cm_conn *to, *from;
	bool good;

	cm_open(&passive);
	cm_open(&active);
	cm_listen(&passive, own, PORT);
	good = meet(socket) && (to = cm_prepare(&active, own, other, PORT)) &&
	       meet(socket) && cm_request(to, NULL, 0) &&
	       (from = cm_accept(&passive)) &&
	       cm_expect(&active, RDMA_CM_EVENT_ESTABLISHED) &&
	       cm_expect(&passive, RDMA_CM_EVENT_ESTABLISHED) && cm_send(to) &&
	       cm_receive(from) && meet(socket) && cm_disconnect(to) &&
	       cm_disconnect(from) &&
	       cm_expect(&active, RDMA_CM_EVENT_DISCONNECTED) &&
	       cm_expect(&passive, RDMA_CM_EVENT_DISCONNECTED);
	cm_close(&active);
	cm_close(&passive);
	return good ? 0 : 1;
}

static bool crossing(void)
{
	struct process sides[2];
	bool good = true;
	int step;

	process_start(&sides[0], cross, NULL);
	process_start(&sides[1], cross, &sides);
	for (step = 0; step < 3 && good; step++)
		good = check(let_meet(sides), "not further than step %d", step);
	good = process_end(&sides[0]) && good;
	return process_end(&sides[1]) && good;
}

/* Accepts, and is killed as soon as there is a connection. */
static int die(int socket, void *unused)
{
	struct cm_side side;

	(void)unused;
	open_server(&side, socket);
	if (cm_accept(&side) && cm_expect(&side, RDMA_CM_EVENT_ESTABLISHED))
		raise(SIGKILL);
	return 1;
}

static bool was_killed(const struct process *process)
{
	int status;

	return check(waitpid(process->pid, &status, 0) == process->pid &&
			     WIFSIGNALED(status),
		     "the other process was not killed");
}

static bool peer_dies(void)
{
	struct process process;
	struct cm_conn *conn;
	struct cm_side side;
	bool good;

	if (!start(&process, die))
		return false;
	cm_open(&side);
	conn = cm_connect(&side, &client, &server, PORT);
	good = conn && cm_expect(&side, RDMA_CM_EVENT_DISCONNECTED) &&
	       cm_disconnect(conn) && cm_flushes(conn);
	cm_close(&side);
	return was_killed(&process) && good;
}

static bool absent(void)
{
	return is_rejected(ABSENT_PORT, REASON_NO_SERVICE, "", 0);
}

/* A case in a process of its own: librdmacm does not live through a fork. */
static bool alone(bool (*run)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (!pid)
		exit(run() ? 0 : 1);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	       !WEXITSTATUS(status);
}

static void read_address(struct sockaddr_in *address, const char *variable,
			 const char *otherwise)
{
	const char *text = getenv(variable);

	address->sin_family = AF_INET;
	if (inet_pton(AF_INET, text ? text : otherwise, &address->sin_addr) !=
	    1)
		bail("%s is no address", text);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		cycle_count = strtoul(argv[1], NULL, 0);
	read_address(&server, "MIC_TEST_SERVER", "10.77.0.2");
	read_address(&client, "MIC_TEST_CLIENT", "10.77.0.1");
	tap_ok(alone(absent), "nobody listens: rejected for that reason");
	tap_ok(alone(rejected), "rejected, with private data both ways");
	tap_ok(alone(at_once), "%d connections in the making at once", AT_ONCE);
	tap_ok(alone(crossing), "both sides connect, and disconnect, at once");
	tap_ok(alone(peer_dies),
	       "the peer dies: disconnected, and all is flushed");
	tap_ok(alone(cycles), "%u times connected, used and disconnected",
	       cycle_count);
	return tap_end();
}
