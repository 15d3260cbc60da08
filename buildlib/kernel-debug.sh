# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The debug kernel, built once from the distribution's linux-source with
# buildlib/debug.config, and kept in the cache under a key of both.

# shellcheck disable=SC2034 # The results are for the caller.
kernel_select_debug() {
	die "not yet"
}
