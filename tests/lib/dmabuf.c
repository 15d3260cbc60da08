// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/dma-heap.h>

#include "dmabuf.h"

/* What of <drm/drm.h> and <drm/drm_mode.h> is needed here. */
struct drm_mode_create_dumb {
	uint32_t height, width, bpp, flags;
	uint32_t handle, pitch;
	uint64_t size;
};

struct drm_prime_handle {
	uint32_t handle, flags;
	int32_t fd;
};

struct drm_version {
	int major, minor, patch;
	size_t name_len;
	char *name;
	size_t date_len;
	char *date;
	size_t desc_len;
	char *desc;
};

#define DRM_IOCTL_VERSION _IOWR('d', 0x00, struct drm_version)
#define DRM_IOCTL_PRIME_HANDLE_TO_FD _IOWR('d', 0x2d, struct drm_prime_handle)
#define DRM_IOCTL_MODE_CREATE_DUMB _IOWR('d', 0xb2, struct drm_mode_create_dumb)

static int from_heap(size_t length)
{
	struct dma_heap_allocation_data data = {
		.len = length,
		.fd_flags = O_RDWR | O_CLOEXEC,
	};
	int device, failed;

	device = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
	if (device < 0)
		return -1;
	failed = ioctl(device, DMA_HEAP_IOCTL_ALLOC, &data);
	close(device);
	return failed ? -1 : (int)data.fd;
}

static int open_vgem(void)
{
	char path[32], name[16] = "";
	struct drm_version version = { .name = name,
				       .name_len = sizeof(name) - 1 };
	int i, fd;

	for (i = 0; i < 16; i++) {
		snprintf(path, sizeof(path), "/dev/dri/card%d", i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		version.name_len = sizeof(name) - 1;
		if (!ioctl(fd, DRM_IOCTL_VERSION, &version) &&
		    !strcmp(name, "vgem"))
			return fd;
		close(fd);
	}
	return -1;
}

/* A picture of one line of @length bytes. */
static int from_vgem(size_t length)
{
	struct drm_mode_create_dumb dumb = {
		.height = 1,
		.width = length / 4,
		.bpp = 32,
	};
	struct drm_prime_handle prime = { .flags = O_RDWR | O_CLOEXEC,
					  .fd = -1 };
	int device = open_vgem();

	if (device < 0)
		return -1;
	if (!ioctl(device, DRM_IOCTL_MODE_CREATE_DUMB, &dumb)) {
		prime.handle = dumb.handle;
		if (ioctl(device, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime))
			prime.fd = -1;
	}
	close(device);
	return prime.fd;
}

bool dmabuf_create(struct dmabuf *buf, size_t length)
{
	void *addr;

	buf->exporter = "the system's heap";
	buf->fd = from_heap(length);
	if (buf->fd < 0) {
		buf->exporter = "vgem";
		buf->fd = from_vgem(length);
	}
	if (buf->fd < 0)
		return false;
	addr = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, buf->fd,
		    0);
	if (addr == MAP_FAILED) {
		close(buf->fd);
		return false;
	}
	buf->addr = addr;
	buf->length = length;
	return true;
}

void dmabuf_destroy(struct dmabuf *buf)
{
	munmap(buf->addr, buf->length);
	if (buf->fd >= 0)
		close(buf->fd);
}
