// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Windows files: what was granted (import.c) is mapped through one.
 *
 * A windows file has an inode of its own, so all mappings of it are found to
 * be taken away again, and its owner is the module, so none outlives the code
 * here. A mapping may cover any part of the file, also where nothing was
 * granted yet; a fault looks up what is there now.
 *
 * Pages of peers are mapped by number, without a reference: nobody can pin
 * them through the mapping. So when they are revoked and the mappings are
 * gone, nothing of this process reaches them.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pid.h>
#include <linux/pseudo_fs.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include <mic/compat.h>

#include "qp.h"
#include "uctx.h"
#include "windows.h"

#define MIC_WINDOW_MAGIC	0x6d696377

/* Pages that a fault maps at most, aligned: 64 KiB. */
#define MIC_FAULT_AROUND	16UL

#define MIC_WINDOW_WRITABLE_PGOFF (MIC_WINDOW_WRITABLE >> PAGE_SHIFT)

static struct vfsmount *mic_windows_mnt;
static int mic_windows_pins;

static int mic_windows_init_fs(struct fs_context *fc)
{
	return init_pseudo(fc, MIC_WINDOW_MAGIC) ? 0 : -ENOMEM;
}

static struct file_system_type mic_windows_fs = {
	.name = "mic_windows",
	.owner = THIS_MODULE,
	.init_fs_context = mic_windows_init_fs,
	.kill_sb = kill_anon_super,
};

/*
 * The state words. User space only reads them, the kernel only writes them.
 */
static u32 *mic_windows_state(struct mic_windows *ws, u32 slot)
{
	const u32 per_page = PAGE_SIZE / sizeof(u32);

	return (u32 *)page_address(ws->state[slot / per_page]) +
	       slot % per_page;
}

static int mic_windows_alloc_state(struct mic_windows *ws, u32 slot)
{
	struct page **state = &ws->state[slot / (PAGE_SIZE / sizeof(u32))];
	struct page *page;

	if (READ_ONCE(*state))
		return 0;
	page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!page)
		return -ENOMEM;
	if (cmpxchg(state, NULL, page))
		__free_page(page);
	return 0;
}

void mic_windows_set_state(struct mic_windows *ws, u32 slot, u32 state)
{
	WRITE_ONCE(*mic_windows_state(ws, slot), state);
}

/**
 * mic_windows_add_state - set bits of a state word, and clear none
 * @ws: windows file
 * @slot: index of the word
 * @bits: what to add
 *
 * Context: any; bits may be added by several at a time.
 */
void mic_windows_add_state(struct mic_windows *ws, u32 slot, u32 bits)
{
	atomic_or(bits, (atomic_t *)mic_windows_state(ws, slot));
}

static vm_fault_t mic_state_fault(struct vm_fault *vmf)
{
	struct mic_windows *ws = vmf->vma->vm_private_data;
	struct page *page;

	if (vmf->pgoff >= MIC_WINDOW_STATE_PAGES)
		return VM_FAULT_SIGBUS;
	page = READ_ONCE(ws->state[vmf->pgoff]);
	if (!page)
		return VM_FAULT_SIGBUS;
	get_page(page);
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct mic_state_vm_ops = {
	.fault = mic_state_fault,
};

/* The slot that a page of the file belongs to. */
static u32 mic_pgoff_slot(unsigned long pgoff)
{
	const unsigned int shift = MIC_WINDOW_CLASS_SHIFT - PAGE_SHIFT;
	unsigned int class = pgoff >> shift & 0x3f;

	pgoff &= (1UL << shift) - 1;
	return class < PAGE_SHIFT ? U32_MAX : pgoff >> (class - PAGE_SHIFT);
}

static struct mic_import *mic_windows_find(struct mic_windows *ws,
					   unsigned long pgoff)
{
	struct mic_import *imp = xa_load(&ws->imports, mic_pgoff_slot(pgoff));

	if (!imp || pgoff - imp->pgoff >= imp->npages)
		return NULL;
	return imp;
}

/* Of several pages of device memory the kernel has a mapping. */
static unsigned long mic_va_pfn(const void *va)
{
	if (is_vmalloc_addr(va))
		return vmalloc_to_pfn(va);
	return page_to_pfn(virt_to_page(va));
}

static unsigned long mic_import_pfn(const struct mic_import *imp,
				    unsigned long page)
{
	size_t len = PAGE_SIZE;
	void *va;

	if (!imp->win)
		return mic_lease_pfn(&imp->lease, page);
	va = mic_window_at(imp->win, imp->win_off + ((u64)page << PAGE_SHIFT),
			   &len);
	return mic_va_pfn(va);
}

/* Map the page that is needed, and its neighbours while we are at it. */
static vm_fault_t mic_windows_insert(struct vm_fault *vmf,
				     const struct mic_import *imp)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long page = vmf->pgoff - imp->pgoff, first, last, i;
	vm_fault_t ret;

	ret = vmf_insert_pfn(vma, vmf->address, mic_import_pfn(imp, page));
	if (ret != VM_FAULT_NOPAGE)
		return ret;
	first = round_down(page, MIC_FAULT_AROUND);
	last = min(first + MIC_FAULT_AROUND, imp->npages) - 1;
	for (i = first; i <= last; i++) {
		unsigned long addr = vmf->address + (i - page) * PAGE_SIZE;

		if (i == page || addr < vma->vm_start || addr >= vma->vm_end)
			continue;
		if (vmf_insert_pfn(vma, addr, mic_import_pfn(imp, i)) !=
		    VM_FAULT_NOPAGE)
			break;
	}
	return VM_FAULT_NOPAGE;
}

