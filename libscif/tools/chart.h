/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * A chart of throughput over transfer size.
 */
#ifndef SCIF_TOOLS_CHART_H
#define SCIF_TOOLS_CHART_H

/*
 * Read results from standard input, and print a bar for each; @svg: the file for a
 * drawing, or NULL. 0, or 1 after a message.
 */
int chart(const char *svg);

#endif /* SCIF_TOOLS_CHART_H */
