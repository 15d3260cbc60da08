# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# The 6.12 kernel of bookworm-backports. The machine's own package sources
# stay as they are: apt gets a private list, and the image, which as an
# installed package would become the machine's kernel at its next boot, is
# only unpacked into the cache.

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
	local mirror keyring suite

	need_packages debian-archive-keyring
	mirror=$(distribution_mirror)
	[ -n "$mirror" ] || die "no package source of bookworm is configured" \
		"the 6.12 kernel needs Debian 12 with its main archive"
	mkdir -p "$BACKPORTS_DIR/lists/partial"
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	# What the headers need beside is in the distribution itself.
	for suite in bookworm bookworm-backports; do
		echo "deb [signed-by=$keyring] $mirror $suite main"
	done >"$BACKPORTS_DIR/sources.list"
	step "reading the package list of bookworm-backports" \
		as_root_backports apt-get update
	KREL=$(apt_backports apt-cache pkgnames linux-image-6.12 |
		sed -n 's/^linux-image-\(6\.12[0-9.]*+[^-]*-amd64\)$/\1/p' |
		sort -V | tail -n 1)
	[ -n "$KREL" ] || die "bookworm-backports has no 6.12 kernel" \
		"look at: apt_backports in buildlib/kernel-backports.sh"
	step "installing the headers of $KREL" as_root_backports \
		apt-get -y -o DPkg::Lock::Timeout="$APT_WAIT" \
		--no-install-recommends install "linux-headers-$KREL"
	rm -rf "$BACKPORTS_DIR/root" "$BACKPORTS_DIR/deb"
	mkdir -p "$BACKPORTS_DIR/deb"
	step "fetching the image of $KREL" unpack_backports
	depmod -b "$BACKPORTS_DIR/root" "$KREL"
	echo "$KREL" >"$BACKPORTS_DIR/release"
}

as_root_backports() {
	as_root env DEBIAN_FRONTEND=noninteractive \
		bash -c "$(declare -f apt_backports)"'
			BACKPORTS_DIR=$1; shift; apt_backports "$@"' - \
		"$BACKPORTS_DIR" "$@"
}

unpack_backports() {
	cd "$BACKPORTS_DIR/deb" &&
		apt_backports apt-get download "linux-image-$KREL" &&
		dpkg-deb -x linux-image-*.deb "$BACKPORTS_DIR/root" &&
		rm -rf "$BACKPORTS_DIR/deb"
}

kernel_select_backports() {
	KREL=$(cat "$BACKPORTS_DIR/release" 2>/dev/null || true)
	if [ -z "$KREL" ] || [ ! -e "/usr/src/linux-headers-$KREL/Makefile" ]; then
		fetch_backports
	fi
	KROOT=$BACKPORTS_DIR/root
	KIMAGE=$KROOT/boot/vmlinuz-$KREL
	KDIR=/usr/src/linux-headers-$KREL
}
