// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Whether a process could access the memory of another with
 * process_vm_readv() and process_vm_writev(): the rule is
 * ptrace_may_access(PTRACE_MODE_ATTACH_REALCREDS).
 *
 * That function is not for modules. What is there for everybody is
 * /proc/PID/mem, which opens exactly for those whom it lets pass; so it is
 * opened. The name may lead anywhere, since the caller's mounts decide; what
 * counts is that the file turns out to be such a one of the right memory. The
 * file system asks with the credentials meant for files and with the
 * capabilities in effect, so the caller's have to be the real ones.
 */
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/pid.h>
#include <linux/sched.h>

#include "windows.h"

static bool mic_attach_real_creds(void)
{
	const struct cred *cred = current_cred();

	return uid_eq(cred->fsuid, cred->uid) && gid_eq(cred->fsgid, cred->gid);
}

/* Only /proc/PID/mem has that name, and keeps the memory it shows there. */
static bool mic_attach_is_mem(const struct file *file,
			      const struct mm_struct *mm)
{
	struct name_snapshot name;
	bool is_mem;

	if (file_inode(file)->i_sb->s_magic != PROC_SUPER_MAGIC)
		return false;
	take_dentry_name_snapshot(&name, file->f_path.dentry);
	is_mem = !strcmp((const char *)name.name.name, "mem");
	release_dentry_name_snapshot(&name);
	return is_mem && file->private_data == mm;
}

/**
 * mic_may_attach - whether this process could attach to another
 * @pid: the other's thread group
 * @mm: its memory
 *
 * Context: process context, without locks: the look-up may end in a file
 * system that the caller has made.
 * Return: true if it certainly could.
 */
bool mic_may_attach(struct pid *pid, struct mm_struct *mm)
{
	struct file *file;
	char name[32];
	bool may;
	pid_t nr;

	if (mm == current->mm)
		return true;
	nr = pid_vnr(pid);
	if (!nr || !mic_attach_real_creds())
		return false;
	snprintf(name, sizeof(name), "/proc/%d/mem", nr);
	file = filp_open(name, O_RDONLY | O_LARGEFILE | O_NONBLOCK | O_NOCTTY, 0);
	if (IS_ERR(file))
		return false;
	may = mic_attach_is_mem(file, mm);
	filp_close(file, NULL);
	return may;
}
