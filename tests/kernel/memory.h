/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory of a side that it registers fast.
 */
#ifndef TESTS_KERNEL_MEMORY_H
#define TESTS_KERNEL_MEMORY_H

#include "side.h"

#define MEMORY_BYTES	256

/**
 * struct memory - a page, and a region of it
 * @side: whose it is
 * @page: memory
 * @mr: region, in place when @key is; NULL: there is none
 * @key: its key
 */
struct memory {
	struct side *side;
	u8 *page;
	struct ib_mr *mr;
	u32 key;
};

int memory_open(struct memory *memory, struct side *side);
void memory_close(struct memory *memory);
/* A region of @MEMORY_BYTES in the middle of the page, whose key is to come. */
int memory_map(struct memory *memory);
/* The same with these rights, registered by the side's queue pair. */
int memory_register(struct memory *memory, int access);
/* There is no region any more. */
void memory_forget(struct memory *memory);

#endif /* TESTS_KERNEL_MEMORY_H */
