# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# What every verb shares: messages, packages, the cache, long-running steps.

TREE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$TREE/build
VERB=$(basename "$0" .sh)
export LC_ALL=C.UTF-8
# A user's PATH has no modprobe, no ip and no tc.
export PATH=$PATH:/usr/sbin:/sbin

say() {
	printf '%s: %s\n' "$VERB" "$*" >&2
}

# die MESSAGE [NEXT-STEP]: every failure says what to do next.
die() {
	printf '%s: error: %s\n' "$VERB" "$1" >&2
	[ $# -lt 2 ] || printf '%s: what to do: %s\n' "$VERB" "$2" >&2
	exit 1
}

# The text between the two '# ---' lines of a verb's script is its help.
show_help() {
	sed -n '/^# ---/,/^# ---/{/^# ---/d;s/^# \{0,1\}//;p}' "$0"
}

[ -n "${MIC_CACHE:-}${XDG_CACHE_HOME:-}${HOME:-}" ] ||
	die "there is no folder for the cache, as HOME is not set" \
		"set HOME, or MIC_CACHE to a folder"
CACHE=${MIC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mic}

# usable_folder FOLDER WHICH: the kernel's build takes a folder with a space in its name
# for two, and QEMU one with a comma.
usable_folder() {
	case $1 in
	*[!A-Za-z0-9/._@+~-]*)
		die "the name of $2 has characters that kernel builds or QEMU can't have: $1" \
			"use one with letters, digits and /._@+~- only"
		;;
	esac
}

usable_folder "$TREE" "the tree's folder"
usable_folder "$CACHE" "the cache, \$MIC_CACHE,"

# need_value OPTION [VALUE]: an option that needs a value got one.
need_value() {
	[ $# -ge 2 ] || die "option $1 needs a value" "see ./run $VERB --help"
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "root is needed for: $*" "run this as root, or install sudo"
	fi
}

# ask_for_root: the password, before the label of a step is in its way.
ask_for_root() {
	[ "$(id -u)" -eq 0 ] || ! command -v sudo >/dev/null ||
		sudo -n true 2>/dev/null || sudo -v
}

missing_packages() {
	local package

	[ $# -gt 0 ] || return 0
	while read -r package; do
		# Spaces around it: there is a "not-installed", too.
		case " $(dpkg-query -W -f '${db:Status-Status} ' "$package" \
			2>/dev/null)" in
		*\ installed\ *) ;;
		*) echo "$package" ;;
		esac
	done < <(printf '%s\n' "$@" | sort -u)
}

# Seconds that apt waits for another one, of automatic upgrades for example.
APT_WAIT=300

# apt_update: the package lists anew; they have a lock that apt does not wait for.
apt_update() {
	local end=$((SECONDS + APT_WAIT)) output

	until output=$(as_root env LC_ALL=C apt-get -q update 2>&1); do
		echo "$output"
		[[ $output == *"Could not get lock"* ]] &&
			[ "$SECONDS" -lt "$end" ] || return 1
		sleep 5
	done
	echo "$output"
}

# apt_install PACKAGE...: and nothing that is only recommended.
apt_install() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
		-o DPkg::Lock::Timeout="$APT_WAIT" \
		--no-install-recommends install "$@"
}

OS_RELEASE=/etc/os-release

# os_release NAME: what the system says of itself.
os_release() {
	sed -n "s/^$1=//p" "$OS_RELEASE" | tr -d '"'
}

# need_bookworm: elsewhere the packages have other names, or other releases.
need_bookworm() {
	[ "$(os_release VERSION_CODENAME)" = bookworm ] ||
		die "this installs packages of Debian 12 (bookworm); here is $(os_release PRETTY_NAME)" \
			"use a machine, a virtual machine or a container with Debian 12; README.md, 'Install it', is for others, too"
}

# need_space FOLDER MIB: so much is free there.
need_space() {
	local free

	mkdir -p "$1"
	free=$(df --output=avail -m "$1" | tail -n 1)
	[ "$free" -ge "$2" ] ||
		die "$1 has $((free)) MiB free, $2 are needed" \
			"make room there, or clone to where there is some"
}

# need_packages PACKAGE...: install by apt what is not there yet.
need_packages() {
	local missing

	mapfile -t missing < <(missing_packages "$@")
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null ||
		die "these packages are missing: ${missing[*]}" \
			"install them; this script only knows apt (Debian 12)"
	need_bookworm
	ask_for_root
	step "apt-get update" apt_update
	step "installing ${missing[*]}" apt_install "${missing[@]}"
}

# step LABEL COMMAND...: run a command that takes a while. Its output goes
# to a log; what is seen is the label and the seconds. On failure the end
# of the log is shown and the script ends. A command in the background ignores
# Ctrl-C unless told otherwise, and would go on alone.
step() {
	local label=$1 log start shown=0 now pid status=0

	shift
	mkdir -p "$BUILD/logs"
	log=$(mktemp "$BUILD/logs/step-XXXXXX")
	start=$SECONDS
	(
		trap - INT
		"$@"
	) >"$log" 2>&1 </dev/null &
	pid=$!
	while kill -0 "$pid" 2>/dev/null; do
		now=$((SECONDS - start))
		if [ -t 2 ]; then
			printf '\r%s: %s ... %d s ' "$VERB" "$label" "$now" >&2
		elif [ $((now - shown)) -ge 15 ]; then
			shown=$now
			say "$label ... $now s"
		fi
		sleep 0.2
	done
	wait "$pid" || status=$?
	[ ! -t 2 ] || printf '\r\033[K' >&2
	if [ "$status" -ne 0 ]; then
		tail -n 40 "$log" >&2
		die "$label failed (status $status)" \
			"read the lines above; the whole log is $log"
	fi
	now=$((SECONDS - start))
	[ "$now" -lt 2 ] || say "$label: $now s"
	rm -f "$log"
}
