# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For packaging.test, which has $tree and tests/lib/tap.sh: packages are made of a
# copy of the tree, in $SCRATCH/mic-VERSION.

VERSION=$(cd "$tree" && dpkg-parsechangelog -S Version)
SOURCE=$SCRATCH/mic-$VERSION
ROOT=$SCRATCH/root
DEBS='mic-dkms ibverbs-provider-mic libmic-dev libscif0 libscif-dev scif-utils micdump mic-ivshmem-server'
RPMS='mic-dkms libibverbs-mic libmic-devel libscif libscif-devel scif-utils micdump'
RPMS+=' mic-ivshmem-server'

# copy_tree FOLDER: what git has of the tree, or would have.
copy_tree() {
	mkdir -p "$1" &&
		(cd "$tree" && git -c safe.directory="$tree" ls-files -z --cached --others --exclude-standard |
			xargs -0 cp --parents -t "$1")
}

make_debs() {
	local package

	copy_tree "$SOURCE" || return
	(cd "$SOURCE" && dpkg-buildpackage -us -uc -b) || return
	for package in $DEBS; do
		dpkg-deb -x "$(deb "$package")" "$ROOT" || return
	done
}

# deb PACKAGE: its file.
deb() {
	find "$SCRATCH" -maxdepth 1 -name "$1_*.deb"
}

# depends PACKAGE PATTERN: its dependencies have it.
depends() {
	dpkg-deb -f "$(deb "$1")" Depends | grep -E "$2"
}

# has PACKAGE PATTERN: a file of that name is in it.
has() {
	local path

	while read -r path; do
		# shellcheck disable=SC2053
		[[ $path != $2 ]] || return 0
	done < <(dpkg-deb --fsys-tarfile "$(deb "$1")" | tar -t | sed 's,^\./,,')
	return 1
}

# enables_nothing PACKAGE: what it runs when it is installed tells systemd nothing.
enables_nothing() {
	local scripts=$SCRATCH/control

	dpkg-deb -e "$(deb "$1")" "$scripts" &&
		! grep -E 'systemctl|deb-systemd' "$scripts/postinst"
}

same_sources() {
	local files=$ROOT/usr/src/mic-$VERSION

	diff <(cd "$tree/kernel" &&
		git -c safe.directory="$tree" ls-files --cached --others --exclude-standard | sort) \
		<(cd "$files" && find . -type f | sed 's,^\./,,' | sort) &&
		diff -r "$SOURCE/kernel" "$files"
}

# With nothing missing, and with the library of the package, not one that is
# installed. (scif-info has what it needs of it inside.)
programs_link() {
	local libraries

	libraries=$(dirname "$(find "$ROOT" -name libscif.so.0)")
	LD_LIBRARY_PATH=$libraries ldd -r "$ROOT"/usr/bin/scif-* \
		>"$SCRATCH/ldd" 2>&1 || return
	cat "$SCRATCH/ldd"
	grep -qF "=> $libraries/libscif.so.0" "$SCRATCH/ldd" &&
		! grep -E 'not found|undefined' "$SCRATCH/ldd"
}

# In folders of its own: nothing is installed.
dkms_builds() {
	local release options

	release=$(basename "$(find /usr/src -maxdepth 1 \
		-name 'linux-headers-6.1*-amd64' | sort -V | tail -n 1)")
	release=${release#linux-headers-}
	options=(--sourcetree "$ROOT/usr/src" --dkmstree "$SCRATCH/dkms"
		--installtree "$SCRATCH/dkms-installed")
	mkdir -p "$SCRATCH/dkms" "$SCRATCH/dkms-installed"
	dkms build "${options[@]}" -m mic -v "$VERSION" -k "$release" \
		--kernelsourcedir "/usr/src/linux-headers-$release" &&
		[ "$(find "$SCRATCH/dkms/mic/$VERSION/$release" -name '*.ko*' |
			wc -l)" -eq 3 ]
}

# The spec says what is installed; the packages of that distribution that it
# wants for building can't be here.
rpms_are_made() {
	local top=$SCRATCH/rpm

	mkdir -p "$top/SOURCES" && copy_tree "$SCRATCH/rpm/mic-$VERSION" &&
		tar -C "$top" -czf "$top/SOURCES/mic-$VERSION.tar.gz" \
			"mic-$VERSION" &&
		rpmbuild -bb --nodeps --define "_topdir $top" \
			"$tree/redhat/mic.spec" &&
		are_all_rpms "$top/RPMS"
}

# are_all_rpms FOLDER: those, and no others; what an rpm adds for debuggers aside.
are_all_rpms() {
	local made

	made=$(find "$1" -name '*.rpm' -exec rpm -qp --qf '%{NAME}\n' {} + |
		grep -vE -- '-debug(info|source)$' | sort)
	echo "$made"
	[ "$made" = "$(tr ' ' '\n' <<<"$RPMS" | sort)" ]
}

# rpm_requires PACKAGE PATTERN...: it requires what matches each.
rpm_requires() {
	local package=$1 pattern

	shift
	rpm -qp --requires "$(find "$SCRATCH/rpm/RPMS" \
		-name "$package-$VERSION-*.rpm")" >"$SCRATCH/requires" || return
	cat "$SCRATCH/requires"
	for pattern in "$@"; do
		grep -qxE "$pattern" "$SCRATCH/requires" || return
	done
}

full_cases() {
	expect "lintian has nothing to say" lintian --allow-root \
		--fail-on error,warning "$SCRATCH"/*.changes
	expect "DKMS builds the modules" dkms_builds
	expect "the RPMs are made" rpms_are_made
	expect "libibverbs-mic: for one release of libibverbs" \
		rpm_requires libibverbs-mic 'libibverbs\(.*\) >= 44' \
		'libibverbs\(.*\) < 45'
	expect "mic-ivshmem-server: for Python with eventfd" \
		rpm_requires mic-ivshmem-server 'python3 >= 3\.10'
}
