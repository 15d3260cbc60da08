/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * State for those who debug: /sys/kernel/debug/ib_mic.
 */
#ifndef MIC_DEBUGFS_H
#define MIC_DEBUGFS_H

int mic_debugfs_init(void);
void mic_debugfs_exit(void);

#endif /* MIC_DEBUGFS_H */
