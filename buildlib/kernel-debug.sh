# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The debug kernel, built once from the distribution's linux-source with
# buildlib/debug.config, and kept in the cache under a key of both and of what is
# mended in the source.

DEBUG_CONFIG=$TREE/buildlib/debug.config

# What the checkers find in Linux 6.1 itself, so that what they report is ours.
mend_debug_kernel() {
	local core=$1/drivers/infiniband/core

	mend_context_leak "$core/uverbs_std_types_device.c" &&
		mend_xrcd_leak "$core/verbs.c" &&
		mend_tree_leak "$core/uverbs_uapi.c"
}

# mended FILE LINE: the file has the line, once.
mended() {
	[ "$(grep -c -x -F -e "$2" "$1")" -eq 1 ] || {
		echo "$1 is not as expected: is this mended already?"
		return 1
	}
}

# A context that cannot be made by ioctl() is freed with a reference to its task.
mend_context_leak() {
	sed -i '/^static int UVERBS_HANDLER(UVERBS_METHOD_GET_CONTEXT)/,/^}/s/^\t\tkfree(attrs->context);/\t\trdma_restrack_put(\&attrs->context->res);\n&/' \
		"$1"
	mended "$1" $'\t\trdma_restrack_put(&attrs->context->res);'
}

# An XRC target that cannot be made for want of memory holds its domain for ever.
mend_xrcd_leak() {
	sed -i '/^static struct ib_qp \*create_xrc_qp_user/,/^}/{
		/atomic_inc(&qp_init_attr->xrcd->usecnt);/d
		s/^\treturn qp;/\tatomic_inc(\&qp_init_attr->xrcd->usecnt);\n&/
	}' "$1"
	mended "$1" $'\tatomic_inc(&qp_init_attr->xrcd->usecnt);'
}

# A radix tree that gets only some of the nodes of a path keeps them, and who
# destroys the tree finds only those that lead to something.
mend_tree_leak() {
	sed -i '/^static void \*uapi_add_elm/,/^}/{
		s/^\trc = \(radix_tree_insert(.*\)/\trc = radix_tree_preload(GFP_KERNEL);\n\tif (!rc) {\n\t\trc = \1\n\t\tradix_tree_preload_end();\n\t}/
	}
	s/INIT_RADIX_TREE(&uapi->radix, GFP_KERNEL)/INIT_RADIX_TREE(\&uapi->radix, GFP_NOWAIT)/' \
		"$1"
	mended "$1" $'\t\tradix_tree_preload_end();' &&
		mended "$1" $'\tINIT_RADIX_TREE(&uapi->radix, GFP_NOWAIT);'
}

debug_kernel_key() {
	{
		cat "$DEBUG_CONFIG"
		declare -f mend_debug_kernel mended \
			mend_context_leak mend_xrcd_leak mend_tree_leak
		dpkg-query -W -f '${Version}' linux-source-6.1
	} | sha256sum | cut -c1-12
}

# Every option of the fragment must have survived the dependencies.
verify_debug_config() {
	local missing

	missing=$(grep '^CONFIG_' "$DEBUG_CONFIG" | grep -v -x -F -f "$1" || true)
	[ -z "$missing" ] || {
		echo "options that the configuration did not accept:"
		echo "$missing"
		return 1
	}
}

configure_debug_kernel() {
	make -C "$1" KCONFIG_ALLCONFIG="$DEBUG_CONFIG" allnoconfig &&
		verify_debug_config "$1/.config"
}

# What is not needed to boot it and to build modules against it goes.
install_debug_kernel() {
	local src=$1/src

	make -C "$src" INSTALL_MOD_PATH="$1/root" modules_install &&
		cp "$src/arch/x86/boot/bzImage" "$1/bzImage" &&
		cp "$src/include/config/kernel.release" "$1/release" &&
		find "$src" \( -name '*.o' -o -name '*.a' \) \
			-not -path "$src/tools/*" -not -path "$src/scripts/*" \
			-delete &&
		rm -f "$src"/vmlinux.* && touch "$1/complete"
}

build_debug_kernel() {
	local dir=$1 unpacked=linux-source-6.1

	mkdir -p "$dir"
	exec 8>"$dir/lock"
	flock 8
	if [ -e "$dir/complete" ]; then
		exec 8>&-
		return 0
	fi
	if [ ! -e "$dir/src" ]; then
		step "unpacking $unpacked" \
			tar -C "$dir" -xf /usr/src/$unpacked.tar.xz
		step "mending the source" mend_debug_kernel "$dir/$unpacked"
		mv "$dir/$unpacked" "$dir/src"
	fi
	step "configuring the debug kernel" configure_debug_kernel "$dir/src"
	say "building the debug kernel, once; this takes about ten minutes"
	step "debug kernel" make -C "$dir/src" -j "$(nproc)" bzImage modules
	step "debug kernel: clearing up" install_debug_kernel "$dir"
	exec 8>&-
}

kernel_select_debug() {
	local dir

	need_packages linux-source-6.1 build-essential bc bison flex \
		libelf-dev libssl-dev rsync xz-utils
	dir=$CACHE/kernel-debug-$(debug_kernel_key)
	[ -e "$dir/complete" ] || build_debug_kernel "$dir"
	KREL=$(cat "$dir/release")
	KIMAGE=$dir/bzImage
	KROOT=$dir/root
	KDIR=$dir/src
}
