/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The part of libibverbs' private provider interface that libmic uses.
 *
 * Distributions ship libibverbs without a header for its providers. This one
 * states the binary interface of rdma-core 44 (symbol version
 * IBVERBS_PRIVATE_34) for a provider built outside of rdma-core. Names are
 * those of the interface, so that the same sources compile in an rdma-core
 * tree against the original header.
 *
 * Nothing here is taken on trust. Structures that contain public types are
 * built from the installed <infiniband/verbs.h>; sizes and offsets are
 * asserted below; verify.py and probe.c compare the rest with the library
 * that is installed, and the provider compares once more when it is loaded.
 */
#ifndef PABI_H
#define PABI_H

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>

/* The release of rdma-core these declarations describe. */
#define PABI_RDMA_CORE_VERSION 44

#ifndef container_of
#define container_of(ptr, type, member)                                        \
	((type *)((char *)(ptr)-offsetof(type, member)))
#endif

/*
 * Devices and how a provider is found for them.
 */
struct list_node {
	struct list_node *next, *prev;
};

enum {
	VERBS_MATCH_SENTINEL = 0,
	VERBS_MATCH_PCI = 1,
	VERBS_MATCH_MODALIAS = 2,
	VERBS_MATCH_DRIVER_ID = 3,
};

struct verbs_match_ent {
	void *driver_data;
	union {
		const char *modalias;
		uint64_t driver_id;
	} u;
	uint16_t vendor, device;
	uint8_t kind;
};

#define VERBS_DRIVER_ID(id)                                                    \
	{                                                                      \
		.kind = VERBS_MATCH_DRIVER_ID, .u.driver_id = id               \
	}

/* What the library read about a device before it asks a provider. */
struct verbs_sysfs_dev {
	struct list_node entry;
	void *provider_data;
	const struct verbs_match_ent *match;
	unsigned int flags;
	char sysfs_name[IBV_SYSFS_NAME_MAX];
	dev_t sysfs_cdev;
	char ibdev_name[IBV_SYSFS_NAME_MAX];
	char ibdev_path[IBV_SYSFS_PATH_MAX];
	char modalias[512];
	uint64_t node_guid;
	uint32_t driver_id;
	enum ibv_node_type node_type;
	int ibdev_idx;
	uint32_t num_ports, abi_ver;
	struct timespec time_created;
};

struct verbs_device;

struct verbs_device_ops {
	const char *name;
	uint32_t match_min_abi_version, match_max_abi_version;
	const struct verbs_match_ent *match_table; /* never NULL */
	const struct verbs_device_ops **static_providers;
	bool (*match_device)(struct verbs_sysfs_dev *sysfs_dev);
	/* Both own @cmd_fd, also when they fail. */
	struct verbs_context *(*alloc_context)(struct ibv_device *device,
					       int cmd_fd, void *private_data);
	struct verbs_context *(*import_context)(struct ibv_device *device,
						int cmd_fd);
	struct verbs_device *(*alloc_device)(struct verbs_sysfs_dev *sysfs_dev);
	void (*uninit_device)(struct verbs_device *device);
};

struct verbs_device {
	struct ibv_device device;
	const struct verbs_device_ops *ops;
	atomic_int refcount;
	struct list_node entry;
	struct verbs_sysfs_dev *sysfs;
	uint64_t core_support;
};

static inline struct verbs_device *verbs_get_device(
	const struct ibv_device *dev)
{
	return container_of(dev, struct verbs_device, device);
}

/*
 * Objects: the public part first, then what the library adds.
 */
enum verbs_qp_mask {
	VERBS_QP_XRCD = 1 << 0,
	VERBS_QP_EX = 1 << 1, /* @qp_ex is filled in */
};

enum ibv_mr_type {
	IBV_MR_TYPE_MR,
	IBV_MR_TYPE_NULL_MR,
	IBV_MR_TYPE_IMPORTED_MR,
	IBV_MR_TYPE_DMABUF_MR,
};

struct verbs_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t comp_mask, handle;
};

struct verbs_srq {
	struct ibv_srq srq;
	enum ibv_srq_type srq_type;
	struct verbs_xrcd *xrcd;
	struct ibv_cq *cq;
	uint32_t srq_num;
};