static vm_fault_t mic_windows_fault(struct vm_fault *vmf)
{
	struct mic_windows *ws = vmf->vma->vm_private_data;
	struct mic_import *imp;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	unsigned int noio;

	/* who revokes waits for this, and storage may wait for who revokes */
	noio = memalloc_noio_save();
	down_read(&ws->lock);
	imp = mic_windows_find(ws, vmf->pgoff);
	if (imp && READ_ONCE(imp->live)) {
		ret = mic_windows_insert(vmf, imp);
	} else if (imp) {
		/* the word, then the page: who meets the page sees the word */
		mic_windows_set_state(ws, imp->slot, MIC_WINDOW_REVOKED |
						     MIC_WINDOW_SCRATCH);
		ret = vmf_insert_pfn(vmf->vma, vmf->address,
				     page_to_pfn(ws->scratch));
	}
	up_read(&ws->lock);
	memalloc_noio_restore(noio);
	return ret;
}

static const struct vm_operations_struct mic_windows_vm_ops = {
	.fault = mic_windows_fault,
};

/* The file's first part has the states, the rest is of one kind or the other. */
static int mic_windows_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct mic_windows *ws = file->private_data;
	unsigned long end = vma->vm_pgoff + vma_pages(vma);
	bool states = end <= MIC_WINDOW_STATE_PAGES;
	bool writable = vma->vm_pgoff >= MIC_WINDOW_WRITABLE_PGOFF;

	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	if (vma->vm_mm != ws->mm)
		return -EPERM;
	if (!writable) {
		if (vma->vm_flags & VM_WRITE ||
		    end > MIC_WINDOW_WRITABLE_PGOFF)
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	vm_flags_clear(vma, VM_MAYEXEC);
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	vma->vm_private_data = ws;
	vma->vm_ops = states ? &mic_state_vm_ops : &mic_windows_vm_ops;
	if (!states)
		vm_flags_set(vma, VM_PFNMAP | VM_IO);
	return 0;
}

/**
 * mic_windows_zap - take a window's pages out of all mappings
 * @ws: windows file
 * @imp: window
 *
 * Context: process context, may sleep.
 */
void mic_windows_zap(struct mic_windows *ws, const struct mic_import *imp)
{
	unmap_mapping_range(ws->mapping, (loff_t)imp->pgoff << PAGE_SHIFT,
			    (loff_t)imp->npages << PAGE_SHIFT, 1);
}

/**
 * mic_windows_zap_all - take all windows' pages out of all mappings
 * @ws: windows file
 *
 * Context: process context, may sleep.
 */
void mic_windows_zap_all(struct mic_windows *ws)
{
	/* to the end of the file */
	unmap_mapping_range(ws->mapping,
			    (loff_t)MIC_WINDOW_STATE_PAGES << PAGE_SHIFT, 0, 1);
}

/**
 * mic_windows_take_slot - find a slot that nobody has
 * @ws: windows file
 * @slot: out: its index; its state word is 0
 *
 * Return: 0, -ENOSPC, -ENOMEM.
 */
int mic_windows_take_slot(struct mic_windows *ws, u32 *slot)
{
	int err;

	err = xa_alloc(&ws->imports, slot, NULL,
		       XA_LIMIT(0, MIC_WINDOW_SLOTS - 1), GFP_KERNEL_ACCOUNT);
	if (err)
		return err == -EBUSY ? -ENOSPC : err;
	err = mic_windows_alloc_state(ws, *slot);
	if (err)
		mic_windows_give_slot(ws, *slot);
	else
		mic_windows_set_state(ws, *slot, 0);
	return err;
}

/**
 * mic_windows_give_slot - give a slot back
 * @ws: windows file
 * @slot: its index
 */
void mic_windows_give_slot(struct mic_windows *ws, u32 slot)
{
	xa_erase(&ws->imports, slot);
}

