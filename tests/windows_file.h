/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A windows file of a context, by its ioctl()s, as a process has it that uses no libmic
 * for that. The context is that of the last device that was opened (fuzz.h).
 */
#ifndef TESTS_WINDOWS_FILE_H
#define TESTS_WINDOWS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/mic-abi.h>

/* That in use; windows_file_open() sets it. */
extern int windows_fd;

/* One more. */
int windows_file(void);
void windows_file_open(void);

/* Returns 0 or an errno value. */
int import_window(struct mic_window_import *req);
bool drop(uint32_t slot);
/* Of a window of the file that was opened. */
bool is_revoked(uint32_t slot);
void *map_file(uint64_t offset, size_t length, int prot);

#endif /* TESTS_WINDOWS_FILE_H */
