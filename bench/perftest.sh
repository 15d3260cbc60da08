# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Running one of the perftest programs between two devices, in the VM.

# The processors of bench/common.h.
SERVER_CPU=0
CLIENT_CPU=1

POLL_US=/sys/module/ib_mic/parameters/poll_us

perftest_port=18515
perftest_log=$(mktemp -d)

# await_listener PORT PID: PID listens on PORT. Connecting to find out would
# use up the one connection that it accepts.
await_listener() {
	local hex i

	hex=$(printf ':%04X' "$1")
	for ((i = 0; i < 600; i++)); do
		if cat /proc/net/tcp /proc/net/tcp6 |
			awk -v port="$hex" '$2 ~ port "$" && $4 == "0A" { seen = 1 }
				END { exit !seen }'; then
			return 0
		fi
		kill -0 "$2" 2>/dev/null || return 1
		sleep 0.05
	done
	return 1
}

# perftest PROGRAM DEVICE ARGUMENT...: PROGRAM from DEVICE0 to DEVICE1. What
# the client printed is in $perftest_log/client afterwards. The device
# mic-engine is mic with all requests executed by the kernel, mic-poll is mic
# with a thread that polls send queues.
perftest() {
	local status=0

	[[ $2 != *-poll ]] || echo 1000000 >"$POLL_US"
	perftest_of "$@" || status=$?
	[[ $2 != *-poll ]] || echo 0 >"$POLL_US"
	return $status
}

perftest_of() {
	local program=$1 device=${2%-*} direct=1 server client status=0
	local gid0 gid1

	[[ $2 != *-engine ]] || direct=0
	shift 2
	perftest_port=$((perftest_port + 1))
	gid0=$(gid_index "${device}0") && gid1=$(gid_index "${device}1") ||
		return
	MIC_DIRECT=$direct taskset -c "$SERVER_CPU" timeout -k 5 90 "$program" -F \
		-d "${device}1" -x "$gid1" -p "$perftest_port" "$@" \
		>"$perftest_log/server" 2>&1 </dev/null &
	server=$!
	if ! await_listener "$perftest_port" "$server"; then
		kill "$server" 2>/dev/null
		wait "$server"
		echo "the server did not start to listen" >"$perftest_log/client"
		return 1
	fi
	MIC_DIRECT=$direct taskset -c "$CLIENT_CPU" timeout -k 5 60 "$program" -F \
		-d "${device}0" -x "$gid0" -p "$perftest_port" "$@" 127.0.0.1 \
		>"$perftest_log/client" 2>&1 </dev/null &
	client=$!
	wait_both "$server" "$client" || status=$?
	return $status
}

# wait_first PID...: for the one that ends first, which is $pid then. Of who has ended
# some time before wait -n may know nothing any more.
wait_first() {
	for pid; do
		kill -0 "$pid" 2>/dev/null || {
			wait "$pid"
			return
		}
	done
	wait -n -p pid "$@"
}

# wait_both SERVER CLIENT: when one fails the other would wait for ever.
wait_both() {
	local pids=("$@") pid status

	while [ ${#pids[@]} -gt 0 ]; do
		status=0
		wait_first "${pids[@]}" || status=$?
		if [ "$status" -ne 0 ]; then
			for pid in "$@"; do
				kill "$pid" 2>/dev/null
			done
			wait "$@"
			return "$status"
		fi
		mapfile -t pids < <(printf '%s\n' "${pids[@]}" | grep -v -x "$pid")
	done
}

# perftest_row COLUMN PROGRAM DEVICE ARGUMENT...: the last row of the table
# that the client printed, as the array $row, or else why there is none, as
# $why. COLUMN is the one that counts: under load it may be 0 although
# everything went well. Tried three times.
perftest_row() {
	local column=$1 i

	shift
	for i in 1 2 3; do
		if perftest "$@"; then
			read -r -a row < <(grep -E '^ *[0-9]+( +[0-9.]+)+' \
				"$perftest_log/client" | tail -n 1)
			[[ ! ${row[column]:-0} =~ [1-9] ]] || return 0
		fi
		sleep "$i"
	done
	why="client: $(tail -n 3 "$perftest_log/client" | tr '\n' ' ')"
	why+="server: $(tail -n 3 "$perftest_log/server" | tr '\n' ' ')"
	return 1
}
