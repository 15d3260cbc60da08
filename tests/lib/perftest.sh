# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Programs with a server and a client, between the two devices. After
# lib/tap.sh. Among several nodes the server is on node 1.

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"

SERVER_ADDRESS=${MIC_TEST_SERVER:-10.77.0.2}
CLIENT_ADDRESS=${MIC_TEST_CLIENT:-10.77.0.1}
server_side=()
# shellcheck source=tests/lib/machines.sh
[ "${MIC_NODES:-1}" -eq 1 ] || . "${BASH_SOURCE[0]%/*}/machines.sh"

listening_tcp() {
	"${server_side[@]}" ss -Hltn "sport = :$1" | grep -q .
}

# listening_cm [FUNCTION]: the state comes before the service is there, and perftest's
# client crashes if it is refused. So the server has to sleep, too, all of its threads;
# one of them in this function of the kernel.
listening_cm() {
	"${server_side[@]}" bash -c '
		listener=$(rdma resource show cm_id | grep -m1 "state LISTEN") &&
			[[ $listener =~ \ pid\ ([0-9]+)\  ]] &&
			cd /proc/"${BASH_REMATCH[1]}"/task &&
			! grep -Ev "^[0-9]+ \(.*\) S " */stat &&
			grep -x "$1" */wchan' - "${1:-.*}" >/dev/null
}

# listening_rsocket: likewise, of who never sleeps, as rstream looks for a connection
# again and again; that is kept for it from then on.
listening_rsocket() {
	"${server_side[@]}" rdma resource show cm_id | grep -q "state LISTEN"
}

# Seconds until a program hangs.
PAIR_LIMIT=${PAIR_LIMIT:-60}

# run_pair WAIT SERVER-COMMAND -- CLIENT-COMMAND: both must end well and in
# time. WAIT is a command that tells when the server is ready. Their output
# is in $SCRATCH/server and $SCRATCH/client. A server whose client has failed may wait for
# another one: it is ended.
run_pair() {
	local wait=$1 command=() server client=0 status=0

	shift
	while [ "$1" != -- ]; do
		command+=("$1")
		shift
	done
	shift
	"${server_side[@]}" timeout --kill-after=5 $((PAIR_LIMIT * SLOW)) \
		"${command[@]}" \
		>"$SCRATCH/server" 2>&1 &
	server=$!
	# shellcheck disable=SC2086 # A command with arguments.
	wait_until 20 $wait || note "the server does not listen"
	timeout --kill-after=5 $((PAIR_LIMIT * SLOW)) "$@" \
		>"$SCRATCH/client" 2>&1 || client=$?
	[ "$client" -eq 0 ] || wait_until 60 process_gone "$server" ||
		kill "$server"
	wait "$server" || status=$?
	[ "$((client + status))" -ne 0 ] || return 0
	note_file "$SCRATCH/client" 12
	note_file "$SCRATCH/server" 5
	# Last, where a test that fails shows it.
	echo "the client ends with $client: $*"
	echo "the server ends with $status: ${command[*]}"
	return 1
}

# run_perftest PROGRAM OPTION...: both sides. With -R they agree to begin, and then the
# server listens and the client connects, whoever is first; the client crashes if it is
# refused, and the kernel says so. Then they are run again; beside others the server was
# late in up to one run of 25, and three times in a row.
run_perftest() {
	local program=$1 ready="listening_tcp 18515" tries=1 status=1

	shift
	case " $* " in
	*' -R '*)
		ready="listening_cm ucma_get_event"
		tries=5
		sysctl -q debug.exception-trace=0
		;;
	esac
	while [ "$status" -ne 0 ] && [ "$tries" -gt 0 ]; do
		tries=$((tries - 1))
		status=0
		run_pair "$ready" \
			"$program" -d "$PEER" -x "$peer_gid" -F "$@" -- \
			"$program" -d "$DEVICE" -x "$device_gid" -F "$@" \
			"$SERVER_ADDRESS" || status=1
		# 8, or 1 of UD: nobody listens, or not any more, if an answer
		# that came too late was asked for again
		grep -q -e 'CM_EVENT_REJECTED; error: 8' \
			-e 'CM_EVENT_UNREACHABLE; error: 1' \
			"$SCRATCH/client" || break
	done
	sysctl -q debug.exception-trace=1
	return "$status"
}

# perftest ROWS PROGRAM OPTION...: run it, and find that many result rows. A latency
# is "inf" where perftest could not tell how fast the clock runs: it measures that
# before each row, and on a busy host gives up.
perftest() {
	local rows=$1 found

	shift
	run_perftest "$@" || return 1
	found=$(grep -c -E '^ *[0-9]+([[:space:]]+([0-9.]+|inf)){4}' \
		"$SCRATCH/client")
	[ "$found" -eq "$rows" ] || {
		echo "$found result rows instead of $rows"
		cat "$SCRATCH/client"
		return 1
	}
}

device_gid=$(gid_index "$DEVICE")
peer_gid=$("${server_side[@]}" bash -c \
	"$(declare -f gid_index); gid_index $PEER")