/**
 * mic_windows_add - give a window its place in the file
 * @ws: windows file
 * @imp: window with a slot, complete but for its place in the file
 * @write: it may be mapped to write
 *
 * Context: process context; allocates nothing, and waits for nobody.
 * Return: 0, -ERANGE (too large).
 */
int mic_windows_add(struct mic_windows *ws, struct mic_import *imp, bool write)
{
	unsigned int class = max_t(unsigned int, MIC_WINDOW_CLASS_MIN,
				   order_base_2(imp->npages) + PAGE_SHIFT);
	u64 off;

	if (class > MIC_WINDOW_CLASS_MAX)
		return -ERANGE;
	off = (u64)class << MIC_WINDOW_CLASS_SHIFT | (u64)imp->slot << class;
	imp->pgoff = off >> PAGE_SHIFT;
	if (write)
		imp->pgoff |= MIC_WINDOW_WRITABLE_PGOFF;
	/* the slot was reserved by mic_windows_take_slot() */
	xa_store(&ws->imports, imp->slot, imp, GFP_NOWAIT);
	return 0;
}

/* Take a window, which is revoked, out of the file: on return nobody uses it. */
static void mic_windows_del(struct mic_windows *ws, struct mic_import *imp)
{
	down_write(&ws->lock);
	xa_store(&ws->imports, imp->slot, XA_ZERO_ENTRY, GFP_KERNEL_ACCOUNT);
	up_write(&ws->lock);
	/* the scratch page, before the slot is another's */
	mic_windows_zap(ws, imp);
}

/**
 * mic_window_free - a window exists no more, and its slot is free
 * @ws: windows file
 * @imp: window with a slot, whether it was granted or not
 *
 * Context: process context, without locks; takes as long as the process has mapped
 * the file.
 */
void mic_window_free(struct mic_windows *ws, struct mic_import *imp)
{
	mic_import_revoke(imp);
	/* no window begins where the states are */
	if (imp->pgoff)
		mic_windows_del(ws, imp);
	mic_windows_give_slot(ws, imp->slot);
	if (imp->lease.priv)
		mic_lease_end(&imp->lease);
	kvfree(imp->lease.run);
	kfree(imp);
}

/*
 * The memory behind a key, if this process could access it anyway, else NULL, or an
 * ERR_PTR: a wrong key. While that is found out nothing is held that others wait for, so
 * another may be behind the key afterwards, which is then not trusted.
 */
static struct mm_struct *mic_windows_trusted(struct mic_windows *ws, u32 qpn,
					     u32 rkey)
{
	struct mm_struct *mm;
	struct mic_qp *qp;
	struct pid *pid;
	bool may;

	qp = mic_doorbell_qp(ws->db, qpn);
	if (IS_ERR(qp))
		return NULL;
	pid = mic_import_owner(qp, rkey, &mm);
	mic_qp_put(qp);
	if (IS_ERR_OR_NULL(pid))
		return ERR_CAST(pid);
	may = mic_may_attach(pid, mm);
	put_pid(pid);
	if (may)
		return mm;
	mmdrop(mm);
	return NULL;
}

static struct mic_import *mic_windows_grant(struct mic_windows *ws,
					    struct mic_window_import *req)
{
	struct mm_struct *mm = mic_windows_trusted(ws, req->qpn, req->rkey);
	struct mic_import *imp;
	struct mic_qp *qp;

	if (IS_ERR(mm))
		return ERR_CAST(mm);
	qp = mic_doorbell_qp(ws->db, req->qpn);
	if (IS_ERR(qp)) {
		imp = ERR_CAST(qp);
	} else {
		imp = mic_import_create(ws, qp, req, mm);
		mic_qp_put(qp);
	}
	if (mm)
		mmdrop(mm);
	return imp;
}

static long mic_windows_import(struct mic_windows *ws,
			       struct mic_window_import __user *ureq)
{
	struct mic_window_import req;
	struct mic_import *imp;

	if (copy_from_user(&req, ureq, sizeof(req)))
		return -EFAULT;
	imp = mic_windows_grant(ws, &req);
	if (IS_ERR(imp))
		return PTR_ERR(imp);
	if (copy_to_user(ureq, &req, sizeof(req))) {
		mic_window_free(ws, imp);
		return -EFAULT;
	}
	/* now that nobody needs it here, other threads may give it back */
	xa_lock(&ws->imports);
	imp->busy = false;
	xa_unlock(&ws->imports);
	return 0;
}

/* Two threads may give back the same slot: one of them does. */
static long mic_windows_drop(struct mic_windows *ws, unsigned long slot)
{
	struct mic_import *imp;

	if (slot >= MIC_WINDOW_SLOTS)
		return -EINVAL;
	xa_lock(&ws->imports);
	imp = xa_load(&ws->imports, slot);
	if (imp && imp->busy)
		imp = NULL;
	if (imp)
		imp->busy = true;
	xa_unlock(&ws->imports);
	if (!imp)
		return -EINVAL;
	mic_window_free(ws, imp);
	return 0;
}

