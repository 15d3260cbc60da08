# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
# For the *.test scripts here: running the test programs and the examples.

# Node 998 has an address where nobody answers.
# shellcheck disable=SC2034 # The scripts use them.
MIC_NODES=0=10.77.0.1,1=10.77.0.2,998=10.77.0.99
# shellcheck disable=SC2034
RXE_NODES=0=10.78.0.1,1=10.78.0.2,998=10.78.0.99

# program WHERE PROGRAM ARGUMENT...: its cases are cases here.
program() {
	local where=$1

	begin_program "$@"
	end_program "$where"
}

declare -A program_pid program_name

# begin_program WHERE PROGRAM ARGUMENT...: until end_program WHERE it runs beside others.
begin_program() {
	local where=$1 name=$2

	shift 2
	program_name[$where]=$name
	"$BIN/$name" "$@" >"$SCRATCH/$where.out" 2>&1 &
	program_pid[$where]=$!
}

# end_program WHERE: when it has ended, its cases are cases here.
end_program() {
	local where=$1 status=0 failed=0 line

	wait "${program_pid[$where]}" || status=$?
	while IFS= read -r line; do
		case $line in
		'ok '*) ok "$where: ${line#ok * - }" ;;
		'not ok '*)
			failed=1
			not_ok "$where: ${line#not ok * - }"
			;;
		1..*) ;;
		*) echo "# $line" ;;
		esac
	done <"$SCRATCH/$where.out"
	if ! grep -q '^1\.\.' "$SCRATCH/$where.out"; then
		not_ok "$where: ${program_name[$where]} ends early, with status $status"
	fi
	# 1 is that of cases that failed
	[ "$status" -eq "$failed" ] ||
		not_ok "$where: ${program_name[$where]} ends with status $status"
}

# example PROGRAM PORT [SERVER CLIENT]: its two sides, on nodes 1 and 0, or on
# those; the client until the server is there.
example() {
	local server status=0

	SCIF_NODE=${3-1} "$BIN/$1" server "$2" &
	server=$!
	SCIF_NODE=${4-0} wait_until 20 "$BIN/$1" client "${3-1}" "$2" ||
		status=1
	ends "$server" 20 && [ "$ended" -eq 0 ] || status=1
	return $status
}

# examples WHERE NODES
examples() {
	export SCIF_NODES=$2
	expect "$1: example of messages" example scif-ping-pong 3001
	expect "$1: example of remote memory" example scif-rma 3002
	if [ -n "${SCIF_TEST_MAPS-}" ]; then
		expect "$1: example of mapped memory" example scif-mmap 3003
	fi
	unset SCIF_NODES
}

# has_rxe: not on the debug kernel, where that is a case that is skipped.
has_rxe() {
	[ "$MIC_KERNEL" = debug ] || return 0
	skip "rxe" "rxe itself reads out of bounds, as KASAN tells"
	return 1
}

# skip_rxe_of_debug: the test ends here if there is no rxe.
skip_rxe_of_debug() {
	has_rxe || {
		finish
		exit
	}
}
