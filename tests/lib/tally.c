// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Counting what a process executes.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tally.h"
#include "tap.h"

enum { INSTRUCTION_BYTES = 15 };

struct tally *tally;

#ifdef __x86_64__
#define MARK 0xcc /* int3 */

static bool is_prefix(uint8_t byte)
{
	return byte == 0x66 || byte == 0xf2 || byte == 0xf3 ||
	       (byte & 0xf0) == 0x40;
}

/* XCHG with memory, or LOCK CMPXCHG: a barrier is LOCK OR of the stack. */
static bool takes_lock(const uint8_t *code)
{
	const uint8_t *end = code + INSTRUCTION_BYTES - 3;
	bool locked = false;

	for (; code < end && (is_prefix(*code) || *code == 0xf0); code++)
		locked = locked || *code == 0xf0;
	if (code[0] == 0x86 || code[0] == 0x87)
		return code[1] < 0xc0;
	return locked && code[0] == 0x0f &&
	       (code[1] == 0xb0 || code[1] == 0xb1);
}

static void read_code(pid_t pid, uint8_t *code)
{
	struct user_regs_struct regs;
	unsigned int i;
	long word;

	if (ptrace(PTRACE_GETREGS, pid, NULL, &regs))
		bail("PTRACE_GETREGS: %s", strerror(errno));
	for (i = 0; i < 2; i++) {
		errno = 0;
		word = ptrace(PTRACE_PEEKTEXT, pid, regs.rip + 8 * i, NULL);
		/* the second half may be beyond the last page */
		if (errno && !i)
			bail("PTRACE_PEEKTEXT: %s", strerror(errno));
		memcpy(code + 8 * i, &word, sizeof(word));
	}
}

/* The process is at its first mark; it goes on behind the second one. */
static bool count_until_mark(pid_t pid)
{
	uint8_t code[16];
	int status;

	tally->locks = 0;
	tally->instructions = 0;
	for (;;) {
		read_code(pid, code);
		if (*code == MARK)
			break;
		tally->locks += takes_lock(code);
		tally->instructions++;
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) ||
		    waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			return false;
	}
	return !ptrace(PTRACE_CONT, pid, NULL, NULL) &&
	       waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);
}

/* Returns the exit status of the process. */
static int count_for(pid_t pid)
{
	int status, sig;

	for (;;) {
		if (waitpid(pid, &status, 0) != pid)
			bail("waitpid: %s", strerror(errno));
		if (WIFEXITED(status))
			return WEXITSTATUS(status);
		if (!WIFSTOPPED(status))
			bail("the process is gone");
		sig = WSTOPSIG(status);
		if (sig == SIGTRAP && !count_until_mark(pid))
			bail("the process can't be followed");
		if (sig == SIGTRAP || sig == SIGSTOP)
			sig = 0;
		if (ptrace(PTRACE_CONT, pid, NULL, (void *)(uintptr_t)sig))
			bail("PTRACE_CONT: %s", strerror(errno));
	}
}
#else
static int count_for(pid_t pid)
{
	(void)pid;
	return 0;
}
#endif

static int begin(int (*be_counted)(int argc, char **argv), int argc,
		 char **argv)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || raise(SIGSTOP))
		bail("PTRACE_TRACEME: %s", strerror(errno));
	return be_counted(argc, argv);
}

int tally_run(int (*be_counted)(int argc, char **argv), int argc, char **argv)
{
	pid_t pid;

	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tally == MAP_FAILED)
		bail("no memory: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		bail("fork: %s", strerror(errno));
	if (!pid)
		_exit(begin(be_counted, argc, argv));
	return count_for(pid);
}
