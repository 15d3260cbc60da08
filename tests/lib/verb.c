// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "fail.h"
#include "tap.h"
#include "verb.h"

static unsigned int open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	if (!dir)
		bail("/proc/self/fd: %s", strerror(errno));
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

void *done(int error)
{
	static char success;

	errno = error;
	return error ? NULL : &success;
}

int nothing(void *object)
{
	(void)object;
	return 0;
}

bool verb_is_short(const struct verb *verb, int error)
{
	(void)verb;
	return error == ENOMEM || error == EFAULT || error == EAGAIN ||
	       /* the way to a peer, which the network looks for */
	       error == ENOBUFS ||
	       /* libibverbs knows no better when a query fails */
	       error == EIO || error == ENOSYS;
}

static unsigned int after(const struct failures *failures, unsigned int n)
{
	if (n < failures->each)
		return n + 1;
	/* the first step ends anywhere */
	return n + (n == failures->each ? 1 + time(NULL) % failures->step :
					  failures->step);
}

/* Returns how many failures the verb went through, or -1. */
static int fail_each(const struct verb *verb, const struct failures *failures)
{
	unsigned int n, last = 0, tried = 0, refused = 0;
	bool failed = true, ok = true;
	void *object;
	int error;

	for (n = 1; failed && n < VERB_MOST; n = after(failures, n)) {
		fail_nth(n);
		errno = 0;
		object = verb->create();
		error = errno;
		failed = has_failed();
		fail_nth(0);
		if (object)
			ok &= check(!verb->destroy(object),
				    "failure %u: it can't be undone", n);
		else
			ok &= check(failed && failures->expected(verb, error),
				    "failure %u: %s", n, strerror(error));
		refused += !object;
		tried += failed;
		last = failed ? n : last;
	}
	tap_note("%s: %u failures, %u of them passed on; the last was the %u.",
		 verb->name, tried, refused, last);
	return check(n < VERB_MOST, "it does not end") && ok ? (int)tried : -1;
}

bool verb_survives(const struct verb *verb, const struct failures *failures)
{
	unsigned int files = open_files();
	void *object;
	int count;

	object = verb->create();
	if (!check(object, "it fails without help: %s", strerror(errno)) ||
	    !check(!verb->destroy(object), "it can't be undone"))
		return false;
	count = fail_each(verb, failures);
	object = verb->create();
	return check(object, "it fails afterwards: %s", strerror(errno)) &&
	       check(!verb->destroy(object), "it can't be undone") &&
	       check(open_files() == files, "files were left open: %u, not %u",
		     open_files(), files) &&
	       check(count > 0, "nothing has failed");
}
