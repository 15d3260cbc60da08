// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * User contexts and their doorbell files.
 *
 * The doorbell file maps queue memory, and it is the cheapest system call into
 * the engine. It is a file of our own, so an open
 * descriptor or a mapping pins this module, and deleting the device needs to
 * wait for neither: a file whose context is gone answers with EIO.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>
#define UVERBS_MODULE_NAME ib_mic
#include <rdma/uverbs_named_ioctl.h>

#include <mic/compat.h>

#include "../engine/busy.h"
#include "../engine/engine.h"
#include "../engine/trace.h"
#include "dev.h"
#include "qp.h"
#include "ring.h"
#include "uctx.h"
#include "windows.h"

/**
 * struct mic_doorbell - what a context and its doorbell files share
 * @ref: one for the context, one for each open file
 * @lock: serialises mapping with the destruction of buffers and the context
 * @uctx: the context, NULL once it is gone; under @lock
 * @dev: device, which goes a grace period after the context; NULL with @uctx
 * @busy: who polls
 */
struct mic_doorbell {
	struct kref ref;
	struct mutex lock;
	struct mic_uctx *uctx;
	struct mic_dev __rcu *dev;
	struct mic_busy busy;
};

static void mic_doorbell_free(struct kref *ref)
{
	kfree(container_of(ref, struct mic_doorbell, ref));
}

struct mic_doorbell *mic_doorbell_get(struct mic_doorbell *db)
{
	kref_get(&db->ref);
	return db;
}

void mic_doorbell_put(struct mic_doorbell *db)
{
	kref_put(&db->ref, mic_doorbell_free);
}

static int mic_doorbell_release(struct inode *inode, struct file *file)
{
	mic_doorbell_put(file->private_data);
	return 0;
}

/**
 * mic_doorbell_qp - the QP of a number in a doorbell's context
 * @db: doorbell
 * @qpn: number, unchecked
 *
 * Return: the QP with a reference, or an ERR_PTR: -ENOENT, or -EIO if the
 * context is gone.
 */
struct mic_qp *mic_doorbell_qp(struct mic_doorbell *db, u32 qpn)
{
	struct mic_qp *qp = ERR_PTR(-EIO);
	struct mic_dev *dev;

	rcu_read_lock();
	dev = rcu_dereference(db->dev);
	if (dev)
		qp = mic_qp_get(dev, qpn);
	rcu_read_unlock();
	if (IS_ERR(qp))
		return qp;
	/* a context outlives its queue pairs */
	if (qp && (!qp->uctx || qp->uctx->db != db)) {
		mic_qp_put(qp);
		qp = NULL;
	}
	return qp ?: ERR_PTR(-ENOENT);
}

static long mic_doorbell_poll(struct mic_doorbell *db)
{
	if (!rcu_access_pointer(db->dev))
		return -EIO;
	return !!mic_busy_poll(&db->busy);
}

static void mic_doorbell_ring(struct mic_qp *qp, bool later)
{
	trace_mic_doorbell(qp);
	mic_count(qp->dev, MIC_CNT_DOORBELL);
	mic_poll_add(qp);
	if (later)
		mic_qp_kick_deferred(qp);
	else
		mic_qp_kick(qp);
}

/* What names a queue pair. */
static long mic_doorbell_call(struct mic_doorbell *db, unsigned int cmd,
			      unsigned long qpn)
{
	struct mic_qp *qp;

	if (qpn > U32_MAX)
		return -ENOENT;
	qp = mic_doorbell_qp(db, qpn);
	if (IS_ERR(qp))
		return PTR_ERR(qp);
	switch (cmd) {
	case MIC_IOC_DOORBELL:
	case MIC_IOC_DOORBELL_LATER:
		mic_doorbell_ring(qp, cmd == MIC_IOC_DOORBELL_LATER);
		break;
	case MIC_IOC_CQ_EVENT:
		mic_cq_notify(qp->send_cq);
		break;
	case MIC_IOC_CQ_OVERRUN:
		mic_cq_overrun(qp->send_cq);
		break;
	}
	mic_qp_put(qp);
	return 0;
}

