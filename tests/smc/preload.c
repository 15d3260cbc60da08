// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * To be preloaded: a program's TCP sockets become sockets of SMC (AF_SMC), which copies by
 * RDMA what it can, and is TCP otherwise.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef AF_SMC
#define AF_SMC 43
#endif

enum { SMC_IPV4, SMC_IPV6, TYPE_MASK = 0xf };

int socket(int domain, int type, int protocol)
{
	if ((domain == AF_INET || domain == AF_INET6) &&
	    (type & TYPE_MASK) == SOCK_STREAM &&
	    (!protocol || protocol == IPPROTO_TCP)) {
		protocol = domain == AF_INET6 ? SMC_IPV6 : SMC_IPV4;
		domain = AF_SMC;
	}
	return syscall(SYS_socket, domain, type, protocol);
}
