# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Packages that a VM has, and the host has not: one that installs a service has it
# started there. What is in them lies in a folder, which a VM has below the host's
# files. Their maintainers' scripts are not run. After common.sh.

VM_PACKAGES=$CACHE/vm-packages

# not_unpacked PACKAGE...: those that are neither installed here nor unpacked yet.
not_unpacked() {
	local package

	for package in $(missing_packages "$@"); do
		[ -e "$VM_PACKAGES/unpacked/$package" ] || echo "$package"
	done
}

# need_vm_packages PACKAGE...: unpack what is missing. Another clone that was at it has
# perhaps unpacked the same, and its machine may read the files by now.
need_vm_packages() {
	local lock wanted

	mapfile -t wanted < <(not_unpacked "$@")
	[ ${#wanted[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null ||
		die "these packages are missing: ${wanted[*]}" \
			"install them; this script only knows apt (Debian 12)"
	ask_for_root
	mkdir -p "$VM_PACKAGES/root" "$VM_PACKAGES/unpacked"
	step "apt-get update" apt_update
	exec {lock}>"$VM_PACKAGES/lock"
	flock "$lock"
	mapfile -t wanted < <(not_unpacked "${wanted[@]}")
	[ ${#wanted[@]} -eq 0 ] ||
		step "unpacking ${wanted[*]} for virtual machines" \
			unpack_for_vm "${wanted[@]}"
	exec {lock}>&-
}

# unpack_for_vm PACKAGE...: and what they depend on, as far as the host lacks it.
unpack_for_vm() (
	set -e
	folder=$(mktemp -d "$VM_PACKAGES/new-XXXXXX")
	trap 'rm -rf "$folder"' EXIT
	mkdir -p "$folder/debs/partial" "$folder/root"
	as_root apt-get -q -y --no-install-recommends --download-only \
		-o DPkg::Lock::Timeout="$APT_WAIT" \
		-o Dir::Cache::archives="$folder/debs" install "$@"
	for deb in "$folder"/debs/*.deb; do
		dpkg-deb -x "$deb" "$folder/root"
	done
	# There these are links into usr, and one layer's link hides another's folder.
	for dir in bin sbin lib lib64; do
		[ -d "$folder/root/$dir" ] || continue
		mkdir -p "$folder/root/usr/$dir"
		cp -a "$folder/root/$dir/." "$folder/root/usr/$dir/"
		rm -r "${folder:?}/root/$dir"
	done
	cp -a "$folder/root/." "$VM_PACKAGES/root/"
	for package; do
		: >"$VM_PACKAGES/unpacked/$package"
	done
)
