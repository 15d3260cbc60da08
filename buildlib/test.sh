#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run test [--list] [--resume] [full] [--kernel 6.1|6.12|debug] [NAME...]
#
# Builds everything, runs the tests in virtual machines, and ends with what failed and
# "N passed, N failed, N skipped"; the exit status is 0 only if nothing
# failed. Without an argument: the default set; with full: all; with NAMEs
# (patterns): those. --list only lists them. --resume goes on with an earlier run:
# what has passed on that kernel, in the tree as it is now, is not run again.
#
# A test is an executable NAME.test in tests, libscif/tests, pyverbs-tests or
# buildlib/tests with comment lines at its top:
#   # about: what it tests
#   # set: default, or full
#   # timeout: SECONDS, multiplied by 4 on the debug kernel
#   # vm: options for ./run vm, or "none" for a test that runs on the host,
#     or "alone" for one that runs there with nothing beside it
#   # packages: Debian packages that it needs; @default: and what the tests of the
#     default set need
#   # vm-packages: those that the VM has and the host has not, as they have services
# It runs in the tree's folder and prints TAP ("ok 1 - name",
# "not ok 2 - name", "ok 3 - name # SKIP reason", and the plan), or nothing of
# the kind and is judged by its exit status (0 passed, 77 skipped: its last line
# says why). In the VM it has $MIC_TREE, $MIC_KERNEL, $MIC_SLOW (4 on the debug
# kernel), $TEST_NAME, $MIC_OUT (what it puts in $MIC_OUT/$TEST_NAME.* is kept
# in build/test-logs), the variables MIC_TEST_* of ./run test, and
# . "$MIC_TREE/buildlib/guest.sh" for helpers. What it starts is killed
# afterwards, and mic0 and mic1 are made again if it changed them.
#
# A skip is a failure unless the file expected-skips beside it says so in
# a line "TEST/CASE  REASON" (patterns); "@debug " or "@!debug " before it: only
# on that kernel, or on the others. Logs: build/test-logs/NAME.log
# ---
set -eu

# shellcheck source=buildlib/common.sh
. "$(dirname "$(readlink -f "$0")")/common.sh"
# shellcheck source=buildlib/logscan.sh
. "$TREE/buildlib/logscan.sh"
# shellcheck source=buildlib/tap.sh
. "$TREE/buildlib/tap.sh"
# shellcheck source=buildlib/lane.sh
. "$TREE/buildlib/lane.sh"
# shellcheck source=buildlib/resume.sh
. "$TREE/buildlib/resume.sh"
# shellcheck source=buildlib/vm-packages.sh
. "$TREE/buildlib/vm-packages.sh"

LOGS=$BUILD/test-logs
set=default kernel='' list='' resume='' patterns=()
test_dirs=("$TREE/tests" "$TREE/libscif/tests" "$TREE/pyverbs-tests"
	"$TREE/buildlib/tests")
[ -z "${MIC_TEST_DIR:-}" ] || test_dirs=("$(readlink -f "$MIC_TEST_DIR")")
cd "$TREE"

while [ $# -gt 0 ]; do
	case $1 in
	full) set=full ;;
	--kernel)
		need_value "$@"
		kernel=$2
		shift
		;;
	--list) list=1 ;;
	--resume) resume=1 ;;
	-h | --help)
		show_help
		exit 0
		;;
	-*) die "unknown option $1" "see ./run test --help" ;;
	*) patterns+=("$1") ;;
	esac
	shift
done

declare -A file_of limit_of vm_of
names=()

declare -A header_of

# read_headers FILE...: all of them in one go, as tests are many.
read_headers() {
	local file key value

	while IFS=$'\t' read -r file key value; do
		header_of[$file $key]=${header_of[$file $key]:-$value}
	done < <(awk 'FNR <= 40 && sub(/^# /, "") && match($0, /^[a-z-]+: */) {
		key = $0
		sub(/:.*/, "", key)
		print FILENAME "\t" key "\t" substr($0, RLENGTH + 1)
	}' "$@")
}

# header FILE KEY DEFAULT: a comment line's value.
header() {
	echo "${header_of[$1 $2]:-$3}"
}