static long mic_doorbell_ioctl(struct file *file, unsigned int cmd,
			       unsigned long arg)
{
	struct mic_doorbell *db = file->private_data;

	switch (cmd) {
	case MIC_IOC_WINDOWS:
		return mic_windows_open(db);
	case MIC_IOC_POLL:
		return mic_doorbell_poll(db);
	case MIC_IOC_DOORBELL:
	case MIC_IOC_DOORBELL_LATER:
	case MIC_IOC_CQ_EVENT:
	case MIC_IOC_CQ_OVERRUN:
		return mic_doorbell_call(db, cmd, arg);
	default:
		return -ENOTTY;
	}
}

/* What is split, moved, or a child's, is one area more. */
static void mic_buf_vm_open(struct vm_area_struct *vma)
{
	mic_buf_get(vma->vm_private_data);
}

/* The file, and so the module, is there until afterwards. */
static void mic_buf_vm_close(struct vm_area_struct *vma)
{
	mic_buf_put(vma->vm_private_data);
}

static const struct vm_operations_struct mic_buf_vm_ops = {
	.open = mic_buf_vm_open,
	.close = mic_buf_vm_close,
};

static int mic_doorbell_map(struct mic_uctx *uctx, struct vm_area_struct *vma)
{
	struct mic_buf *buf = xa_load(&uctx->bufs, vma->vm_pgoff);
	unsigned long npages = vma_pages(vma);
	int err;

	if (!buf || npages > buf->npages)
		return -EINVAL;
	/* the pages stand alone in the file, whatever the offset says */
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	err = vm_map_pages_zero(vma, buf->page, buf->npages);
	if (err)
		return err;
	mic_buf_get(buf);
	vma->vm_private_data = buf;
	vma->vm_ops = &mic_buf_vm_ops;
	return 0;
}

static int mic_doorbell_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct mic_doorbell *db = file->private_data;
	struct mic_uctx *uctx;
	int err;

	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;

	mutex_lock(&db->lock);
	uctx = db->uctx;
	err = uctx ? mic_doorbell_map(uctx, vma) : -EIO;
	mutex_unlock(&db->lock);
	return err;
}

static const struct file_operations mic_doorbell_fops = {
	.owner = THIS_MODULE,
	.release = mic_doorbell_release,
	.unlocked_ioctl = mic_doorbell_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = mic_doorbell_mmap,
	.llseek = noop_llseek,
};

/*
 * A new doorbell file; the descriptor is reserved but not yet visible, so that
 * the caller can still fail.
 */
static int mic_doorbell_open(struct mic_doorbell *db, struct file **filep)
{
	struct file *file;
	int fd;

	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	file = anon_inode_getfile("[mic_doorbell]", &mic_doorbell_fops, db,
				  O_RDWR | O_CLOEXEC);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	mic_doorbell_get(db);
	*filep = file;
	return fd;
}

/* The context behind the udata of a verb, NULL for a kernel consumer. */
struct mic_uctx *mic_udata_uctx(struct ib_udata *udata)
{
	return rdma_udata_to_drv_context(udata, struct mic_uctx, ibuctx);
}

/**
 * mic_uctx_busy - who of a context polls
 * @uctx: context, or NULL
 *
 * Return: the state, or NULL for a kernel consumer.
 */
struct mic_busy *mic_uctx_busy(struct mic_uctx *uctx)
{
	return uctx ? &uctx->db->busy : NULL;
}

/**
 * mic_uctx_add_buf - make a buffer mappable
 * @uctx: context
 * @buf: buffer; &mic_buf.mmap_id is set
 *
 * Return: 0 or -ENOMEM.
 */
int mic_uctx_add_buf(struct mic_uctx *uctx, struct mic_buf *buf)
{
	return xa_alloc(&uctx->bufs, &buf->mmap_id, buf, xa_limit_31b,
			GFP_KERNEL);
}

/**
 * mic_uctx_del_buf - a buffer can't be mapped any more
 * @uctx: context
 * @buf: buffer
 *
 * On return no mapping of it is being made.
 */
void mic_uctx_del_buf(struct mic_uctx *uctx, struct mic_buf *buf)
{
	mutex_lock(&uctx->db->lock);
	xa_erase(&uctx->bufs, buf->mmap_id);
	mutex_unlock(&uctx->db->lock);
}