struct verbs_mr {
	struct ibv_mr ibv_mr;
	enum ibv_mr_type mr_type;
	int access;
};

struct verbs_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex qp_ex;
	};
	uint32_t comp_mask; /* enum verbs_qp_mask */
	struct verbs_xrcd *xrcd;
};

struct verbs_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex cq_ex;
	};
};

struct verbs_dm {
	struct ibv_dm dm;
	uint32_t handle;
};

/*
 * The operations of a provider, one pointer each, in alphabetical order.
 * Those libmic does not offer have no type here: they only take their place.
 */
typedef void (*pabi_op)(void);

struct verbs_context_ops {
	int (*advise_mr)(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
			 uint32_t flags, struct ibv_sge *sg_list,
			 uint32_t num_sge);
	struct ibv_dm *(*alloc_dm)(struct ibv_context *context,
				   struct ibv_alloc_dm_attr *attr);
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *pd);
	struct ibv_pd *(*alloc_parent_domain)(
		struct ibv_context *context,
		struct ibv_parent_domain_init_attr *attr);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	struct ibv_td *(*alloc_td)(struct ibv_context *context,
				   struct ibv_td_init_attr *attr);
	pabi_op async_event;
	pabi_op attach_counters_point_flow;
	int (*attach_mcast)(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid);
	int (*bind_mw)(struct ibv_qp *qp, struct ibv_mw *mw,
		       struct ibv_mw_bind *bind);
	int (*close_xrcd)(struct ibv_xrcd *xrcd);
	pabi_op cq_event;
	struct ibv_ah *(*create_ah)(struct ibv_pd *pd,
				    struct ibv_ah_attr *attr);
	pabi_op create_counters;
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe,
				    struct ibv_comp_channel *channel,
				    int comp_vector);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *context,
					  struct ibv_cq_init_attr_ex *attr);
	pabi_op create_flow;
	pabi_op create_flow_action_esp;
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *attr);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *context,
				       struct ibv_qp_init_attr_ex *attr);
	pabi_op create_rwq_ind_table;
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd,
				      struct ibv_srq_init_attr *attr);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *context,
					 struct ibv_srq_init_attr_ex *attr);
	pabi_op create_wq;
	int (*dealloc_mw)(struct ibv_mw *mw);
	int (*dealloc_pd)(struct ibv_pd *pd);
	int (*dealloc_td)(struct ibv_td *td);
	int (*dereg_mr)(struct verbs_mr *vmr);
	int (*destroy_ah)(struct ibv_ah *ah);
	pabi_op destroy_counters;
	int (*destroy_cq)(struct ibv_cq *cq);
	pabi_op destroy_flow;
	pabi_op destroy_flow_action;
	int (*destroy_qp)(struct ibv_qp *qp);
	pabi_op destroy_rwq_ind_table;
	int (*destroy_srq)(struct ibv_srq *srq);
	pabi_op destroy_wq;
	int (*detach_mcast)(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid);
	void (*free_context)(struct ibv_context *context);
	int (*free_dm)(struct ibv_dm *dm);
	int (*get_srq_num)(struct ibv_srq *srq, uint32_t *srq_num);
	struct ibv_dm *(*import_dm)(struct ibv_context *context,
				    uint32_t handle);
	struct ibv_mr *(*import_mr)(struct ibv_pd *pd, uint32_t handle);
	struct ibv_pd *(*import_pd)(struct ibv_context *context,
				    uint32_t handle);
	int (*modify_cq)(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
	pabi_op modify_flow_action_esp;
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	pabi_op modify_qp_rate_limit;
	int (*modify_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr,
			  int mask);
	pabi_op modify_wq;
	struct ibv_qp *(*open_qp)(struct ibv_context *context,
				  struct ibv_qp_open_attr *attr);
	struct ibv_xrcd *(*open_xrcd)(struct ibv_context *context,
				      struct ibv_xrcd_init_attr *attr);
	int (*poll_cq)(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad_wr);
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad_wr);
	pabi_op post_srq_ops;
	int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			     struct ibv_recv_wr **bad_wr);
	int (*query_device_ex)(struct ibv_context *context,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr,
			       size_t attr_size);
	pabi_op query_ece;
	int (*query_port)(struct ibv_context *context, uint8_t port_num,
			  struct ibv_port_attr *attr);
	int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init_attr);
	pabi_op query_qp_data_in_order;
	int (*query_rt_values)(struct ibv_context *context,
			       struct ibv_values_ex *values);
	int (*query_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr);
	pabi_op read_counters;
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *pd, struct ibv_dm *dm,
				    uint64_t offset, size_t length,
				    unsigned int access);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset,
					size_t length, uint64_t iova, int fd,
					int access);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length,
				 uint64_t iova, int access);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited_only);
	int (*rereg_mr)(struct verbs_mr *vmr, int flags, struct ibv_pd *pd,
			void *addr, size_t length, int access);
	int (*resize_cq)(struct ibv_cq *cq, int cqe);
	pabi_op set_ece;
	void (*unimport_dm)(struct ibv_dm *dm);
	void (*unimport_mr)(struct ibv_mr *mr);
	void (*unimport_pd)(struct ibv_pd *pd);
};

