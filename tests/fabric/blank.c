// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Memory that nobody writes to: device memory, or nearly all ordinary memory that is
 * free. Ended by SIGTERM it looks once more, and exits with 0 if it always was blank.
 *
 * usage: blank [--device NAME] [memory]
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "device.h"
#include "memory.h"
#include "tap.h"

/* More than a process of "slice" has. */
enum { PIECES = 4, BYTES = 64 * PAGE_BYTES };

/* What the kernel needs for itself meanwhile. */
enum { LEFT_PAGES = 64 << 8 };

static volatile sig_atomic_t ended;

static void end(int signal)
{
	ended = signal;
}

static void tell(void)
{
	tap_note("it is blank");
	fflush(stdout);
}

static bool is_blank(struct ibv_dm *dm)
{
	static uint8_t copy[BYTES];

	return !ibv_memcpy_from_dm(copy, dm, 0, BYTES) &&
	       all_are(copy, BYTES, 0);
}

static bool are_blank(struct ibv_dm **piece)
{
	unsigned int i;

	for (i = 0; i < PIECES; i++)
		if (!is_blank(piece[i]))
			return false;
	return true;
}

/* Return: whether it has been blank up to the end. */
static bool watch_device_memory(const char *name)
{
	struct ibv_alloc_dm_attr attr = { .length = BYTES };
	struct ibv_dm *piece[PIECES];
	struct device dev;
	unsigned int i;

	device_open(&dev, name);
	for (i = 0; i < PIECES; i++) {
		piece[i] = ibv_alloc_dm(dev.ctx, &attr);
		if (!piece[i])
			bail("ibv_alloc_dm: %s", strerror(errno));
	}
	if (!are_blank(piece))
		return false;
	tell();
	while (!ended && are_blank(piece))
		sleep_ms(1);
	return are_blank(piece);
}

/*
 * Page by page, so that those are used that were free one by one. Return: as for device
 * memory.
 */
static bool watch_memory(void)
{
	size_t bytes = (sysconf(_SC_AVPHYS_PAGES) - LEFT_PAGES) * PAGE_BYTES;
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t at;

	if (memory == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (at = 0; at < bytes; at += PAGE_BYTES)
		*(volatile uint8_t *)(memory + at) = 0;
	tell();
	while (!ended)
		sleep_ms(1);
	return !memory[0] && !memcmp(memory, memory + 1, bytes - 1);
}

int main(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = end };
	const char *name, *peer;

	sigaction(SIGTERM, &action, NULL);
	device_names(&argc, argv, &name, &peer);
	if (argc == 2 && !strcmp(argv[1], "memory"))
		return !watch_memory();
	return !watch_device_memory(name);
}
