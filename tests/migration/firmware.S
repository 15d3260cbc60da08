/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What a machine that is migrated executes, instead of a BIOS: for ever it adds one to
 * the first byte of each page from 64 KiB to 576 KiB. An image of 64 KiB ends where a
 * processor begins, 16 bytes below 4 GiB; it is at F000:0000, too.
 *
 * Each time the page is looked up anew. Of a processor that it emulates, QEMU 7.2 may not
 * see that a page is written to again which was looked up before the last look at what has
 * changed: then the end of a migration leaves it out, by TCP as by RDMA.
 */
	.code16
	.equ	FIRST, 0x1000		/* a segment: units of 16 bytes */
	.equ	END, 0x9000
	.equ	PAGE, 0x100
start:
	movw	$FIRST, %ax
page:
	movw	%ax, %ds
	invlpg	0
	incb	0
	addw	$PAGE, %ax
	cmpw	$END, %ax
	jne	page
	jmp	start

	.org	0xfff0
	ljmp	$0xf000, $start
	.org	0x10000
