#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run check [--fix] [NAME...]
#
# Checks the sources, all of them or only by the checks named:
#   spdx: every source file says its license in its first lines
#   paths: no file mentions a place that only one machine has
#   bash: shellcheck on all shell scripts
#   python: all Python files compile
#   format: user-space code is formatted as .clang-format says
#     (./run check --fix format formats it)
#   checkpatch: the kernel's checkpatch on kernel and user-space code
#   kernel-doc: the modules' kernel-doc comments
#   modules: the modules compile without a warning (W=1), nor one by sparse
#   gcc, clang: user space compiles without a warning
#   cppcheck, clang-tidy: what they find in user-space code
# All of them run, whatever fails.
# ---
set -eu -o pipefail

# shellcheck source=buildlib/common.sh
. "$(dirname "$(readlink -f "$0")")/common.sh"
# shellcheck source=buildlib/kernel.sh
. "$TREE/buildlib/kernel.sh"
# shellcheck source=buildlib/check/text.sh
. "$TREE/buildlib/check/text.sh"
# shellcheck source=buildlib/check/kernel.sh
. "$TREE/buildlib/check/kernel.sh"
# shellcheck source=buildlib/check/user.sh
. "$TREE/buildlib/check/user.sh"

all=(spdx paths bash python format checkpatch kernel-doc modules gcc clang
	cppcheck clang-tidy)
fix='' checks=()
while [ $# -gt 0 ]; do
	case $1 in
	--fix) fix=1 ;;
	-h | --help)
		show_help
		exit 0
		;;
	-*) die "unknown option $1" "see ./run check --help" ;;
	*)
		[[ " ${all[*]} " == *" $1 "* ]] ||
			die "unknown check '$1'" "use some of: ${all[*]}"
		checks+=("$1")
		;;
	esac
	shift
done
[ ${#checks[@]} -gt 0 ] || checks=("${all[@]}")

# run_check NAME: its function is check_NAME; its output is for failures.
run_check() {
	local name=$1 start=$SECONDS log=$BUILD/check-logs/$1.log status=ok

	if ! "check_${name//-/_}" >"$log" 2>&1; then
		status=FAIL
		failures+=("$name")
	fi
	printf '%-4s %s (%d s)\n' $status "$name" $((SECONDS - start))
	[ $status = ok ] || tail -n 60 "$log" | sed 's/^/     | /'
}

need_packages git shellcheck clang clang-format clang-tidy cppcheck sparse \
	cmake ninja-build build-essential pkg-config perl python3 xz-utils \
	libibverbs-dev librdmacm-dev linux-source-6.1 rsync
kernel_select 6.1
mkdir -p "$BUILD/check-logs"
cd "$TREE"
git ls-files >/dev/null ||
	die "git does not list this tree's files" "check a clone of one's own"
failures=()
for check in "${checks[@]}"; do
	run_check "$check"
done
passed=$((${#checks[@]} - ${#failures[@]}))
if [ ${#failures[@]} -gt 0 ]; then
	say "what to do: read the lines above (all: build/check-logs)," \
		"mend, and repeat with ./run check ${failures[*]}"
fi
echo "$passed checks passed, ${#failures[@]} failed${failures[*]:+: ${failures[*]}}"
[ ${#failures[@]} -eq 0 ]