/*
 * Commands as the library wants them: its header, then the kernel's command
 * structure. A driver's own data follows the response directly.
 */
#define PABI_CMD(name, payload)                                                \
	struct name {                                                          \
		struct ib_uverbs_cmd_hdr hdr;                                  \
		struct payload core_payload;                                   \
	}

#define PABI_CMD_EX(name, payload)                                             \
	struct name {                                                          \
		struct ib_uverbs_cmd_hdr hdr;                                  \
		struct ib_uverbs_ex_cmd_hdr ex_hdr;                            \
		struct payload core_payload;                                   \
	}

PABI_CMD(ibv_alloc_mw, ib_uverbs_alloc_mw);
PABI_CMD(ibv_alloc_pd, ib_uverbs_alloc_pd);
PABI_CMD(ibv_create_srq, ib_uverbs_create_srq);
PABI_CMD(ibv_create_xsrq, ib_uverbs_create_xsrq);
PABI_CMD(ibv_get_context, ib_uverbs_get_context);
PABI_CMD(ibv_modify_qp, ib_uverbs_modify_qp);
PABI_CMD(ibv_modify_srq, ib_uverbs_modify_srq);
PABI_CMD(ibv_open_qp, ib_uverbs_open_qp);
PABI_CMD(ibv_open_xrcd, ib_uverbs_open_xrcd);
PABI_CMD(ibv_query_port, ib_uverbs_query_port);
PABI_CMD(ibv_query_qp, ib_uverbs_query_qp);
PABI_CMD(ibv_query_srq, ib_uverbs_query_srq);
PABI_CMD(ibv_reg_mr, ib_uverbs_reg_mr);
PABI_CMD(ibv_rereg_mr, ib_uverbs_rereg_mr);
PABI_CMD(ibv_resize_cq, ib_uverbs_resize_cq);
PABI_CMD_EX(ibv_create_cq_ex, ib_uverbs_ex_create_cq);
PABI_CMD_EX(ibv_create_qp_ex, ib_uverbs_ex_create_qp);
PABI_CMD_EX(ibv_modify_cq, ib_uverbs_ex_modify_cq);

/*
 * Functions. Those that return int return 0 or an errno value.
 */
#define verbs_register_driver verbs_register_driver_34
void verbs_register_driver(const struct verbs_device_ops *ops);

