/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Pages that only a program can provide, which never does, or not yet.
 */
#ifndef TESTS_WITHHOLD_H
#define TESTS_WITHHOLD_H

#include <stddef.h>
#include <stdint.h>

/*
 * Returns a descriptor, or -1, with a remark. Until the descriptor is closed the
 * pages do not come; those of a proxied device (proxy.h) not before provide().
 */
int withhold(uint8_t *addr, size_t length);

/* What was withheld comes, and with it all of a proxied device. Closes @withheld. */
void provide(int withheld, const uint8_t *addr, size_t length);

#endif /* TESTS_WITHHOLD_H */
