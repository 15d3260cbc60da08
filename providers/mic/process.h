/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef MIC_PROCESS_H
#define MIC_PROCESS_H

#include <stdint.h>

/* A number that no child of this process has, nor its parent. */
uint32_t mic_process(void);

#endif /* MIC_PROCESS_H */
