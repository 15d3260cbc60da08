# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The initramfs: busybox, buildlib/guest/init, the modules that it takes to reach
# the host's root file system, and those of its files that every program opens.

INITRAMFS_MODULES="virtio_pci virtio_console 9pnet_virtio 9p overlay"
# Each open of a file of the host takes several messages through QEMU, and tests that
# start many programs did little else: one of libibverbs opens every provider, a
# shell's smallest command the 13 files of its locale. What these packages have and
# these programs load is in the VM's memory instead.
INITRAMFS_PACKAGES="bash coreutils findutils grep sed mawk procps util-linux kmod
	iproute2 libc-bin libc6 libibverbs1 ibverbs-providers ibverbs-utils
	librdmacm1 rdmacm-utils perftest"
INITRAMFS_PROGRAMS="/bin/bash /bin/grep /bin/ls /bin/ps /bin/ip /usr/bin/find
	/usr/bin/rdma /usr/bin/ibv_devinfo /usr/bin/rping"

# make_initramfs FILE: for the kernel that kernel_select chose.
make_initramfs() {
	local out=$1 dir name file

	dir=$(mktemp -d "$out.XXXXXX")
	mkdir -p "$dir"/{bin,dev,proc,sys,ctl,host,rw,root,modules}
	cp /bin/busybox "$dir/bin/busybox"
	cp "$TREE/buildlib/guest/init" "$dir/init"
	chmod 755 "$dir/init"
	for name in $INITRAMFS_MODULES; do
		modprobe -d "$KROOT" -S "$KREL" --show-depends "$name" ||
			die "Linux $KREL has no module $name" \
				"install linux-image-amd64, which has all of them"
	done >"$dir.modules"
	awk '$1 == "insmod" && !seen[$2]++ { print $2 }' "$dir.modules" |
		while read -r file; do
			unpack_module "$file" "$dir/modules"
		done
	mkdir "$dir/hot"
	hot_files | (cd / && cpio -0 -pdm --quiet "$dir/hot")
	(cd "$dir" && find . -print0 | cpio -0 -o -H newc -R 0:0 --quiet) \
		>"$out.tmp"
	mv "$out.tmp" "$out"
	rm -rf "$dir" "$dir.modules"
}

# hot_files: the files of INITRAMFS_PACKAGES and the libraries of INITRAMFS_PROGRAMS
# as far as they are there, relative to / and each ended by a zero. Only files that
# anybody may read and nobody gets rights by: all are root's in the initramfs.
hot_files() {
	# shellcheck disable=SC2086,SC2185 # lists
	{
		dpkg-query -L $INITRAMFS_PACKAGES || true
		ldd $INITRAMFS_PROGRAMS | grep -o '/[^ :]*' || true
		echo /etc/ld.so.cache
		echo /usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache
	} 2>/dev/null | sed -E 's,^/(bin|sbin|lib|lib64)/,/usr/\1/,' |
		grep -v -E '^/usr/share/|/gconv/.*\.so$|[*?[]' | sort -u |
		while read -r file; do
			[ -e "$file" ] || continue
			echo "$file"
			[ ! -L "$file" ] || readlink -f "$file"
		done | sort -u | sed -n 's,^/\(.\),\1,p' | tr '\n' '\0' |
		(cd / && find -files0-from - -maxdepth 0 \( -type l -xtype f -o \
			-type f -perm -444 ! -perm /6000 -user 0 -group 0 \) -print0)
}

# Copy a module and note it in the list, which is in the order to load.
unpack_module() {
	local name

	name=$(basename "$1")
	case $name in
	*.xz) xz -dc "$1" >"$2/${name%.xz}" ;;
	*.zst) zstd -dc "$1" >"$2/${name%.zst}" ;;
	*) cp "$1" "$2/$name" ;;
	esac
	name=${name%.xz}
	echo "${name%.zst}" >>"$2/order"
}
