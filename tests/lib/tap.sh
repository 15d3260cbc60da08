# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For the *.test scripts: . "$(dirname "$0")/lib/tap.sh"
#
# They run as root in the VM, in the tree's folder; TAP goes to stdout.

BIN=${MIC_TEST_BIN:-$PWD/build/user/bin}
DEVICE=${MIC_TEST_DEVICE:-mic0}
PEER=${MIC_TEST_PEER:-mic1}
SLOW=${MIC_SLOW:-1}
SCRATCH=$(mktemp -d)
trap 'end_children; rm -rf "$SCRATCH"' EXIT

tap_cases=0
tap_failures=0

# ok NAME, not_ok NAME, skip NAME REASON
ok() {
	echo "ok $((++tap_cases)) - $1"
}

not_ok() {
	echo "not ok $((++tap_cases)) - $1"
	((++tap_failures))
}

skip() {
	echo "ok $((++tap_cases)) - $1 # SKIP $2"
}

note() {
	printf '# %s\n' "${*//$'\n'/$'\n# '}"
}

# note_file FILE: its last lines as remarks.
note_file() {
	tail -n "${2:-15}" "$1" | tr -d '\000' | sed 's/^/#   /'
}

# expect NAME COMMAND...: a case that passes if COMMAND does.
expect() {
	local name=$1 status=0

	shift
	"$@" >"$SCRATCH/expect" 2>&1 || status=$?
	if [ "$status" -eq 0 ]; then
		ok "$name"
	else
		not_ok "$name"
		note "status $status of: $*"
		note_file "$SCRATCH/expect"
	fi
	return "$status"
}

# cases_of COMMAND...: the cases of a program are cases here, after $where if that is
# set.
cases_of() {
	local line status=0 failed=0

	"$@" >"$SCRATCH/cases" || status=$?
	while IFS= read -r line; do
		case $line in
		'ok '*) ok "${where:+$where: }${line#ok * - }" ;;
		'not ok '*)
			failed=1
			not_ok "${where:+$where: }${line#not ok * - }"
			;;
		1..*) ;;
		'#'*) echo "$line" ;;
		*) echo "# $line" ;;
		esac
	done <"$SCRATCH/cases"
	grep -q '^1\.\.' "$SCRATCH/cases" ||
		not_ok "$1 ends early, with status $status"
	# 1 is that of cases that failed
	[ "$status" -eq "$failed" ] || not_ok "$1 ends with status $status"
}

# expect_failure NAME PATTERN COMMAND...: COMMAND fails, in time, and its
# output matches the extended regular expression PATTERN.
expect_failure() {
	local name=$1 pattern=$2 status=0

	shift 2
	timeout $((30 * SLOW)) "$@" >"$SCRATCH/expect" 2>&1 || status=$?
	if [ "$status" -ne 0 ] && [ "$status" -ne 124 ] &&
		grep -qiE -e "$pattern" "$SCRATCH/expect"; then
		ok "$name"
	else
		not_ok "$name"
		note "status $status of: $*; expected a failure with: $pattern"
		note_file "$SCRATCH/expect"
		return 1
	fi
}

# wait_until SECONDS COMMAND...: until COMMAND succeeds; for a minute at least, and once
# more after that: machines stand still at times.
wait_until() {
	local end=$((SECONDS + ($1 < 60 ? 60 : $1) * SLOW))

	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$end" ] || {
			"$@" >/dev/null 2>&1
			return
		}
		sleep 0.1
	done
}

# once_of TIMES COMMAND...: COMMAND succeeds once of so many times, and then no more.
once_of() {
	local i

	for ((i = 0; i < $1; i++)); do
		"${@:2}" && return
	done
	return 1
}

# settled COMMAND...: what it says of counters in sysfs when that stays: it may be 10 ms
# old, and older where the kernel's ticks are late.
settled() {
	local before now

	now=$("$@")
	until [ "$now" = "${before-}" ]; do
		before=$now
		sleep 0.1
		now=$("$@")
	done
	echo "$now"
}

ended=0

# ends PID SECONDS: the process ends in time; its status is in $ended.
ends() {
	ended=0
	wait_until "$2" process_gone "$1" || return 1
	wait "$1" || ended=$?
}

# ends_well PID SECONDS: with status 0.
ends_well() {
	ends "$1" "$2" && [ "$ended" -eq 0 ]
}

process_gone() {
	local state

	[ -e "/proc/$1/stat" ] || return 0
	read -r _ _ state _ <"/proc/$1/stat" || return 0
	[ "$state" = Z ]
}

# Processes that a test leaves behind; those it started itself.
end_children() {
	local pid

	for pid in $(jobs -p); do
		kill -KILL "$pid" 2>/dev/null
	done
	wait 2>/dev/null
}

# finish: the plan, and the script's exit status.
finish() {
	echo "1..$tap_cases"
	[ "$tap_failures" -eq 0 ]
}
