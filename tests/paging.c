// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * On-demand paging of pages that a program has to provide, through userfaultfd or
 * a file system of its own: it is asked, and whoever wants to copy does not wait
 * for it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "pattern.h"
#include "setup.h"
#include "tap.h"
#include "work.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define REQUEST_BYTES (1U << 17)

enum { SEED = 7 };

/* What the page holds. */
static const uint8_t *page;

/* What happens to those who want a page. */
enum answer { ANSWER_LATER, ANSWER_DATA, ANSWER_ERROR };

/* Memory of one page, and the thread that provides it. */
struct provider {
	int fd;
	uint8_t *addr;
	struct ibv_mr *mr;
	pthread_t thread;
	atomic_int answer;
	atomic_bool asked;
	atomic_bool waited_for;
	char path[64];
};

struct stage {
	struct setup *setup;
	struct provider *provider;
};

static void register_page(struct provider *provider, struct stage *stage)
{
	if (provider->addr == MAP_FAILED)
		bail("mmap: %s", strerror(errno));
	provider->mr = ibv_reg_mr(stage->setup->b_dev.pd, provider->addr,
				  PAGE_BYTES,
				  ACCESS_ALL | IBV_ACCESS_ON_DEMAND);
	if (!provider->mr)
		bail("ibv_reg_mr: %s", strerror(errno));
}

/* READ the page through a connection of its own. */
static bool read_page(struct stage *stage, int rnr_retry,
		      enum ibv_wc_status expected)
{
	struct endpoint_options options = endpoint_options(IBV_QPT_RC);
	struct setup *setup = stage->setup;
	struct ibv_sge sge = region_sge(&setup->a_mem, 0, PAGE_BYTES);
	struct ibv_send_wr wr = send_wr(1, IBV_WR_RDMA_READ, &sge, 1);
	struct endpoint a, b;
	bool good;

	options.rnr_retry = rnr_retry;
	pair_create(&a, &setup->a_dev, &b, &setup->b_dev, &options);
	memset(setup->a_mem.addr, 0, PAGE_BYTES);
	wr.wr.rdma.remote_addr = (uintptr_t)stage->provider->addr;
	wr.wr.rdma.rkey = stage->provider->mr->rkey;
	post_send(&a, &wr);
	good = cq_expect(a.send_cq, 1, expected) &&
	       (expected || check(!memcmp(setup->a_mem.addr, page, PAGE_BYTES),
				  "other bytes"));
	pair_destroy(&a, &b);
	return good;
}

/* --- a file ------------------------------------------------------------------- */

/* A page of this program, and one behind its end. */
static bool file_is_read(struct stage *stage)
{
	struct provider *provider = stage->provider;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	uint8_t bytes[PAGE_BYTES];
	struct stat stat;
	bool good;

	if (fd < 0 || fstat(fd, &stat) ||
	    pread(fd, bytes, sizeof(bytes), PAGE_BYTES) != sizeof(bytes))
		bail("this program: %s", strerror(errno));
	page = bytes;
	provider->addr = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_PRIVATE, fd,
			      PAGE_BYTES);
	register_page(provider, stage);
	good = read_page(stage, 7, IBV_WC_SUCCESS) &&
	       check(!ibv_dereg_mr(provider->mr), "ibv_dereg_mr fails");
	munmap(provider->addr, PAGE_BYTES);
	provider->addr = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_PRIVATE, fd,
			      (stat.st_size + PAGE_BYTES) & -PAGE_BYTES);
	register_page(provider, stage);
	good = read_page(stage, 7, IBV_WC_REM_ACCESS_ERR) && good;
	good = check(!ibv_dereg_mr(provider->mr), "ibv_dereg_mr fails") && good;
	munmap(provider->addr, PAGE_BYTES);
	close(fd);
	page = pattern_bytes(SEED, PAGE_BYTES);
	return good;
}

/* --- userfaultfd --------------------------------------------------------------- */

