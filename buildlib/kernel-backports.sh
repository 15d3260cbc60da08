# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The 6.12 kernel of bookworm-backports. The machine's own package sources
# stay as they are: apt gets a private list. Nothing of it is installed, as the headers
# depend on the image, which would become the machine's kernel at its next boot; both
# are only unpacked into the cache.

BACKPORTS_DIR=$CACHE/kernel-6.12

apt_backports() {
	local tool=$1

	shift
	"$tool" -q \
		-o Dir::Etc::sourcelist="$BACKPORTS_DIR/sources.list" \
		-o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$BACKPORTS_DIR/lists" \
		-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o APT::Sandbox::User=root "$@"
}

# The mirror that this machine uses for the distribution itself.
distribution_mirror() {
	apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' \
		'Identifier: Packages' |
		awk '$1 == "bookworm" && $2 == "main" { print $3; exit }'
}

fetch_backports() {
	local mirror keyring

	need_packages debian-archive-keyring
	mirror=$(distribution_mirror)
	[ -n "$mirror" ] || die "no package source of bookworm is configured" \
		"the 6.12 kernel needs Debian 12 with its main archive"
	mkdir -p "$BACKPORTS_DIR/lists/partial"
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	echo "deb [signed-by=$keyring] $mirror bookworm-backports main" \
		>"$BACKPORTS_DIR/sources.list"
	ask_for_root
	step "reading the package list of bookworm-backports" \
		as_root_backports apt-get update
	KREL=$(apt_backports apt-cache pkgnames linux-image-6.12 |
		sed -n 's/^linux-image-\(6\.12[0-9.]*+[^-]*-amd64\)$/\1/p' |
		sort -V | tail -n 1)
	[ -n "$KREL" ] || die "bookworm-backports has no 6.12 kernel" \
		"look at: apt_backports in buildlib/kernel-backports.sh"
	rm -rf "$BACKPORTS_DIR/release" "$BACKPORTS_DIR/root" "$BACKPORTS_DIR/deb"
	mkdir -p "$BACKPORTS_DIR/deb"
	step "fetching $KREL" unpack_backports
	depmod -b "$BACKPORTS_DIR/root" "$KREL"
	echo "$KREL" >"$BACKPORTS_DIR/release"
}

as_root_backports() {
	as_root env DEBIAN_FRONTEND=noninteractive \
		bash -c "$(declare -f apt_backports)"'
			BACKPORTS_DIR=$1; shift; apt_backports "$@"' - \
		"$BACKPORTS_DIR" "$@"
}

# The image, and what modules are built with. One file says where another one is.
unpack_backports() {
	local version=${KREL%-amd64} deb

	cd "$BACKPORTS_DIR/deb" &&
		apt_backports apt-get download "linux-image-$KREL" \
			"linux-headers-$KREL" "linux-headers-$version-common" \
			"linux-kbuild-$version" || return
	for deb in *.deb; do
		dpkg-deb -x "$deb" "$BACKPORTS_DIR/root" || return
	done
	sed -i "s|^include /usr/src/|include $BACKPORTS_DIR/root/usr/src/|" \
		"$BACKPORTS_DIR/root/usr/src/linux-headers-$KREL/Makefile" &&
		rm -rf "$BACKPORTS_DIR/deb"
}

# have_backports: it is there, and KREL is its release.
have_backports() {
	KREL=$(cat "$BACKPORTS_DIR/release" 2>/dev/null || true)
	[ -n "$KREL" ] && [ -e "$KROOT/usr/src/linux-headers-$KREL/Makefile" ]
}

kernel_select_backports() {
	local lock

	# of the headers' tools
	need_packages libelf1 pahole
	KROOT=$BACKPORTS_DIR/root
	if ! have_backports; then
		mkdir -p "$BACKPORTS_DIR"
		exec {lock}>"$BACKPORTS_DIR/lock"
		flock "$lock"
		have_backports || fetch_backports
		exec {lock}>&-
	fi
	KIMAGE=$KROOT/boot/vmlinuz-$KREL
	KDIR=$KROOT/usr/src/linux-headers-$KREL
}
