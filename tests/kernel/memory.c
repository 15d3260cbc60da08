// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/scatterlist.h>

#include "memory.h"

int memory_open(struct memory *memory, struct side *side)
{
	memory->side = side;
	memory->page = (u8 *)get_zeroed_page(GFP_KERNEL);
	return memory->page ? 0 : -ENOMEM;
}

void memory_close(struct memory *memory)
{
	memory_forget(memory);
	free_page((unsigned long)memory->page);
}

void memory_forget(struct memory *memory)
{
	if (!IS_ERR_OR_NULL(memory->mr))
		ib_dereg_mr(memory->mr);
	memory->mr = NULL;
}

int memory_map(struct memory *memory)
{
	struct scatterlist sg;
	int n;

	memory_forget(memory);
	memory->mr = ib_alloc_mr(memory->side->pd, IB_MR_TYPE_MEM_REG, 1);
	if (IS_ERR(memory->mr))
		return PTR_ERR(memory->mr);
	sg_init_one(&sg, memory->page + MEMORY_BYTES, MEMORY_BYTES);
	if (ib_dma_map_sg(memory->side->dev, &sg, 1, DMA_BIDIRECTIONAL) != 1)
		return -EIO;
	n = ib_map_mr_sg(memory->mr, &sg, 1, NULL, PAGE_SIZE);
	if (n != 1)
		return n < 0 ? n : -EINVAL;
	ib_update_fast_reg_key(memory->mr, ib_inc_rkey(memory->mr->rkey));
	memory->key = memory->mr->rkey;
	return 0;
}

int memory_register(struct memory *memory, int access)
{
	struct ib_reg_wr wr = { .wr = { .opcode = IB_WR_REG_MR }, .access = access };
	int err = memory_map(memory);

	if (err)
		return err;
	wr.mr = memory->mr;
	wr.key = memory->key;
	return side_execute(memory->side, &wr.wr);
}