static long mic_windows_ioctl(struct file *file, unsigned int cmd,
			      unsigned long arg)
{
	struct mic_windows *ws = file->private_data;

	if (current->mm != ws->mm)
		return -EPERM;
	switch (cmd) {
	case MIC_IOC_IMPORT:
		return mic_windows_import(ws, (void __user *)arg);
	case MIC_IOC_DROP:
		return mic_windows_drop(ws, arg);
	case MIC_IOC_WATCH:
		return mic_watch_add(ws, (void __user *)arg);
	case MIC_IOC_UNWATCH:
		return mic_watch_drop(ws, arg);
	default:
		return -ENOTTY;
	}
}

static void mic_windows_destroy(struct mic_windows *ws)
{
	unsigned int i;

	for (i = 0; i < MIC_WINDOW_STATE_PAGES; i++)
		if (ws->state[i])
			put_page(ws->state[i]);
	if (ws->scratch)
		__free_page(ws->scratch);
	xa_destroy(&ws->imports);
	mmdrop(ws->mm);
	mic_doorbell_put(ws->db);
	kfree(ws);
}

/**
 * mic_windows_put - drop a reference
 * @ws: windows file
 */
void mic_windows_put(struct mic_windows *ws)
{
	if (refcount_dec_and_test(&ws->ref))
		complete(&ws->gone);
}

/* Nothing of the file is mapped any more, and nobody else has it. */
static int mic_windows_release(struct inode *inode, struct file *file)
{
	struct mic_windows *ws = file->private_data;
	struct mic_import *imp;
	unsigned long slot;

	xa_for_each(&ws->imports, slot, imp) {
		mic_window_free(ws, imp);
		cond_resched();
	}
	/* who took away windows that are gone by now may still be about to leave */
	mic_windows_put(ws);
	wait_for_completion(&ws->gone);
	mic_watch_drop_all(ws);
	mic_windows_destroy(ws);
	simple_release_fs(&mic_windows_mnt, &mic_windows_pins);
	return 0;
}

static const struct file_operations mic_windows_fops = {
	.owner = THIS_MODULE,
	.release = mic_windows_release,
	.unlocked_ioctl = mic_windows_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = mic_windows_mmap,
	.llseek = noop_llseek,
};

static struct mic_windows *mic_windows_create(struct mic_doorbell *db)
{
	struct mic_windows *ws;

	ws = kzalloc(sizeof(*ws), GFP_KERNEL_ACCOUNT);
	if (!ws)
		return NULL;
	ws->scratch = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!ws->scratch) {
		kfree(ws);
		return NULL;
	}
	init_rwsem(&ws->lock);
	refcount_set(&ws->ref, 1);
	init_completion(&ws->gone);
	mutex_init(&ws->bury_lock);
	INIT_LIST_HEAD(&ws->dead);
	xa_init_flags(&ws->imports, XA_FLAGS_ALLOC);
	xa_init(&ws->watches);
	ws->mm = current->mm;
	mmgrab(ws->mm);
	ws->db = mic_doorbell_get(db);
	return ws;
}

/* On success the file has @ws. */
static struct file *mic_windows_file(struct mic_windows *ws)
{
	struct inode *inode;
	struct file *file;
	int err;

	err = simple_pin_fs(&mic_windows_fs, &mic_windows_mnt,
			    &mic_windows_pins);
	if (err)
		return ERR_PTR(err);
	inode = alloc_anon_inode(mic_windows_mnt->mnt_sb);
	if (IS_ERR(inode)) {
		err = PTR_ERR(inode);
		goto err_fs;
	}
	file = alloc_file_pseudo(inode, mic_windows_mnt, "[mic_windows]",
				 O_RDWR, &mic_windows_fops);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		iput(inode);
		goto err_fs;
	}
	/* put when the file goes, as for any file that is opened by name */
	__module_get(THIS_MODULE);
	ws->mapping = inode->i_mapping;
	file->private_data = ws;
	return file;

err_fs:
	simple_release_fs(&mic_windows_mnt, &mic_windows_pins);
	return ERR_PTR(err);
}

/**
 * mic_windows_open - make a windows file
 * @db: doorbell that knows the caller's queue pairs
 *
 * Return: a descriptor, or an error.
 */
int mic_windows_open(struct mic_doorbell *db)
{
	struct mic_windows *ws;
	struct file *file;
	int fd;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	ws = mic_windows_create(db);
	if (!ws) {
		put_unused_fd(fd);
		return -ENOMEM;
	}
	file = mic_windows_file(ws);
	if (IS_ERR(file)) {
		mic_windows_destroy(ws);
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	fd_install(fd, file);
	return fd;
}
