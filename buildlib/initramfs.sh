# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The initramfs: busybox, buildlib/guest/init, and the modules that it takes
# to reach the host's root file system.

INITRAMFS_MODULES="virtio_pci virtio_console 9pnet_virtio 9p overlay"

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
	(cd "$dir" && find . -print0 | cpio -0 -o -H newc -R 0:0 --quiet) \
		>"$out.tmp"
	mv "$out.tmp" "$out"
	rm -rf "$dir" "$dir.modules"
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
