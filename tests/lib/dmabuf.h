/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory of a dma-buf, from the system's heap or from the virtual graphics
 * device vgem, whichever this kernel has. (Linux 6.1 can't map udmabuf's into
 * itself.)
 */
#ifndef TESTS_DMABUF_H
#define TESTS_DMABUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dmabuf {
	int fd;
	size_t length;
	uint8_t *addr; /* mapped here */
	const char *exporter;
};

/* False if nobody exports dma-bufs here. @length: whole pages. */
bool dmabuf_create(struct dmabuf *buf, size_t length);
void dmabuf_destroy(struct dmabuf *buf);

#endif /* TESTS_DMABUF_H */
