// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * On-demand paging: pages of others, without waiting for them.
 *
 * Who copies holds locks of others, so what a program, a device or a file
 * system has to provide is left to a worker, which holds nothing but the address
 * space. A region has one such request under way, and one for what its owner advised
 * to bring in, which may be long; a process has a few, and a user no more than leaves
 * as many to others. Who asked finds its outcome when it comes again.
 *
 * Whoever has to provide a page may never do so. A worker that waits for one on
 * behalf of a region that goes is told to stop, by the signal that ends processes:
 * page faults, locks of pages and userfaultfd stop waiting then.
 */
#include <linux/cred.h>
#include <linux/hugetlb.h>
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>
#include <linux/userfaultfd_k.h>
#include <linux/workqueue.h>

#include <mic/compat.h>
#include <mic/gfp.h>

#include "mr.h"
#include "odp.h"

/* What went wrong longer ago may be right by now. */
#define MIC_FAULT_STALE		(2 * HZ)
/* As many failures does a region keep for those who asked. */
#define MIC_FAULTS_KEPT		8
/* So often is a page brought in that is missed again. */
#define MIC_FAULT_TRIES		16
/* As many workers may one address space keep waiting. */
#define MIC_FAULTS_PER_MM	8
/* As many are shared by all users; beyond them, each may have one. */
#define MIC_FAULTS_SHARED	256

/* Apart from the engine's: its workers wait for others, if need be for ever. */
static struct workqueue_struct *mic_fault_wq;

/* Those that are queued or run. */
static LIST_HEAD(mic_faults);
static u32 mic_faults_count;
static DEFINE_SPINLOCK(mic_faults_lock);

/**
 * struct mic_fault - pages that a worker brings in
 * @work: in mic_fault_wq
 * @entry: in mic_faults
 * @ref: the region's, and the worker's
 * @mm: address space, a reference to the structure
 * @user: who registered it
 * @task: worker that is at it, under mic_faults_lock
 * @stop: nobody wants them any more, under mic_faults_lock
 * @va: address of the first page
 * @npages: how many
 * @write: they are going to be written
 * @done: the worker is done, @err and @when are set
 * @err: what came of it
 * @when: jiffies
 * @next: of &mic_mr.failed
 */
struct mic_fault {
	struct work_struct work;
	struct list_head entry;
	refcount_t ref;
	struct mm_struct *mm;
	kuid_t user;
	struct task_struct *task;
	bool stop;
	u64 va;
	u32 npages;
	bool write;
	bool done;
	int err;
	unsigned long when;
	struct mic_fault *next;
};

static void mic_fault_put(struct mic_fault *fault)
{
	if (!refcount_dec_and_test(&fault->ref))
		return;
	mmdrop(fault->mm);
	kfree(fault);
}

/*
 * What went wrong says something of the memory only if it is not there: who
 * copies may have been killed (-EINTR), or be short of memory itself.
 */
static int mic_pin_error(long err)
{
	return err == -EINTR || err == -ENOMEM ? -EAGAIN : -EFAULT;
}

/* Is there memory that faults bring in, and not a device's, say? */
static bool mic_vma_has_pages(const struct vm_area_struct *vma)
{
	return vma && !(vma->vm_flags & (VM_IO | VM_PFNMAP));
}

/*
 * A fault of a userfaultfd that is being closed is repeated, without end if the lock is
 * held that closing it waits for.
 */
static bool mic_vma_is_endless(struct vm_area_struct *vma)
{
	return MIC_HUGETLB_FAULTS && is_vm_hugetlb_page(vma) &&
	       userfaultfd_armed(vma);
}

/* Is a page there, and may it be pinned? */
static bool mic_page_is_there(struct vm_area_struct *vma, u64 va, bool write)
{
	unsigned int flags = FOLL_NOFAULT | (write ? FOLL_WRITE : 0);
	struct mm_struct *mm = vma->vm_mm;
	struct page *page;

	lockdep_assert_held(&mm->mmap_lock);
	if (mic_vma_is_endless(vma))
		return false;
	if (mic_pin_user_pages_remote(mm, va, 1, flags, &page, NULL) != 1)
		return false;
	unpin_user_page(page);
	return true;
}

/*
 * Pinning would try again and again, under the lock, while a userfaultfd that
 * waits for the lock is being closed; a fault is one. It need not be enough: what
 * comes from swap takes two to be no longer shared. A page that a userfaultfd
 * withholds is asked for anew.
 *
 * Return: 1 if the page is there; 0 if it is not, for all that the fault said;
 * -EAGAIN or -EFAULT.
 */