static void *handle_faults(void *argument)
{
	struct provider *provider = argument;
	struct uffd_msg message;
	struct uffdio_copy copy = {
		.dst = (uintptr_t)provider->addr,
		.src = (uintptr_t)page,
		.len = PAGE_BYTES,
	};

	if (becomes_readable(provider->fd) &&
	    read(provider->fd, &message, sizeof(message)) ==
		    (ssize_t)sizeof(message) &&
	    message.event == UFFD_EVENT_PAGEFAULT) {
		atomic_store(&provider->asked, true);
		ioctl(provider->fd, UFFDIO_COPY, &copy);
	}
	return NULL;
}

static bool handler_is_asked(struct stage *stage)
{
	struct provider *provider = stage->provider;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	bool good;

	provider->addr = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	register_page(provider, stage);
	range.range.start = (uintptr_t)provider->addr;
	range.range.len = PAGE_BYTES;
	provider->fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (provider->fd < 0 || ioctl(provider->fd, UFFDIO_API, &api) ||
	    ioctl(provider->fd, UFFDIO_REGISTER, &range))
		return check(false, "userfaultfd: %s", strerror(errno));
	pthread_create(&provider->thread, NULL, handle_faults, provider);
	good = read_page(stage, 7, IBV_WC_SUCCESS);
	pthread_join(provider->thread, NULL);
	close(provider->fd);
	good = check(atomic_load(&provider->asked), "it was not asked") && good;
	good = check(!ibv_dereg_mr(provider->mr), "ibv_dereg_mr fails") && good;
	munmap(provider->addr, PAGE_BYTES);
	return good;
}

/* --- a file system ------------------------------------------------------------- */

/* Its root is a file of one page, so there is nothing else to it. */
static const struct fuse_attr root_attr = {
	.ino = 1,
	.size = PAGE_BYTES,
	.mode = S_IFREG | 0600,
	.nlink = 1,
	.blksize = PAGE_BYTES,
};

static void reply(struct provider *provider, const struct fuse_in_header *in,
		  int error, const void *data, size_t length)
{
	struct fuse_out_header out = {
		.len = sizeof(out) + length,
		.error = error,
		.unique = in->unique,
	};
	struct iovec parts[] = {
		{ .iov_base = &out, .iov_len = sizeof(out) },
		{ .iov_base = (void *)data, .iov_len = length },
	};

	if (writev(provider->fd, parts, 2) < 0 && errno != ENOENT)
		perror("fuse");
}

/* Whoever waits for the page is let go after a while, but it is known. */
static void answer_read(struct provider *provider,
			const struct fuse_in_header *in)
{
	uint64_t end = deadline();

	atomic_store(&provider->asked, true);
	while (atomic_load(&provider->answer) == ANSWER_LATER) {
		if (now_ms() > end) {
			atomic_store(&provider->waited_for, true);
			break;
		}
		sleep_ms(1);
	}
	if (atomic_load(&provider->answer) == ANSWER_ERROR)
		reply(provider, in, -EIO, NULL, 0);
	else
		reply(provider, in, 0, page, PAGE_BYTES);
}

