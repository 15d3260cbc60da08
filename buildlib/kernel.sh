# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Which kernel: kernel_select NAME makes sure that it is there and sets
#   KREL    its release, as uname -r prints it
#   KIMAGE  the file to boot
#   KROOT   the folder whose lib/modules/$KREL has its modules
#   KDIR    where external modules are built against it

# shellcheck source=buildlib/kernel-backports.sh
. "$TREE/buildlib/kernel-backports.sh"
# shellcheck source=buildlib/kernel-debug.sh
. "$TREE/buildlib/kernel-debug.sh"

KERNELS="6.1 6.12 debug"

kernel_check_name() {
	case " $KERNELS " in
	*" $1 "*) ;;
	*) die "unknown kernel '$1'" "use one of: $KERNELS" ;;
	esac
}

kernel_select() {
	kernel_check_name "$1"
	need_packages build-essential kmod
	case $1 in
	6.1) kernel_select_stock ;;
	6.12) kernel_select_backports ;;
	debug) kernel_select_debug ;;
	esac
}

# The newest kernel of the distribution that has image, modules and headers. Not one
# for clouds (-cloud-amd64), which lacks what the rig needs, nor one of another flavour.
find_stock_kernel() {
	local image release

	for image in /boot/vmlinuz-6.1.*[0-9]-amd64; do
		release=${image#/boot/vmlinuz-}
		if [ -r "$image" ] && [ -d "/lib/modules/$release/kernel" ] &&
			[ -e "/usr/src/linux-headers-$release/Makefile" ]; then
			echo "$release"
		fi
	done | sort -V | tail -n 1
}

kernel_select_stock() {
	need_packages linux-image-amd64 linux-headers-amd64
	KREL=$(find_stock_kernel)
	if [ -z "$KREL" ]; then
		# Both are installed, but of different versions: take the newest.
		ask_for_root
		step "apt-get update" apt_update
		step "updating kernel and headers" apt_install \
			linux-image-amd64 linux-headers-amd64
		KREL=$(find_stock_kernel)
	fi
	[ -n "$KREL" ] || die "no 6.1 kernel with matching headers is installed" \
		"this needs Debian 12's linux-image-amd64 and linux-headers-amd64"
	KIMAGE=/boot/vmlinuz-$KREL
	KROOT=/
	KDIR=/usr/src/linux-headers-$KREL
}