static int mic_fault_in_page(struct mm_struct *mm, u64 va, bool write)
{
	unsigned int flags = write ? FAULT_FLAG_WRITE : FAULT_FLAG_UNSHARE;
	struct vm_area_struct *vma;
	bool unlocked;
	int ret;

	if (mmap_read_lock_killable(mm))
		return -EAGAIN;
	if (mic_vma_has_pages(vma_lookup(mm, va)))
		ret = fixup_user_fault(mm, va, flags, &unlocked);
	else
		ret = -EFAULT;
	if (ret) {
		ret = mic_pin_error(ret);
	} else {
		/* found again: the fault may have let go of the lock */
		vma = vma_lookup(mm, va);
		ret = vma && mic_page_is_there(vma, va, write);
		if (!ret && vma && userfaultfd_armed(vma))
			ret = -EAGAIN;
	}
	mmap_read_unlock(mm);
	return ret;
}

/*
 * Page by page: what is there need not be there at the same time. What can't be
 * pinned after so many faults never can.
 */
static int mic_fault_in(const struct mic_fault *fault)
{
	int ret, tries;
	u32 i;

	for (i = 0; i < fault->npages; i++) {
		/* told to stop, also if nothing has had it wait */
		if (fatal_signal_pending(current))
			return -EAGAIN;
		tries = MIC_FAULT_TRIES;
		do {
			ret = mic_fault_in_page(fault->mm, fault->va +
						(u64)i * PAGE_SIZE,
						fault->write);
			cond_resched();
		} while (!ret && --tries);
		if (ret <= 0)
			return ret ?: -EFAULT;
	}
	return 0;
}

/*
 * One user may have more of what is shared only while it has less than is left,
 * so whoever comes first leaves half of it.
 */
static bool mic_fault_admit(const struct mic_fault *fault)
{
	struct mic_fault *other;
	u32 of_mm = 0, of_user = 0;

	lockdep_assert_held(&mic_faults_lock);
	list_for_each_entry(other, &mic_faults, entry) {
		of_mm += other->mm == fault->mm;
		of_user += uid_eq(other->user, fault->user);
	}
	return of_mm < MIC_FAULTS_PER_MM &&
	       (!of_user || of_user + mic_faults_count < MIC_FAULTS_SHARED);
}

/* False if its address space or its user keeps workers enough. */
static bool mic_fault_enter(struct mic_fault *fault)
{
	bool admitted;

	spin_lock(&mic_faults_lock);
	admitted = mic_fault_admit(fault);
	if (admitted) {
		list_add(&fault->entry, &mic_faults);
		mic_faults_count++;
	}
	spin_unlock(&mic_faults_lock);
	return admitted;
}

static void mic_fault_leave(struct mic_fault *fault)
{
	spin_lock(&mic_faults_lock);
	list_del(&fault->entry);
	mic_faults_count--;
	spin_unlock(&mic_faults_lock);
}

/* From here on the worker can be stopped. False if it should not even begin. */
static bool mic_fault_begin(struct mic_fault *fault)
{
	bool wanted;

	allow_signal(SIGKILL);
	spin_lock(&mic_faults_lock);
	fault->task = current;
	wanted = !fault->stop;
	spin_unlock(&mic_faults_lock);
	return wanted;
}

/* The worker goes on to other work, and no signal is left for that. */
static void mic_fault_end(struct mic_fault *fault)
{
	spin_lock(&mic_faults_lock);
	fault->task = NULL;
	spin_unlock(&mic_faults_lock);
	disallow_signal(SIGKILL);
}

static void mic_fault_stop(struct mic_fault *fault)
{
	spin_lock(&mic_faults_lock);
	fault->stop = true;
	if (fault->task)
		send_sig(SIGKILL, fault->task, 1);
	spin_unlock(&mic_faults_lock);
}

static void mic_fault_work(struct work_struct *work)
{
	struct mic_fault *fault = container_of(work, struct mic_fault, work);

	fault->err = -EFAULT;
	if (mmget_not_zero(fault->mm)) {
		if (mic_fault_begin(fault))
			fault->err = mic_fault_in(fault);
		mic_fault_end(fault);
		mmput(fault->mm);
	}
	fault->when = jiffies;
	mic_fault_leave(fault);
	/* the outcome before the flag */
	smp_store_release(&fault->done, true);
	mic_fault_put(fault);
}

/**
 * mic_fault_user - on whose account the caller registers memory
 *
 * A user who makes namespaces of users gets no more by being several in there; one
 * made by root has users of its own.
 *
 * Return: user.
 */
kuid_t mic_fault_user(void)
{
	const struct user_namespace *ns = current_user_ns();
	kuid_t user = current_uid();

	for (; ns->parent; ns = ns->parent)
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			user = ns->owner;
	return user;
}

