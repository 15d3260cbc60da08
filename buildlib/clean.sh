#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run clean [--cache]
#
# Removes what was built in the tree (build/).
#
#   --cache   also the kernels and tools kept outside the tree
# ---
set -eu

# shellcheck source=buildlib/common.sh
. "$(dirname "$(readlink -f "$0")")/common.sh"

cache=''
while [ $# -gt 0 ]; do
	case $1 in
	--cache) cache=1 ;;
	-h | --help)
		show_help
		exit 0
		;;
	*) die "unknown argument $1" "see ./run clean --help" ;;
	esac
	shift
done
rm -rf "$BUILD"
say "removed $BUILD"
if [ -n "$cache" ]; then
	rm -rf "$CACHE"
	say "removed $CACHE"
fi