/* No FUSE_ASYNC_READ: who reads ahead waits, too. */
static void answer(struct provider *provider, const struct fuse_in_header *in)
{
	const struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
					    .minor = 31,
					    .max_write = PAGE_BYTES };
	const struct fuse_attr_out attr = { .attr_valid = 1000,
					    .attr = root_attr };
	const struct fuse_open_out opened = { .fh = 1 };

	switch (in->opcode) {
	case FUSE_INIT:
		reply(provider, in, 0, &init, sizeof(init));
		break;
	case FUSE_GETATTR:
		reply(provider, in, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		reply(provider, in, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		answer_read(provider, in);
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		reply(provider, in, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		reply(provider, in, -ENOSYS, NULL, 0);
		break;
	}
}

static void *serve_files(void *argument)
{
	struct provider *provider = argument;
	uint8_t *request = malloc(REQUEST_BYTES);

	while (request && read(provider->fd, request, REQUEST_BYTES) >=
				  (ssize_t)sizeof(struct fuse_in_header))
		answer(provider, (const struct fuse_in_header *)request);
	free(request);
	return NULL;
}

/* Mount it on a file, and map that. */
static void file_system_open(struct provider *provider, struct stage *stage)
{
	char options[128];
	struct stat stat;
	int fd;

	strcpy(provider->path, "/tmp/paging.XXXXXX");
	close(mkstemp(provider->path));
	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=100600,user_id=0,group_id=0", provider->fd);
	if (mount("paging", provider->path, "fuse", 0, options))
		bail("mount: %s", strerror(errno));
	pthread_create(&provider->thread, NULL, serve_files, provider);
	fd = open(provider->path, O_RDONLY | O_CLOEXEC);
	/* which also tells the kernel how large it is */
	if (fd < 0 || fstat(fd, &stat))
		bail("%s: %s", provider->path, strerror(errno));
	provider->addr = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	register_page(provider, stage);
}

static bool file_system_close(struct provider *provider)
{
	bool good;

	good = check(!ibv_dereg_mr(provider->mr), "ibv_dereg_mr fails");
	munmap(provider->addr, PAGE_BYTES);
	/* when the last user is gone, a worker perhaps, the thread's read ends */
	good = check(!umount2(provider->path, MNT_DETACH), "umount: %s",
		     strerror(errno)) &&
	       good;
	pthread_join(provider->thread, NULL);
	close(provider->fd);
	unlink(provider->path);
	return good && check(!atomic_load(&provider->waited_for),
			     "somebody waited for the page");
}

/* The sender gives up long before the page comes; then it is there. */
static bool page_comes_late(struct stage *stage)
{
	struct provider *provider = stage->provider;
	bool good;

	file_system_open(provider, stage);
	good = read_page(stage, 2, IBV_WC_RNR_RETRY_EXC_ERR);
	atomic_store(&provider->answer, ANSWER_DATA);
	good = good && read_page(stage, 7, IBV_WC_SUCCESS) &&
	       check(atomic_load(&provider->asked), "it was not asked");
	return file_system_close(provider) && good;
}

static bool page_is_broken(struct stage *stage)
{
	struct provider *provider = stage->provider;
	bool good;

	atomic_store(&provider->answer, ANSWER_ERROR);
	file_system_open(provider, stage);
	good = read_page(stage, 7, IBV_WC_REM_ACCESS_ERR);
	return file_system_close(provider) && good;
}

/* The region goes while the page is asked for; the file system answers later. */
static bool region_goes_first(struct stage *stage)
{
	struct provider *provider = stage->provider;
	bool good;

	file_system_open(provider, stage);
	good = read_page(stage, 2, IBV_WC_RNR_RETRY_EXC_ERR) &&
	       check(!ibv_dereg_mr(provider->mr), "ibv_dereg_mr fails");
	atomic_store(&provider->answer, ANSWER_DATA);
	register_page(provider, stage);
	good = good && read_page(stage, 7, IBV_WC_SUCCESS);
	return file_system_close(provider) && good;
}

/* ---------------------------------------------------------------------------- */

static const struct {
	bool (*run)(struct stage *stage);
	const char *name;
	bool files;
} cases[] = {
	{ file_is_read, "a page of a file, and one behind its end", false },
	{ handler_is_asked, "a userfaultfd handler is asked", false },
	{ page_comes_late, "file system: nobody waits for its page", true },
	{ page_is_broken, "file system: a page that can't be read", true },
	{ region_goes_first, "file system: the region goes first", true },
};

static bool run_case(struct setup *setup, unsigned int i)
{
	struct provider provider = { .fd = -1 };
	struct stage stage = { .setup = setup, .provider = &provider };

	if (cases[i].files) {
		provider.fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
		if (provider.fd < 0) {
			tap_skip("there is no FUSE", "%s", cases[i].name);
			return true;
		}
	}
	return tap_ok(cases[i].run(&stage), "%s", cases[i].name);
}

int main(int argc, char **argv)
{
	struct setup setup;
	unsigned int i;

	page = pattern_bytes(SEED, PAGE_BYTES);
	setup_open(&setup, &argc, argv, PAGE_BYTES);
	for (i = 0; i < COUNT(cases); i++)
		run_case(&setup, i);
	setup_close(&setup);
	return tap_end();
}