static struct mic_fault *mic_fault_create(const struct mic_mr *mr, u64 va,
					  u32 npages, bool write)
{
	struct mem_cgroup *memcg = get_mem_cgroup_from_mm(mr->mkey.mm);
	struct mem_cgroup *before = set_active_memcg(memcg);
	struct mic_fault *fault;

	/* the region's owner is charged, whoever asks for the pages */
	fault = kzalloc(sizeof(*fault), mic_gfp() | __GFP_ACCOUNT);
	set_active_memcg(before);
	mem_cgroup_put(memcg);
	if (!fault)
		return NULL;
	INIT_WORK(&fault->work, mic_fault_work);
	refcount_set(&fault->ref, 2);
	mmgrab(mr->mkey.mm);
	fault->mm = mr->mkey.mm;
	fault->user = mr->user;
	fault->va = va;
	fault->npages = npages;
	fault->write = write;
	return fault;
}

/* Take what is done out of the region's @slot; false if something is under way. */
static bool mic_fault_take(struct mic_mr *mr, struct mic_fault **slot,
			   struct mic_fault **fault)
{
	bool free;

	spin_lock(&mr->fault_lock);
	*fault = *slot;
	/* the flag before the outcome */
	free = !*fault || smp_load_acquire(&(*fault)->done);
	if (free)
		*slot = NULL;
	spin_unlock(&mr->fault_lock);
	return free;
}

/* False if somebody else was faster. */
static bool mic_fault_give(struct mic_mr *mr, struct mic_fault **slot,
			   struct mic_fault *fault)
{
	bool free;

	spin_lock(&mr->fault_lock);
	free = !*slot;
	if (free)
		*slot = fault;
	spin_unlock(&mr->fault_lock);
	return free;
}

static void mic_fault_put_all(struct mic_fault *list)
{
	struct mic_fault *next;

	for (; list; list = next) {
		next = list->next;
		mic_fault_put(list);
	}
}

/*
 * What has come of a request for the same pages, as far as it is of use. Failures
 * are kept until who asked comes again: others may come in between, and must not
 * have them forgotten, or nobody would ever hear of his own.
 */
static int mic_fault_outcome(struct mic_mr *mr, struct mic_fault *done,
			     const struct mic_pin *pin, u64 va)
{
	struct mic_fault **link = &mr->failed, *fault, *over = NULL;
	int err = -EAGAIN, kept = 0;
	bool same, stale;

	spin_lock(&mr->fault_lock);
	if (done) {
		done->next = mr->failed;
		mr->failed = done;
	}
	while ((fault = *link)) {
		same = fault->va == va && fault->write == pin->write;
		stale = time_after(jiffies, fault->when + MIC_FAULT_STALE);
		if (same && !stale && fault->err)
			err = fault->err;
		if (!same && !stale && fault->err && kept++ < MIC_FAULTS_KEPT) {
			link = &fault->next;
			continue;
		}
		*link = fault->next;
		fault->next = over;
		over = fault;
	}
	spin_unlock(&mr->fault_lock);
	mic_fault_put_all(over);
	return err;
}

/* Have a worker bring pages in, if there is memory for it and one may be had. */
static void mic_fault_start(struct mic_mr *mr, struct mic_fault **slot, u64 va,
			    u32 npages, bool write)
{
	struct mic_fault *fault = mic_fault_create(mr, va, npages, write);

	if (!fault)
		return;
	if (mic_fault_enter(fault)) {
		if (mic_fault_give(mr, slot, fault)) {
			queue_work(mic_fault_wq, &fault->work);
			return;
		}
		mic_fault_leave(fault);
	}
	mic_fault_put(fault);	/* as no worker will */
	mic_fault_put(fault);
}

/*
 * Have a worker bring pages in.
 *
 * Return: -EAGAIN, or -EFAULT if that was tried and they are not to be had.
 */
static int mic_fault_ask(struct mic_mr *mr, const struct mic_pin *pin,
			 u64 va, u32 npages)
{
	struct mic_fault *fault;
	int err = -EAGAIN;

	if (!mic_fault_take(mr, &mr->fault, &fault))
		return err;
	err = mic_fault_outcome(mr, fault, pin, va);
	if (err == -EAGAIN)
		mic_fault_start(mr, &mr->fault, va, npages, pin->write);
	return err;
}

/**
 * mic_fault_advise - have a worker bring in pages that nobody waits for
 * @mr: region; its key is held by the caller
 * @va: address of the first one
 * @npages: how many; up to the first that is not to be had
 * @write: they are going to be written
 *
 * Apart from those that somebody waits for, who would have to wait for all of these. One
 * such request is under way; another is not heeded.
 *
 * Context: process context.
 */
