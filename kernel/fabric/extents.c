// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Extents: where memory of this node is, for a node that has all of it in an
 * aperture.
 */
#include <linux/export.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include <mic/gfp.h>
#include <mic/share.h>
#include <mic/window.h>

/* Pieces that are looked at for a list: 4 GiB of pages. */
#define MIC_EXTENTS_STEPS	SZ_1M

static struct mic_extents *mic_extents_alloc(u32 n)
{
	struct mic_extents *list;

	list = kvmalloc(struct_size(list, at, n), mic_gfp() | __GFP_ACCOUNT);
	if (list)
		list->n = n;
	return list;
}

/**
 * mic_extents_free - free a list, and nothing else
 * @list: list, or NULL
 */
void mic_extents_free(struct mic_extents *list)
{
	kvfree(list);
}
EXPORT_SYMBOL_GPL(mic_extents_free);

/*
 * Fill in a list, if there is one. The steps are bounded, and not only the extents:
 * pieces of 4 KiB that follow one another are one extent, and the other machine asks.
 *
 * Return: how many extents it takes; more than MIC_EXTENTS_MAX is too much.
 */
static u32 mic_extents_walk(const struct mic_window *win, u64 off, u64 bytes,
			    struct mic_extents *list)
{
	struct mic_extent last = {};
	u32 steps = 0, n = 0;

	while (bytes && n <= MIC_EXTENTS_MAX) {
		size_t len = min_t(u64, bytes, SZ_1G);
		u64 addr = virt_to_phys(mic_window_at(win, off, &len));

		if (++steps > MIC_EXTENTS_STEPS)
			return MIC_EXTENTS_MAX + 1;
		if (n && addr == last.addr + last.length) {
			last.length += len;
		} else {
			last = (struct mic_extent) { addr, len };
			n++;
		}
		if (list)
			list->at[n - 1] = last;
		off += len;
		bytes -= len;
	}
	return n;
}

/* A reference to what an extent is of, or one less. */
static void mic_extent_hold(const struct mic_extent *extent, bool hold)
{
	u64 addr = extent->addr, end = addr + extent->length;
	struct folio *folio;

	while (addr < end) {
		folio = page_folio(pfn_to_page(PHYS_PFN(addr)));
		addr = PFN_PHYS(folio_pfn(folio) + folio_nr_pages(folio));
		if (hold)
			folio_get(folio);
		else
			folio_put(folio);
		cond_resched();
	}
}

/**
 * mic_extents_get - list where memory is, and keep it there
 * @win: window on pages of this kernel, not a linear one
 * @off: whole pages
 * @bytes: whole pages, not 0
 *
 * The pages are nobody else's before mic_extents_put(), also if who registered
 * them lets go of them.
 *
 * Context: process context, sleeps.
 * Return: the list, or an ERR_PTR (-ENOMEM, -E2BIG).
 */
struct mic_extents *mic_extents_get(const struct mic_window *win, u64 off,
				    u64 bytes)
{
	u32 n = mic_extents_walk(win, off, bytes, NULL), i;
	struct mic_extents *list;

	if (n > MIC_EXTENTS_MAX)
		return ERR_PTR(-E2BIG);
	list = mic_extents_alloc(n);
	if (!list)
		return ERR_PTR(-ENOMEM);
	mic_extents_walk(win, off, bytes, list);
	for (i = 0; i < n; i++)
		mic_extent_hold(&list->at[i], true);
	return list;
}
EXPORT_SYMBOL_GPL(mic_extents_get);

/**
 * mic_extents_put - let go of memory that nobody has mapped any more
 * @list: list from mic_extents_get(); freed
 *
 * Context: process context, sleeps.
 */
void mic_extents_put(struct mic_extents *list)
{
	u32 i;

	for (i = 0; i < list->n; i++)
		mic_extent_hold(&list->at[i], false);
	mic_extents_free(list);
}
EXPORT_SYMBOL_GPL(mic_extents_put);

/**
 * mic_extents_copy - a list as another node sent it
 * @from: memory that the other node can change
 * @bytes: size of all extents
 *
 * Context: process context, sleeps.
 * Return: the list, whose extents may say anything; NULL if there is none.
 */
struct mic_extents *mic_extents_copy(const void *from, u32 bytes)
{
	u32 n = bytes / sizeof(struct mic_extent);
	struct mic_extents *list;

	if (!n || n > MIC_EXTENTS_MAX || bytes % sizeof(struct mic_extent))
		return NULL;
	list = mic_extents_alloc(n);
	if (list)
		memcpy(list->at, from, bytes);
	return list;
}
EXPORT_SYMBOL_GPL(mic_extents_copy);
