/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/*
 * What this process has of the system's.
 */
#ifndef SCIF_TESTS_PROCESS_H
#define SCIF_TESTS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

unsigned int count_descriptors(void);

/* How many of them are of files whose names begin so. */
unsigned int count_files(const char *begin);

/* The lowest number that is free. */
int next_number(void);

/* How many descriptors it may have, from now on; the limit that was. */
unsigned long limit_descriptors(unsigned long count);

/* Memory of this process that devices hold. */
size_t pinned(void);

/* Wait until that is @bytes at most; false if it does not happen. */
bool unpins(size_t bytes);

#endif /* SCIF_TESTS_PROCESS_H */