/* What libibverbs calls the provider when it is linked statically. */
#define PROVIDER_DRIVER(provider_name, drv_struct)                             \
	extern const struct verbs_device_ops verbs_provider_##provider_name    \
		__attribute__((alias(#drv_struct)));                           \
	static __attribute__((                                                 \
		constructor)) void provider_name##_register_provider(void)     \
	{                                                                      \
		verbs_register_driver(&drv_struct);                            \
	}

/* @context: where in the new allocation the verbs_context is, as a pointer */
void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd,
				    size_t alloc_size,
				    struct verbs_context *context,
				    uint32_t driver_id);
#define verbs_init_and_alloc_context(dev, cmd_fd, ctx, member, driver_id)      \
	((__typeof__(ctx))_verbs_init_and_alloc_context(                       \
		dev, cmd_fd, sizeof(*(ctx)),                                   \
		(struct verbs_context *)offsetof(__typeof__(*(ctx)), member),  \
		driver_id))
void verbs_set_ops(struct verbs_context *vctx,
		   const struct verbs_context_ops *ops);
void verbs_uninit_context(struct verbs_context *vctx);

int ibv_cmd_get_context(struct verbs_context *vctx, struct ibv_get_context *cmd,
			size_t cmd_size,
			struct ib_uverbs_get_context_resp *resp,
			size_t resp_size);
int ibv_cmd_query_device_any(struct ibv_context *context,
			     const struct ibv_query_device_ex_input *input,
			     struct ibv_device_attr_ex *attr, size_t attr_size,
			     struct ib_uverbs_ex_query_device_resp *resp,
			     size_t *resp_size);
int ibv_cmd_query_port(struct ibv_context *context, uint8_t port_num,
		       struct ibv_port_attr *attr, struct ibv_query_port *cmd,
		       size_t cmd_size);

int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd,
		     struct ibv_alloc_pd *cmd, size_t cmd_size,
		     struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size);
int ibv_cmd_dealloc_pd(struct ibv_pd *pd);
int ibv_cmd_open_xrcd(struct ibv_context *context, struct verbs_xrcd *xrcd,
		      int xrcd_size, struct ibv_xrcd_init_attr *attr,
		      struct ibv_open_xrcd *cmd, size_t cmd_size,
		      struct ib_uverbs_open_xrcd_resp *resp, size_t resp_size);
int ibv_cmd_close_xrcd(struct verbs_xrcd *xrcd);

int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		   int access, struct verbs_mr *vmr, struct ibv_reg_mr *cmd,
		   size_t cmd_size, struct ib_uverbs_reg_mr_resp *resp,
		   size_t resp_size);
int ibv_cmd_rereg_mr(struct verbs_mr *vmr, uint32_t flags, void *addr,
		     size_t length, uint64_t iova, int access,
		     struct ibv_pd *pd, struct ibv_rereg_mr *cmd,
		     size_t cmd_size, struct ib_uverbs_rereg_mr_resp *resp,
		     size_t resp_size);
int ibv_cmd_dereg_mr(struct verbs_mr *vmr);
int ibv_cmd_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
		      uint32_t flags, struct ibv_sge *sg_list,
		      uint32_t num_sge);
int ibv_cmd_query_mr(struct ibv_pd *pd, struct verbs_mr *vmr, uint32_t handle);
int ibv_cmd_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
			  uint64_t iova, int fd, int access,
			  struct verbs_mr *vmr);
/* @link: attributes of the driver's own, libmic has none */
struct ibv_command_buffer;
int ibv_cmd_reg_dm_mr(struct ibv_pd *pd, struct verbs_dm *dm, uint64_t offset,
		      size_t length, unsigned int access, struct verbs_mr *vmr,
		      struct ibv_command_buffer *link);
int ibv_cmd_free_dm(struct verbs_dm *dm);
int ibv_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type,
		     struct ibv_mw *mw, struct ibv_alloc_mw *cmd,
		     size_t cmd_size, struct ib_uverbs_alloc_mw_resp *resp,
		     size_t resp_size);
int ibv_cmd_dealloc_mw(struct ibv_mw *mw);

int ibv_cmd_create_cq_ex(struct ibv_context *context,
			 const struct ibv_cq_init_attr_ex *attr,
			 struct verbs_cq *cq, struct ibv_create_cq_ex *cmd,
			 size_t cmd_size,
			 struct ib_uverbs_ex_create_cq_resp *resp,
			 size_t resp_size, uint32_t cmd_flags);
int ibv_cmd_resize_cq(struct ibv_cq *cq, int cqe, struct ibv_resize_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_resize_cq_resp *resp,
		      size_t resp_size);
int ibv_cmd_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr,
		      struct ibv_modify_cq *cmd, size_t cmd_size);
int ibv_cmd_destroy_cq(struct ibv_cq *cq);

int ibv_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq,
		       struct ibv_srq_init_attr *attr,
		       struct ibv_create_srq *cmd, size_t cmd_size,
		       struct ib_uverbs_create_srq_resp *resp,
		       size_t resp_size);
