#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run build [--kernel 6.1|6.12|debug] [--sparse]
#
# Builds the kernel modules for a kernel (6.1) into build/kmod-KERNEL, those that
# only tests load into build/kmod-tests-KERNEL, and the provider, the tests and the
# tools into build/user.
#
#   --sparse   then check the modules with sparse, as ./run check modules does (6.1 only)
# ---
set -eu

# shellcheck source=buildlib/common.sh
. "$(dirname "$(readlink -f "$0")")/common.sh"
# shellcheck source=buildlib/kernel.sh
. "$TREE/buildlib/kernel.sh"

kernel=6.1 sparse=''
while [ $# -gt 0 ]; do
	case $1 in
	--kernel)
		need_value "$@"
		kernel=$2
		shift
		;;
	--sparse) sparse=1 ;;
	-h | --help)
		show_help
		exit 0
		;;
	*) die "unknown argument $1" "see ./run build --help" ;;
	esac
	shift
done

# The modules are built in a copy, so that one tree serves several kernels.
# build_modules FOLDER COPY LABEL
build_modules() {
	local dir=$BUILD/$2

	mkdir -p "$dir"
	rsync -a --delete --filter='P *.o' --filter='P *.ko' --filter='P .*' \
		--filter='P *.mod*' --filter='P Module.symvers' \
		--filter='P modules.order' "$TREE/$1/" "$dir/"
	step "$3 for $KREL" make -C "$KDIR" M="$dir" -j "$(nproc)" modules
}

build_user() {
	[ -e "$BUILD/user/build.ninja" ] ||
		step "configuring user space" cmake -G Ninja -S "$TREE" \
			-B "$BUILD/user" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
			-DMIC_WERROR=ON
	step "user space" ninja -C "$BUILD/user"
}

[ -e "$BUILD/user/build.ninja" ] || need_space "$BUILD" 1000
need_packages rsync python3 cmake ninja-build build-essential pkg-config \
	libibverbs-dev librdmacm-dev
kernel_select "$kernel"
[ -z "$sparse" ] || [ "$kernel" = 6.1 ] ||
	die "--sparse is for 6.1" "leave out --kernel $kernel, or --sparse"
mkdir -p "$BUILD"
exec 9>"$BUILD/.lock"
flock -n 9 || {
	say "another build is running here; waiting for it"
	flock 9
}
build_modules kernel "kmod-$kernel" "kernel modules"
build_modules tests/kernel "kmod-tests-$kernel" "modules of tests"
build_user
flock -u 9
[ -z "$sparse" ] || "$TREE/buildlib/check.sh" modules
