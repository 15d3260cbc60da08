// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The code behind the tracepoints.
 */
#define CREATE_TRACE_POINTS
#include "trace.h"
