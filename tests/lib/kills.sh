# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Processes of lib/traffic.sh are killed at random points, $ROUNDS times each, and then
# nothing may be left but $baseline.

RANDOM=${MIC_TEST_SEED:-4711}

random_nap() {
	sleep "0.$(printf %03d $((RANDOM % 300)))"
}

end_requester() {
	kill -KILL "$requester"
	wait "$requester" 2>/dev/null
	# The other one sees the socket close, and its device alive.
	wait_until 60 responder_gone
}

end_responder() {
	kill_responder
	traffic_ends "$GONE"
}

# Whose end is first is left to chance.
end_both() {
	local killing

	kill_responder 2>/dev/null &
	killing=$!
	sleep "0.$(printf %03d $((RANDOM % 150)))"
	kill -KILL "$requester" 2>/dev/null
	wait "$requester" "$killing" 2>/dev/null
	wait_until 60 responder_gone
}

# Nobody is killed.
works() {
	start_traffic --rounds 20 && traffic_ends 0 && nothing_left "$baseline"
}

# kill_rounds VICTIM ARGUMENT...
kill_rounds() {
	local victim=$1 i

	shift
	for ((i = 0; i < ROUNDS; i++)); do
		start_traffic "$@" || return 1
		random_nap
		"end_$victim" || return 1
	done
	nothing_left "$baseline"
}

# Killed while it still opens, creates, connects.
kill_early() {
	local i

	for ((i = 0; i < ROUNDS; i++)); do
		traffic --qps 32 >"$SCRATCH/traffic" 2>&1 &
		requester=$!
		random_nap
		kill -KILL "$requester"
		wait "$requester" 2>/dev/null
		wait_until 60 no_traffic || return 1
	done
	nothing_left "$baseline"
}

no_traffic() {
	! pgrep -x traffic
}

# kill_traffic_cases: who sends, who receives, both; small, large, with objects.
kill_traffic_cases() {
	local victim

	for victim in requester responder both; do
		expect "$ROUNDS times $victim killed, small messages" \
			kill_rounds "$victim" --size 64
		expect "$ROUNDS times $victim killed, large messages" \
			kill_rounds "$victim" --size 262144 --qps 2
		expect "$ROUNDS times $victim killed while objects come and go" \
			kill_rounds "$victim" --size 4096 --churn
	done
}

# kill_traffic: the same once more, silently.
kill_traffic() {
	local victim

	for victim in requester responder both; do
		kill_rounds "$victim" --size 64 &&
			kill_rounds "$victim" --size 262144 --qps 2 &&
			kill_rounds "$victim" --size 4096 --churn || return 1
	done
}
