# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The checks of ./run check that use the kernel's own tools.

KERNEL_TOOLS=$CACHE/kernel-tools
KERNEL_SOURCES=('kernel/*.[ch]' 'tests/kernel/*.[ch]')

# checkpatch's types that do not fit here:
#   this is not the kernel's tree: FILE_PATH_CHANGES
#   the one compat header compares versions: the next two
#   locks are described in kernel-doc: UNCOMMENTED_DEFINITION
CHECKPATCH_IGNORE=FILE_PATH_CHANGES,LINUX_VERSION_CODE,CONSTANT_COMPARISON
CHECKPATCH_IGNORE+=,UNCOMMENTED_DEFINITION
# In user space also:
#   the layout is clang-format's business
CHECKPATCH_IGNORE_USER=$CHECKPATCH_IGNORE,SPACING,PARENTHESIS_ALIGNMENT
CHECKPATCH_IGNORE_USER+=,LINE_SPACING,OPEN_ENDED_LINE,MULTILINE_DEREFERENCE
#   types, names and macros are those of C11, libc and libibverbs, and
#   verbs return positive error numbers
CHECKPATCH_IGNORE_USER+=,PREFER_KERNEL_TYPES,CAMELCASE,BIT_MACRO,ARRAY_SIZE
CHECKPATCH_IGNORE_USER+=,PREFER_DEFINED_ATTRIBUTE_MACRO,PREFER_FALLTHROUGH
CHECKPATCH_IGNORE_USER+=,USE_NEGATIVE_ERRNO,ENOSYS,ARCH_DEFINES,VOLATILE
CHECKPATCH_IGNORE_USER+=,AVOID_EXTERNS,CONST_STRUCT,CONSIDER_KSTRTO
#   advice about macros that rdma-core's own interface does not follow
CHECKPATCH_IGNORE_USER+=,COMPLEX_MACRO,TRAILING_SEMICOLON
CHECKPATCH_IGNORE_USER+=,MACRO_ARG_PRECEDENCE,MACRO_ARG_REUSE
#   short names of functions are also words in messages
CHECKPATCH_IGNORE_USER+=,EMBEDDED_FUNCTION_NAME
#   format strings: a conversion macro splits them, and they may be long
CHECKPATCH_IGNORE_USER+=,SPLIT_STRING,LONG_LINE_STRING
#   SCIF's own interface has typedefs
CHECKPATCH_IGNORE_USER+=,NEW_TYPEDEFS

# From linux-source, once: unpacking takes ten seconds.
need_kernel_tools() {
	local source=linux-source-6.1 file files=()

	[ ! -e "$KERNEL_TOOLS/complete" ] || return 0
	for file in checkpatch.pl spelling.txt const_structs.checkpatch \
		kernel-doc; do
		files+=("$source/scripts/$file")
	done
	mkdir -p "$KERNEL_TOOLS/include"
	tar -C "$KERNEL_TOOLS" --strip-components=2 \
		-xf /usr/src/$source.tar.xz "${files[@]}" &&
		touch "$KERNEL_TOOLS/complete"
}

# run_checkpatch IGNORE FILE...: it leaves a file where it runs, so not here.
run_checkpatch() {
	local ignore=$1

	shift
	[ $# -gt 0 ] || return 0
	(cd "$KERNEL_TOOLS" && perl checkpatch.pl --no-tree --root . --strict --terse \
		--show-types --no-summary --max-line-length=100 \
		--ignore "$ignore" -f "${@/#/$TREE/}") | sed "s|^$TREE/||"
}

check_checkpatch() {
	local kernel_files user_files status=0

	need_kernel_tools || return
	mapfile -t kernel_files < <(tree_files "${KERNEL_SOURCES[@]}")
	mapfile -t user_files < <(user_sources)
	run_checkpatch "$CHECKPATCH_IGNORE" "${kernel_files[@]}" || status=1
	run_checkpatch "$CHECKPATCH_IGNORE_USER" "${user_files[@]}" || status=1
	return $status
}

check_kernel_doc() {
	local files

	need_kernel_tools || return
	mapfile -t files < <(tree_files "${KERNEL_SOURCES[@]}")
	[ ${#files[@]} -eq 0 ] ||
		perl "$KERNEL_TOOLS/kernel-doc" -none -Werror "${files[@]}"
}

# check_modules_in FOLDER: in a copy of its own, so that the build that the VM uses
# stays as it is.
check_modules_in() {
	local dir=$BUILD/check-kmod/$1 output status=0

	mkdir -p "$dir"
	rsync -a --delete "$TREE/$1/" "$dir/"
	output=$(make -C "$KDIR" M="$dir" -j "$(nproc)" W=1 C=2 \
		KCFLAGS=-Werror modules 2>&1) || status=1
	# sparse only warns; what it says of the kernel's headers is not ours.
	! grep -E "^$dir/.*(warning|error):" <<<"$output" || status=1
	[ $status -eq 0 ] || grep -v -E '^ +(CC|LD|CHECK|MODPOST)' <<<"$output"
	return $status
}

check_modules() {
	check_modules_in kernel && check_modules_in tests/kernel
}
