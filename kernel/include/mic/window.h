/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Windows: ranges of memory the fabric may copy from and to.
 *
 * A window is a table of equally sized, naturally aligned blocks, each of
 * them contiguous in the kernel's address space, so that any byte is found
 * with one shift and one table look-up whatever the size of the window. Huge
 * pages become large blocks.
 */
#ifndef MIC_WINDOW_H
#define MIC_WINDOW_H

#include <linux/minmax.h>
#include <linux/types.h>

/**
 * struct mic_window - a table of memory blocks
 * @block: kernel virtual address of each block; NULL for a linear window, in
 *	which an offset is itself a kernel virtual address
 * @nblocks: number of entries in @block
 * @shift: log2 of the size of a block in bytes
 * @null: there is no memory: zeros are read, and what is written is dropped
 *
 * Who owns the window keeps it and its pages in place while anything refers
 * to it; the window itself carries no reference.
 */
struct mic_window {
	void **block;
	u32 nblocks;
	u8 shift;
	bool null;
};

/**
 * mic_window_at - find the memory behind an offset
 * @win: window
 * @off: offset in bytes from the start of the first block; the caller has
 *	checked it against the window's size
 * @len: in: bytes wanted; out: how many of them are contiguous
 *
 * Return: kernel virtual address, NULL for a null window.
 */
static inline void *mic_window_at(const struct mic_window *win, u64 off,
				  size_t *len)
{
	u64 in_block;

	if (!win->block)
		return win->null ? NULL : (void *)(uintptr_t)off;

	in_block = off & ((1ULL << win->shift) - 1);
	*len = min_t(u64, *len, (1ULL << win->shift) - in_block);
	return win->block[off >> win->shift] + in_block;
}

/**
 * struct mic_seg - a piece of a window
 * @win: window
 * @off: offset in bytes within @win
 * @len: bytes
 */
struct mic_seg {
	const struct mic_window *win;
	u64 off;
	u32 len;
};

extern const struct mic_window mic_linear_window;

/* Memory of the kernel as a piece of a window. */
static inline struct mic_seg mic_linear_seg(const void *mem, u32 len)
{
	return (struct mic_seg) {
		.win = &mic_linear_window,
		.off = (uintptr_t)mem,
		.len = len,
	};
}

/**
 * struct mic_sgl - a list of pieces, seen as one run of bytes
 * @seg: pieces
 * @nseg: number of pieces
 */
struct mic_sgl {
	const struct mic_seg *seg;
	u32 nseg;
};

void mic_sgl_copy(const struct mic_sgl *dst, u64 dst_off,
		  const struct mic_sgl *src, u64 src_off, size_t len);

#endif /* MIC_WINDOW_H */
