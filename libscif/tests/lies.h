/* SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB */
/* What a peer that lies does to its victim. */
#ifndef SCIF_TESTS_LIES_H
#define SCIF_TESTS_LIES_H

#include "liar.h"

enum {
	LIES_WINDOWS = 2,  /* of the victim's, whose keys are used */
	LIES_UNSTEADY = 3, /* directories that are always about to change */
	LIES_SILENT = 3,   /* connections that are never answered */
};

/*
 * Be that peer, with @rounds connections of random lies first, and say by the pipe @tell
 * how the victim stood the others. It returns only if one of its own steps fails.
 */
int lie(const char *address, unsigned int rounds, int tell);

#endif /* SCIF_TESTS_LIES_H */
