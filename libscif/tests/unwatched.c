// SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
/*
 * Windows of memory that the kernel does not watch, for want of memory perhaps.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <rdma/mic-abi.h>

#include "behaviour.h"
#include "pattern.h"
#include "peer.h"
#include "tap.h"

enum {
	LENGTH = 65536,
	AT = 2 * COUPLE_BYTES,
	RW = SCIF_PROT_READ | SCIF_PROT_WRITE,
	SYNC = SCIF_RMA_SYNC
};

/* From now on this thread can't have memory watched. */
static bool refuse_watches(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)MIC_IOC_WATCH, 0,
			 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {
		.len = sizeof(code) / sizeof(code[0]),
		.filter = code,
	};

	return check(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
			     !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER,
				    &program),
		     "seccomp: %s", strerror(errno));
}

struct owner {
	int epd;
	uint8_t *mem;
	bool ok;
};

static void *register_unwatched(void *argument)
{
	struct owner *owner = argument;

	owner->ok = refuse_watches() &&
		    succeeds(scif_register(owner->epd, owner->mem, LENGTH, AT,
					   RW, SCIF_MAP_FIXED),
			     AT, "register");
	return NULL;
}

/* It shows the pages that it was made of, whatever is at their address now. */
static bool replaced(struct owner *owner, uint8_t *own)
{
	uint8_t *mem = owner->mem;

	memcpy(mem, pattern_bytes(5, LENGTH), LENGTH);
	if (mmap(mem, LENGTH, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != mem)
		return check(false, "mmap");
	memset(mem, 0x55, LENGTH);
	return succeeds(scif_writeto(owner->epd, AT, LENGTH, 0, SYNC), 0,
			"from it") &&
	       succeeds(scif_readfrom(owner->epd, 0, LENGTH, 0, SYNC), 0,
			"back") &&
	       check(!memcmp(own, pattern_bytes(5, LENGTH), LENGTH),
		     "the pages are what they were") &&
	       succeeds(scif_readfrom(owner->epd, AT, LENGTH, 0, SYNC), 0,
			"into it") &&
	       check(mem[0] == 0x55 && mem[LENGTH - 1] == 0x55,
		     "what is there now was not touched");
}

static bool unwatched_window(void)
{
	struct couple couple = couple_begin();
	struct owner owner = { .epd = couple.own, .mem = fresh_pages(LENGTH) };
	pthread_t thread;
	bool ok;

	pthread_create(&thread, NULL, register_unwatched, &owner);
	pthread_join(thread, NULL);
	ok = owner.ok && replaced(&owner, couple.mem);
	couple_end(&couple);
	munmap(owner.mem, LENGTH);
	return ok;
}

const struct behaviour unwatched_cases[] = {
	{ 44, "a window that nobody watches, whose memory is replaced",
	  unwatched_window },
	{ 0, NULL, NULL }
};