/**
 * mic_udata_check - refuse what a newer libmic asks for that this kernel does not know
 * @udata: of a command; NULL for a kernel consumer
 * @known: bytes of its input that have a meaning
 *
 * Return: 0, or -EOPNOTSUPP if there is something else than zeros behind them.
 */
int mic_udata_check(struct ib_udata *udata, size_t known)
{
	if (!udata || udata->inlen <= known ||
	    ib_is_udata_cleared(udata, known, udata->inlen - known))
		return 0;
	return -EOPNOTSUPP;
}

int mic_alloc_ucontext(struct ib_ucontext *ibuctx, struct ib_udata *udata)
{
	struct mic_uctx *uctx = to_mic_uctx(ibuctx);
	struct mic_alloc_ucontext_resp resp = {};
	struct mic_doorbell *db;
	struct file *file;
	int err;

	err = mic_udata_check(udata, 0);
	if (err)
		return err;
	if (udata->outlen < sizeof(resp))
		return -EINVAL;

	db = kzalloc(sizeof(*db), GFP_KERNEL_ACCOUNT);
	if (!db)
		return -ENOMEM;
	kref_init(&db->ref);
	mutex_init(&db->lock);
	mic_busy_init(&db->busy);
	db->uctx = uctx;
	RCU_INIT_POINTER(db->dev, to_mic_dev(ibuctx->device));
	uctx->db = db;
	xa_init_flags(&uctx->bufs, XA_FLAGS_ALLOC1);

	resp.doorbell_fd = mic_doorbell_open(db, &file);
	if (resp.doorbell_fd < 0) {
		err = resp.doorbell_fd;
		goto err_db;
	}
	err = ib_copy_to_udata(udata, &resp, sizeof(resp));
	if (err)
		goto err_file;
	fd_install(resp.doorbell_fd, file);
	return 0;

err_file:
	fput(file);
	put_unused_fd(resp.doorbell_fd);
err_db:
	mic_doorbell_put(db);
	return err;
}

/* Another process imports the context: it gets a doorbell file of its own. */
int mic_query_ucontext(struct ib_ucontext *ibuctx,
		       struct uverbs_attr_bundle *attrs)
{
	struct mic_uctx *uctx = to_mic_uctx(ibuctx);
	struct mic_alloc_ucontext_resp resp = {};
	struct file *file;
	int err;

	resp.doorbell_fd = mic_doorbell_open(uctx->db, &file);
	if (resp.doorbell_fd < 0)
		return resp.doorbell_fd;
	err = uverbs_copy_to(attrs, MIC_IB_ATTR_QUERY_CONTEXT_RESP, &resp,
			     sizeof(resp));
	if (err) {
		fput(file);
		put_unused_fd(resp.doorbell_fd);
		return err;
	}
	fd_install(resp.doorbell_fd, file);
	return 0;
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(mic_query_context_attrs, UVERBS_OBJECT_DEVICE,
			     UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_PTR_OUT(MIC_IB_ATTR_QUERY_CONTEXT_RESP,
						 UVERBS_ATTR_TYPE(struct mic_alloc_ucontext_resp),
						 UA_MANDATORY));

const struct uapi_definition mic_uctx_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &mic_query_context_attrs),
	{},
};

void mic_dealloc_ucontext(struct ib_ucontext *ibuctx)
{
	struct mic_uctx *uctx = to_mic_uctx(ibuctx);
	struct mic_doorbell *db = uctx->db;

	mutex_lock(&db->lock);
	db->uctx = NULL;
	RCU_INIT_POINTER(db->dev, NULL);
	mutex_unlock(&db->lock);
	WARN_ON(!xa_empty(&uctx->bufs));
	xa_destroy(&uctx->bufs);
	mic_doorbell_put(db);
}

/*
 * Nothing to do: mappings of queue memory keep it, and the doorbell
 * files are cut off when the context goes. That this function exists tells
 * ib_core that the device can be removed under its users.
 */
void mic_disassociate_ucontext(struct ib_ucontext *ibuctx)
{
}
