// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * A program as it would be written against Intel's library: its names, and
 * the headers that its header brought along. Only compiled.
 */
#include <scif.h>

static int accept_one(scif_epd_t listener)
{
	struct scif_portID from;
	scif_epd_t epd;
	char byte = 0;

	if (scif_accept(listener, &from, &epd, SCIF_ACCEPT_SYNC) ||
	    scif_accept(listener, &from, &epd, ACCEPT_SYNC))
		return errno;
	scif_send(epd, &byte, 1, SEND_BLOCK);
	scif_recv(epd, &byte, 1, RECV_BLOCK | SCIF_RECV_BLOCK);
	return scif_close(epd);
}

int main(void)
{
	uint16_t nodes[32], self;
	struct scif_pollepd poll_epd;
	struct pollfd poll_fd;
	portID_t port;
	struct portID same;
	scif_epd_t epd;
	off_t window;
	fd_set set;
	int mark;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED)
		return 1;
	FD_ZERO(&set);
	FD_SET(scif_get_fd(epd), &set);
	port.node = scif_get_nodeIDs(nodes, 32, &self);
	port.port = SCIF_COI_PORT_0 + SCIF_ADMIN_PORT_END + SCIF_PORT_RSVD;
	same = port;
	scif_bind(epd, SCIF_MYO_PORT_0);
	scif_listen(epd, 5);
	scif_connect(epd, &same);
	window = scif_register(epd, 0, 4096, 0,
			       SCIF_PROT_READ | SCIF_PROT_WRITE,
			       SCIF_MAP_FIXED);
	if (window == SCIF_REGISTER_FAILED)
		usleep(1);
	if (scif_mmap(0, 4096, SCIF_PROT_READ, 0, epd, window) ==
	    SCIF_MMAP_FAILED)
		scif_munmap(0, 4096);
	scif_readfrom(epd, 0, 1, 0, SCIF_RMA_USECPU | SCIF_RMA_ORDERED);
	scif_writeto(epd, 0, 1, 0, SCIF_RMA_USECACHE);
	scif_vreadfrom(epd, 0, 1, 0, SCIF_RMA_SYNC);
	scif_vwriteto(epd, 0, 1, 0, 0);
	scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark);
	scif_fence_wait(epd, mark);
	scif_fence_signal(epd, 0, 1, 0, 2,
			  SCIF_FENCE_INIT_PEER | SCIF_SIGNAL_LOCAL |
				  SCIF_SIGNAL_REMOTE);
	poll_epd.epd = epd;
	poll_epd.events = SCIF_POLLIN | SCIF_POLLOUT;
	poll_fd.fd = epd;
	poll_fd.events = POLLIN;
	poll(&poll_fd, 1, 0);
	scif_poll(&poll_epd, 1, -1);
	scif_unregister(epd, window, 4096);
	return accept_one(epd);
}
