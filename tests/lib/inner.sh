# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Tests that run tests: each is a case, judged as ./run test judges it: by its
# exit status, its cases, its plan, and its skips, which have to be expected ones;
# and afterwards the devices are made again if it changed them. After lib/tap.sh.

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"
# shellcheck source=buildlib/tap.sh
. buildlib/tap.sh
load_expected_skips {tests,libscif/tests,pyverbs-tests}/expected-skips

devices=$(devices_state)

# inner NAME FILE COMMAND...: what COMMAND does, which runs the test in FILE, is
# the case NAME; its skips are remarks.
inner() {
	local name=$1 file=$2

	shift 2
	expect "$name" judged "$(basename "$file" .test)" "$@"
	restore_devices "$devices" >"$SCRATCH/devices" 2>&1 || {
		not_ok "the devices after it"
		note_file "$SCRATCH/devices"
	}
	sed -n 's/^     skip /# skipped: /p' "$SCRATCH/expect"
}

judged() {
	local name=$1 log=$SCRATCH/$1.log start=$SECONDS status=0

	shift
	"$@" >"$log" 2>&1 || status=$?
	failed=0
	judge_test "$name" "$status" $((SECONDS - start)) "$log"
	grep -a -B 6 -A 6 '^not ok' "$log" | head -n 60
	rm -f "$log"
	[ "$failed" -eq 0 ]
}