is_wanted() {
	local pattern

	for pattern in "${patterns[@]}"; do
		# shellcheck disable=SC2053 # It is meant as a pattern.
		[[ $1 != $pattern ]] || return 0
	done
	[ ${#patterns[@]} -eq 0 ] || return 1
	[ "$set" = full ] || [ "$(header "$2" set default)" = default ]
}

# names_some PATTERN: it matches a test that will run.
names_some() {
	local name

	for name in "${names[@]}"; do
		# shellcheck disable=SC2053 # A pattern.
		[[ $name != $1 ]] || return 0
	done
	return 1
}

# packages_of FILE: the packages that a test needs
packages_of() {
	local file packages dir

	packages=$(header "$1" packages '')
	if [[ " $packages " == *" @default "* ]]; then
		packages=${packages/@default/}
		for dir in "${test_dirs[@]}"; do
			for file in "$dir"/*.test; do
				[ "$(header "$file" set default)" != default ] ||
					packages+=" $(header "$file" packages '')"
			done
		done
	fi
	echo "$packages"
}

collect_tests() {
	local dir file name pattern files

	for dir in "${test_dirs[@]}"; do
		files=("$dir"/*.test)
		[ -e "${files[0]}" ] || continue
		read_headers "${files[@]}"
		for file in "${files[@]}"; do
			name=${file##*/}
			name=${name%.test}
			is_wanted "$name" "$file" || continue
			[ -x "$file" ] ||
				die "$file is not executable" \
					"chmod +x $file, or take a clone's"
			[ -z "${file_of[$name]:-}" ] ||
				die "two tests are called $name" \
					"rename $file or ${file_of[$name]}"
			names+=("$name")
			file_of[$name]=$file
			limit_of[$name]=$(header "$file" timeout 60)
			vm_of[$name]=$(header "$file" vm '')
		done
	done
	[ ${#names[@]} -gt 0 ] || [ ${#patterns[@]} -gt 0 ] ||
		die "there are no tests in ${test_dirs[*]}" \
			"are they executable, as in a clone?"
	for pattern in "${patterns[@]}"; do
		names_some "$pattern" ||
			die "no test is called $pattern" \
				"see ./run test --list full"
	done
}

# install_packages: what the tests need.
install_packages() {
	local name words packages=() vm_packages=()

	for name in "${names[@]}"; do
		read -r -a words <<<"$(packages_of "${file_of[$name]}")"
		packages+=("${words[@]}")
		read -r -a words <<<"$(header "${file_of[$name]}" vm-packages '')"
		vm_packages+=("${words[@]}")
	done
	[ ${#packages[@]} -eq 0 ] || need_packages "${packages[@]}"
	[ ${#vm_packages[@]} -eq 0 ] || need_vm_packages "${vm_packages[@]}"
}

list_tests() {
	local name

	for name in "${names[@]}"; do
		printf '%-24s %s\n' "$name" "$(header "${file_of[$name]}" about '')"
	done
}

run_host_test() {
	local name=$1 start=$SECONDS status=0 log=$LOGS/$1.log

	# in the background, so that a signal to this script ends it, too
	timeout --kill-after=30 "${limit_of[$name]}" "${file_of[$name]}" \
		>"$log" 2>&1 </dev/null &
	host_pid=$!
	wait "$host_pid" || status=$?
	host_pid=''
	judge_test "$name" "$status" $((SECONDS - start)) "$log"
}

# group_kernel OPTION...: which kernel a VM's options ask for.
group_kernel() {
	local result=6.1

	while [ $# -gt 0 ]; do
		[ "$1" != --kernel ] || result=$2
		shift
	done
	echo "$result"
}

# run_vm_tests OPTIONS NAME...: until all have run, in one VM if it lives. Of tests
# that two share, those that the other has not begun.
run_vm_tests() {
	local options=$1 queue=$shared kernel_name

	shift
	if [ -z "$shared" ] || [ -n "$options" ]; then
		queue=$(make_queue "$@")
		own_queue=$queue
	fi
	read -r -a options <<<"$options ${kernel:+--kernel $kernel}"
	kernel_name=$(group_kernel "${options[@]}")
	tap_kernel=$kernel_name
	[[ " ${options[*]} " == *" --no-modules "* ]] ||
		"$TREE/buildlib/build.sh" --kernel "$kernel_name"
	while queue_has_some; do
		run_one_vm
	done
	rmdir "$queue" 2>/dev/null || true
}

# One VM: runs tests of the queue until that is empty or the VM is of no use.
run_one_vm() {
	local word name status seconds current='' limit=300 fd vm_status=0
	local ran=() log verdict

	# A folder of its own: another ./run test may run beside this one.
	work=$(mktemp -d "$LOGS/work-XXXXXX")
	log=$work/vm.log
	verdict=$work/verdict
	for name in $(queue_names); do
		limit=$((limit + limit_of[$name] + 30))
	done
	[ "$kernel_name" != debug ] || limit=$((limit * 4))
	exec {fd}< <(exec "$TREE/buildlib/vm.sh" --no-build "${options[@]}" \
		--timeout "$limit" --out "$work" --verdict "$verdict" -- \
		"$TREE/buildlib/guest/runner.sh" 2>"$log")
	vm_pid=$!
	while read -r -u "$fd" word name status seconds; do
		case $word in
		@ready)
			give_test "$name"
			;;
		@end)
			keep_logs "$name"
			judge_test "$name" "$status" "$seconds" "$LOGS/$name.log"
			ran+=("$name")
			current=''
			;;
		*) echo "$word $name $status $seconds" ;;
		esac
	done
	wait "$vm_pid" || vm_status=$?
	vm_pid=''
	exec {fd}<&-
	judge_vm
}

# give_test N: the VM's Nth is the queue's next, or nothing: it is done.
give_test() {
	local line=''

	if take_test; then
		line="$current ${limit_of[$current]} ${file_of[$current]}"
	fi
	echo "$line" >"$work/next"
	mv "$work/next" "$work/next-$1"
}

# After a VM's end: was it as it should be?
judge_vm() {
	local faults

	faults=$(cat "$verdict" 2>/dev/null || echo "died")
	if [[ " $faults " == *" emulator "* ]] && [ $repeats -lt 3 ]; then
		repeats=$((repeats + 1))
		echo "     the emulator failed in ${current:-the VM}; again"
		[ -z "$current" ] || return_test
		current='' faults=''
	elif [ -n "$current" ]; then
		keep_logs "$current"
		judge_test "$current" died - "$LOGS/$current.log"
		faults+=" died"
	elif [ ${#ran[@]} -eq 0 ]; then
		while take_test; do
			judge_rig "$current" "not run: the VM did not come up"
		done
		current=''
	fi
	# A report in a test's time is that test's failure already.
	if [ "$faults" = reports ] && has_kmsg; then
		faults=''
	fi
	if [ -n "$faults" ] && [ -z "$current" ] && [ "$vm_status" -ne 3 ]; then
		judge_rig "the VM" "$faults"
	fi
	if [ -n "$faults" ]; then
		forget_passed "${ran[@]}"
		sed 's/^/     | /' "$log"
	fi
	rm -r "$work"
	work=''
}

# keep_logs NAME: from the VM's folder to where the user finds them.
keep_logs() {
	local file

	rm -rf "${LOGS:?}/$1" "$LOGS/$1".*
	for file in "$work/$1" "$work/$1".*; do
		[ ! -e "$file" ] || mv "$file" "$LOGS/"
	done
}

has_kmsg() {
	local name

	for name in "${ran[@]}"; do
		[ ! -e "$LOGS/$name.kmsg" ] || return 0
	done
	return 1
}

# shellcheck disable=SC2317 # The trap below calls it.
end_test() {
	[ -z "$vm_pid" ] || kill "$vm_pid" 2>/dev/null || true
	[ -z "$host_pid" ] || kill "$host_pid" 2>/dev/null || true
	kill_lane
	[ -n "${MIC_TEST_QUEUE:-}" ] || [ -z "$shared" ] || rm -rf "$shared"
	[ -z "$own_queue" ] || rm -rf "$own_queue"
	[ -z "$failures" ] || rm -f "$failures"
	[ -z "$work" ] || rm -rf "$work"
}

# Groups of tests with the same options, each in the order of the tests. Some of
# them run beside those of one machine: see lane.sh.
run_groups() {
	local group name groups=() members=() beside=()
	declare -A seen

	for name in "${names[@]}"; do
		[ -n "$shared" ] || rm -f "$LOGS/$name".{log,kmsg}
		[ -n "${vm_of[$name]}" ] || members+=("$name")
		[[ -n ${seen[${vm_of[$name]}.]:-} ]] || groups+=("${vm_of[$name]}")
		seen[${vm_of[$name]}.]=1
	done
	if [ -z "$shared" ] && wants_lane "${members[@]}"; then
		"$TREE/buildlib/build.sh" --kernel "${kernel:-6.1}"
		for name in "${names[@]}"; do
			! goes_beside "${vm_of[$name]}" || beside+=("$name")
		done
		begin_lane ${#members[@]} "${members[@]}" "${beside[@]}"
		run_vm_tests '' "${members[@]}"
		end_lane
		seen['.']=''
	fi
	for group in "${groups[@]}"; do
		[ -n "${seen[$group.]}" ] || continue
		[ ${#beside[@]} -eq 0 ] || ! goes_beside "$group" || continue
		[ -z "$shared" ] || [ -n "$group" ] || continue
		run_group "$group"
	done
	[ -z "$shared" ] || run_group ''
}

# run_group OPTIONS: the tests that have them.
run_group() {
	local name members=()

	for name in "${names[@]}"; do
		[ "${vm_of[$name]}" != "$1" ] || members+=("$name")
	done
	case $1 in
	none | alone)
		"$TREE/buildlib/build.sh" --kernel "${kernel:-6.1}"
		for name in "${members[@]}"; do
			run_host_test "$name"
		done
		;;
	*) run_vm_tests "$1" "${members[@]}" ;;
	esac
}

# What failed comes last, with its remarks: a long output may be read from its end.
summary() {
	if [ -z "$shared" ] && [ -s "$MIC_TEST_FAILED" ]; then
		echo "what failed:"
		cat "$MIC_TEST_FAILED"
	fi
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" -eq 0 ] || exit 1
	exit 0
}

vm_pid='' host_pid='' work='' repeats=0 own_queue='' failures='' shared=${MIC_TEST_QUEUE:-}
trap 'end_test' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

collect_tests
if [ -n "$list" ]; then
	list_tests
	exit 0
fi
begun_with=$(tree_state)
[ -z "$resume" ] || leave_out_passed
install_packages
load_expected_skips "${test_dirs[@]/%//expected-skips}"
mkdir -p "$LOGS"
if [ -z "$shared" ]; then
	failures=$(mktemp "$LOGS/failed-XXXXXX")
	export MIC_TEST_FAILED=$failures
fi
# In braces: read as a whole, so that editing this file meanwhile does no harm.
{
	run_groups
	summary
}
