// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The one copy: from the pieces of one list to the pieces of another.
 */
#include <linux/export.h>
#include <linux/sched.h>
#include <linux/string.h>

#include <mic/window.h>

/* The window of everything the kernel has an address for. */
const struct mic_window mic_linear_window;
EXPORT_SYMBOL_GPL(mic_linear_window);

/* A position in a list of pieces. */
struct mic_cursor {
	const struct mic_seg *seg;
	u64 off;		/* within @seg */
};

static inline struct mic_cursor mic_cursor_at(const struct mic_sgl *sgl, u64 off)
{
	struct mic_cursor cur = { .seg = sgl->seg, .off = off };

	while (cur.off && cur.off >= cur.seg->len) {
		cur.off -= cur.seg->len;
		cur.seg++;
	}
	return cur;
}

/* The next contiguous run, at most *len bytes; steps over empty pieces. */
static inline void *mic_cursor_peek(struct mic_cursor *cur, size_t *len)
{
	while (cur->off == cur->seg->len) {
		cur->seg++;
		cur->off = 0;
	}
	*len = min_t(u64, *len, cur->seg->len - cur->off);
	return mic_window_at(cur->seg->win, cur->seg->off + cur->off, len);
}

/* A contiguous run; NULL stands for the memory of a null window. */
static void mic_copy_run(void *dst, const void *src, size_t len)
{
	if (unlikely(!dst))
		return;
	if (unlikely(!src))
		memset(dst, 0, len);
	else
		memmove(dst, src, len);	/* they may be the same memory */
}

/* The last bytes, up to @end, that one store can write. */
static size_t mic_last_bytes(uintptr_t end, size_t len)
{
	if (!(end % sizeof(u64)) && len >= sizeof(u64))
		return sizeof(u64);
	if (!(end % sizeof(u32)) && len >= sizeof(u32))
		return sizeof(u32);
	if (!(end % sizeof(u16)) && len >= sizeof(u16))
		return sizeof(u16);
	return sizeof(u8);
}

/*
 * The last run: its end is stored after all else, and by one store, so that a word
 * that is a message of its own is seen as a whole.
 */
static void mic_copy_last_run(void *dst, const void *src, size_t len)
{
	const size_t n = mic_last_bytes((uintptr_t)dst + len, len);
	u64 zero = 0, last;

	if (unlikely(!dst))
		return;
	/* before the rest, which may be the same memory */
	memcpy(&last, likely(src) ? src + len - n : &zero, n);
	if (len > n)
		mic_copy_run(dst, src, len - n);
	dst += len - n;
	smp_wmb();	/* all else, then this */
	switch (n) {
	case sizeof(u64):
		WRITE_ONCE(*(u64 *)dst, last);
		break;
	case sizeof(u32):
		WRITE_ONCE(*(u32 *)dst, *(u32 *)&last);
		break;
	case sizeof(u16):
		WRITE_ONCE(*(u16 *)dst, *(u16 *)&last);
		break;
	default:
		WRITE_ONCE(*(u8 *)dst, *(u8 *)&last);
	}
}

/* What is copied at once may be copied to where it is, some bytes further. */
#define MIC_LITTLE	64

/* Several runs: all is read before any is written, as it is of one run. */
static void mic_copy_little(struct mic_cursor *to, struct mic_cursor *from,
			    size_t len)
{
	char little[MIC_LITTLE];
	size_t off, n;
	void *run;

	for (off = 0; off < len; off += n) {
		n = len - off;
		run = mic_cursor_peek(from, &n);
		mic_copy_run(little + off, run, n);
		from->off += n;
	}
	for (off = 0; off < len; off += n) {
		n = len - off;
		run = mic_cursor_peek(to, &n);
		if (off + n == len)
			mic_copy_last_run(run, little + off, n);
		else
			mic_copy_run(run, little + off, n);
		to->off += n;
	}
}

/**
 * mic_sgl_copy - copy between two lists of pieces
 * @dst: target
 * @dst_off: first byte to write, counted over the whole of @dst
 * @src: source
 * @src_off: first byte to read, counted over the whole of @src
 * @len: bytes; both lists hold that many from their offset on
 *
 * Runs are copied one after the other, and the last byte is written last: who
 * waits for it in memory finds the others, too. The lists may overlap where they are
 * short, or of one run. The source may be written by
 * user space meanwhile; which bytes arrive is then unspecified.
 *
 * Context: any; the caller bounds @len.
 */
void mic_sgl_copy(const struct mic_sgl *dst, u64 dst_off,
		  const struct mic_sgl *src, u64 src_off, size_t len)
{
	struct mic_cursor to, from;

	if (!len)
		return;

	to = mic_cursor_at(dst, dst_off);
	from = mic_cursor_at(src, src_off);
	for (;;) {
		size_t n = len;
		void *d = mic_cursor_peek(&to, &n);
		const void *s = mic_cursor_peek(&from, &n);

		if (n == len) {
			mic_copy_last_run(d, s, n);
			return;
		}
		if (len <= MIC_LITTLE) {
			mic_copy_little(&to, &from, len);
			return;
		}
		mic_copy_run(d, s, n);
		to.off += n;
		from.off += n;
		len -= n;
	}
}
EXPORT_SYMBOL_GPL(mic_sgl_copy);