void mic_fault_advise(struct mic_mr *mr, u64 va, u32 npages, bool write)
{
	struct mic_fault *fault;

	if (!mic_fault_take(mr, &mr->advised, &fault))
		return;
	if (fault)
		mic_fault_put(fault);
	mic_fault_start(mr, &mr->advised, va, npages, write);
}

/*
 * Are its pages made by the kernel alone, or read from swap? Not so those of tmpfs:
 * who punches holes there has all others wait.
 */
static bool mic_vma_is_prompt(struct vm_area_struct *vma)
{
	return vma_is_anonymous(vma) || is_vm_hugetlb_page(vma);
}

/*
 * Pin the next pages. FOLL_NOWAIT starts what has to be read, and does not wait
 * for it; but a file system may, so of its pages only those are taken that are
 * there, and of pages that a userfaultfd provides, too (mic_fault_in_page() says why).
 *
 * Return: 0, -EFAULT, or -EAGAIN; *@missing tells then of how many pages some
 * are not there.
 */
static int mic_pin_next(struct mic_pin *pin, struct mm_struct *mm, u64 va,
			u32 *missing)
{
	unsigned int flags = pin->write ? FOLL_WRITE : 0;
	struct vm_area_struct *vma = vma_lookup(mm, va);
	bool prompt;
	long got;
	u32 n;

	if (!vma)
		return -EFAULT;
	if (mic_vma_is_endless(vma))
		return -EAGAIN;
	n = min_t(u64, pin->win.nblocks - pin->npages,
		  (vma->vm_end - va) >> PAGE_SHIFT);
	prompt = mic_vma_is_prompt(vma) && !userfaultfd_armed(vma);
	flags |= prompt ? FOLL_NOWAIT : FOLL_NOFAULT;
	got = mic_pin_user_pages_remote(mm, va, n, flags,
					pin->page + pin->npages, NULL);
	if (got > 0) {
		pin->npages += got;
		return 0;
	}
	if (got && mic_pin_error(got) == -EAGAIN)
		return -EAGAIN;
	/* of hugetlbfs it may be who copies that was killed, or may have none */
	if (got && prompt && !is_vm_hugetlb_page(vma))
		return -EFAULT;
	*missing = n;
	return -EAGAIN;
}

static int mic_pin_locked(struct mic_mr *mr, struct mic_pin *pin, u64 va,
			  u32 *missing)
{
	int err = 0;

	while (!err && pin->npages < pin->win.nblocks)
		err = mic_pin_next(pin, mr->mkey.mm,
				   va + (u64)pin->npages * PAGE_SIZE, missing);
	return err;
}

/**
 * mic_pin_fill - pin the pages of an access
 * @mr: region; its key is held by the caller
 * @pin: with room for the pages; what was pinned is in it, also on failure
 * @va: address of the first one
 *
 * Context: process context; does not wait for the owner of the memory.
 * Return: 0, -EFAULT or -EAGAIN.
 */
int mic_pin_fill(struct mic_mr *mr, struct mic_pin *pin, u64 va)
{
	struct mm_struct *mm = mr->mkey.mm;
	u32 missing = 0;
	int err = -EAGAIN;

	if (!mmget_not_zero(mm))
		return -EFAULT;
	if (mmap_read_trylock(mm)) {
		err = mic_pin_locked(mr, pin, va, &missing);
		mmap_read_unlock(mm);
	}
	mmput_async(mm);
	if (!missing)
		return err;
	return mic_fault_ask(mr, pin, va + (u64)pin->npages * PAGE_SIZE,
			     missing);
}

static void mic_fault_drop(struct mic_fault *fault)
{
	if (!fault)
		return;
	mic_fault_stop(fault);
	mic_fault_put(fault);
}

/**
 * mic_fault_forget - a region wants no more pages
 * @mr: region whose key is unknown by now
 *
 * A worker that waits for some is told to stop, and not waited for: a file system
 * that has taken a request for a page may be past stopping.
 */
void mic_fault_forget(struct mic_mr *mr)
{
	mic_fault_put_all(mr->failed);
	mr->failed = NULL;
	mic_fault_drop(mr->fault);
	mr->fault = NULL;
	mic_fault_drop(mr->advised);
	mr->advised = NULL;
}

/**
 * mic_fault_init - prepare the workers
 *
 * Return: 0 or -ENOMEM.
 */
int mic_fault_init(void)
{
	mic_fault_wq = alloc_workqueue("mic_fault", WQ_UNBOUND, WQ_MAX_ACTIVE);
	return mic_fault_wq ? 0 : -ENOMEM;
}

/**
 * mic_fault_exit - wait for the workers
 */
void mic_fault_exit(void)
{
	destroy_workqueue(mic_fault_wq);
}
