/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MIC_INLINE_H
#define MIC_INLINE_H

/*
 * For what is in the way of each request: without calls there are no registers to be
 * saved, and what is constant where it is called is not looked at.
 */
#define MIC_ALWAYS_INLINE inline __attribute__((always_inline))

#endif /* MIC_INLINE_H */
