# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Judging one test by what it printed (TAP) and how it ended; counting.

passed=0 failed=0 skipped=0

# What judge_test judges ran on this kernel, which expected skips may name.
tap_kernel=${MIC_KERNEL:-6.1}

# load_expected_skips FILE...: lines "TEST/CASE  REASON", with glob patterns.
# One that holds on one kernel only begins with "@KERNEL ", one that holds on
# the others with "@!KERNEL ".
load_expected_skips() {
	expected_skips=()
	mapfile -t expected_skips < <(
		cat "$@" 2>/dev/null |
			sed -E '/^[[:space:]]*(#|$)/d; s/(\t| {2,}).*$//'
	)
}

is_expected_skip() {
	local pattern

	for pattern in "${expected_skips[@]}"; do
		case $pattern in
		"@!$tap_kernel "*) continue ;;
		"@$tap_kernel "* | "@!"*) pattern=${pattern#* } ;;
		@*) continue ;;
		esac
		# shellcheck disable=SC2053 # It is meant as a pattern.
		[[ $1 != $pattern ]] || return 0
	done
	return 1
}

# judge_test NAME STATUS SECONDS LOG: one line of progress, and more on
# what failed or was skipped. STATUS is the test's exit status, or a word.
judge_test() {
	local name=$1 status=$2 seconds=$3 log=$4
	local passes=0 bad=() skips=() plan='' cases=0 problems=()

	parse_tap "$log"
	[ "${plan:-0}" -eq "$cases" ] ||
		problems+=("it planned ${plan:-no} cases and reported $cases")
	[ ! -e "${log%.log}.kmsg" ] ||
		problems+=("the kernel reported something: ${log%.log}.kmsg")
	case $status in
	0) [ "$cases" -gt 0 ] || [ -n "$plan" ] || passes=1 ;;
	77)
		if [ "$cases" -gt 0 ]; then
			problems+=("it had cases and says that it was skipped")
		else
			skips+=("|$(tail -n 1 "$log")")
		fi
		;;
	124 | 137) problems+=("it was ended: over its time limit") ;;
	stuck) problems+=("it left the VM unusable") ;;
	died) problems+=("the VM died or hung") ;;
	*) [ ${#bad[@]} -gt 0 ] || problems+=("its exit status is $status") ;;
	esac
	judge_skips
	report_test
}

# parse_tap LOG: fills passes, bad, skips, plan and cases of judge_test.
parse_tap() {
	local line
	local case='^(not )?ok( +[0-9]+)?( +-)? *(.*)$'
	local skip='^(.*)#[[:space:]]*[Ss][Kk][Ii][Pp][A-Za-z]*[[:space:]]*(.*)$'

	while IFS= read -r line; do
		line=${line%$'\r'}
		if [[ $line =~ ^1\.\.([0-9]+) ]]; then
			plan=${BASH_REMATCH[1]}
			[ "$plan" -ne 0 ] || skips+=("|${line#*[Ss][Kk][Ii][Pp]}")
		elif [[ $line == "Bail out!"* ]]; then
			bad+=("$line")
		elif [[ $line =~ $case ]]; then
			cases=$((cases + 1))
			if [[ $line == not* ]]; then
				bad+=("$line")
			elif [[ ${BASH_REMATCH[4]} =~ $skip ]]; then
				skips+=("${BASH_REMATCH[1]}|${BASH_REMATCH[2]}")
			else
				passes=$((passes + 1))
			fi
		fi
	done < <(grep -a -E '^(not )?ok|^1\.\.|^Bail out!' "$log")
}

# remarks LOG: each failed case, behind what was said since the case before it.
remarks() {
	tr -d '\r' <"$1" | awk '
		/^ok/ { n = 0; next }
		/^(not ok|Bail out!)/ {
			for (i = n > 10 ? n - 10 : 0; i < n; i++)
				print said[i]
			print
			n = 0
			next
		}
		{ said[n++] = $0 }'
}

# A skip that nobody expected is a failure.
judge_skips() {
	local entry full reason good=()

	for entry in "${skips[@]}"; do
		full=$name
		reason=${entry##*|}
		entry=${entry%|*}
		entry=${entry%"${entry##*[![:space:]]}"}
		[ -z "$entry" ] || full=$name/$entry
		if is_expected_skip "$full"; then
			good+=("skip $full: $reason")
		else
			problems+=("unexpected skip of $full: $reason")
		fi
	done
	skips=("${good[@]}")
}

report_test() {
	local failures=$((${#bad[@]} + ${#problems[@]})) verdict=ok

	passed=$((passed + passes))
	failed=$((failed + failures))
	skipped=$((skipped + ${#skips[@]}))
	[ "$failures" -eq 0 ] || verdict=FAIL
	printf '%-4s %s: %d passed, %d failed, %d skipped (%s s)\n' \
		"$verdict" "$name" "$passes" "$failures" "${#skips[@]}" "$seconds"
	[ ${#skips[@]} -eq 0 ] || printf '     %s\n' "${skips[@]}"
	if [ "$failures" -eq 0 ]; then
		remember_passed "$name" "$passes" "${#skips[@]}"
		return
	fi
	forget_passed "$name"
	[ ${#bad[@]} -eq 0 ] || printf '     %s\n' "${bad[@]}"
	[ ${#problems[@]} -eq 0 ] || printf '     %s\n' "${problems[@]}"
	note_failure
	echo "     the end of $log:"
	tail -n 25 "$log" | sed 's/^/     | /'
	[ ! -e "${log%.log}.kmsg" ] || show_kmsg "${log%.log}.kmsg"
}

# For the end of the run, where all that failed is told once more.
note_failure() {
	[ -n "${MIC_TEST_FAILED-}" ] || return 0
	{
		remarks "$log"
		[ ${#problems[@]} -eq 0 ] || printf '%s\n' "${problems[@]}"
	} | tail -n 40 | sed "s/^/$name | /" >>"$MIC_TEST_FAILED"
}

show_kmsg() {
	echo "     from the kernel log:"
	scan_log "$1" >"$1.reports"
	grep -B 3 -A 15 -F -f "$1.reports" "$1" | head -n 50 | sed 's/^/     | /'
	rm -f "$1.reports"
}

# judge_rig NAME PROBLEM: a failure that belongs to no test.
judge_rig() {
	failed=$((failed + 1))
	printf 'FAIL %s: %s\n' "$1" "$2"
	[ -z "${MIC_TEST_FAILED-}" ] || echo "$1 | $2" >>"$MIC_TEST_FAILED"
}
