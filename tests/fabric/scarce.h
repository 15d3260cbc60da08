/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#ifndef TESTS_FABRIC_SCARCE_H
#define TESTS_FABRIC_SCARCE_H

/* What this machine does by itself, as scarce.c's usage says. Returns the exit status. */
int scarce_device(const char *device, const char *what, const char *argument);

#endif /* TESTS_FABRIC_SCARCE_H */
