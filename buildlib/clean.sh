#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run clean [--cache]
#
# Removes what was built in the tree (build/).
#
#   --cache   also the kernels, tools and packages kept outside the tree, in
#             $MIC_CACHE or ~/.cache/mic
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
	# only what is known: the folder may be one that has other things, too
	rm -rf "$CACHE"/kernel-6.12 "$CACHE"/kernel-debug-* "$CACHE"/kernel-tools \
		"$CACHE"/vm-packages
	rmdir "$CACHE" 2>/dev/null || true
	say "removed the kernels, tools and packages in $CACHE"
fi