int ibv_cmd_create_srq_ex(struct ibv_context *context, struct verbs_srq *srq,
			  struct ibv_srq_init_attr_ex *attr,
			  struct ibv_create_xsrq *cmd, size_t cmd_size,
			  struct ib_uverbs_create_srq_resp *resp,
			  size_t resp_size);
int ibv_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask,
		       struct ibv_modify_srq *cmd, size_t cmd_size);
int ibv_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
		      struct ibv_query_srq *cmd, size_t cmd_size);
int ibv_cmd_destroy_srq(struct ibv_srq *srq);

int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct verbs_qp *qp,
			  struct ibv_qp_init_attr_ex *attr,
			  struct ibv_create_qp_ex *cmd, size_t cmd_size,
			  struct ib_uverbs_ex_create_qp_resp *resp,
			  size_t resp_size);
int ibv_cmd_open_qp(struct ibv_context *context, struct verbs_qp *qp,
		    int qp_size, struct ibv_qp_open_attr *attr,
		    struct ibv_open_qp *cmd, size_t cmd_size,
		    struct ib_uverbs_create_qp_resp *resp, size_t resp_size);
int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init_attr,
		     struct ibv_query_qp *cmd, size_t cmd_size);
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_modify_qp *cmd, size_t cmd_size);
int ibv_cmd_destroy_qp(struct ibv_qp *qp);
int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah,
		      struct ibv_ah_attr *attr,
		      struct ib_uverbs_create_ah_resp *resp, size_t resp_size);
int ibv_cmd_destroy_ah(struct ibv_ah *ah);
int ibv_cmd_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			 uint16_t lid);
int ibv_cmd_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			 uint16_t lid);

/*
 * What the library was compiled with, on 64-bit machines. verbs_qp moves
 * between releases although the symbol version stays: see verify.py.
 */
#define PABI_ASSERT(cond)                                                      \
	static_assert(cond, "not the interface of rdma-core 44")

static_assert(sizeof(void *) == 8, "the layout is known for 64-bit machines");
PABI_ASSERT(sizeof(struct verbs_match_ent) == 24);
PABI_ASSERT(offsetof(struct verbs_match_ent, kind) == 20);
PABI_ASSERT(sizeof(struct verbs_sysfs_dev) == 992);
PABI_ASSERT(offsetof(struct verbs_sysfs_dev, match) == 24);
PABI_ASSERT(offsetof(struct verbs_sysfs_dev, ibdev_path) == 176);
PABI_ASSERT(offsetof(struct verbs_sysfs_dev, driver_id) == 952);
PABI_ASSERT(offsetof(struct verbs_sysfs_dev, abi_ver) == 968);
PABI_ASSERT(sizeof(struct verbs_device_ops) == 72);
PABI_ASSERT(offsetof(struct verbs_device_ops, alloc_context) == 40);
PABI_ASSERT(sizeof(struct verbs_device) == 712);
PABI_ASSERT(offsetof(struct verbs_device, ops) == 664);
PABI_ASSERT(offsetof(struct verbs_device, sysfs) == 696);
PABI_ASSERT(sizeof(struct verbs_context) == 648);
PABI_ASSERT(sizeof(struct verbs_context_ops) == 76 * sizeof(pabi_op));
PABI_ASSERT(sizeof(struct verbs_xrcd) == 16);
PABI_ASSERT(sizeof(struct verbs_srq) == 160);
PABI_ASSERT(offsetof(struct verbs_srq, srq_num) == 152);
PABI_ASSERT(sizeof(struct verbs_mr) == 56);
PABI_ASSERT(sizeof(struct verbs_qp) == 368);
PABI_ASSERT(offsetof(struct verbs_qp, comp_mask) == 352);
PABI_ASSERT(sizeof(struct verbs_cq) == 288);
PABI_ASSERT(sizeof(struct verbs_dm) == 40);
PABI_ASSERT(sizeof(struct ibv_create_cq_ex) == 24 + 32);
PABI_ASSERT(sizeof(struct ibv_create_qp_ex) == 24 + 64);
PABI_ASSERT(sizeof(struct ibv_create_xsrq) == 8 + 48);

#endif /* PABI_H */
