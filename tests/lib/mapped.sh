# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Device memory that is mapped by processes here and on node 1, and then goes. After
# lib/tap.sh and lib/perftest.sh.

OURS=7340
THEIRS=7341

# Three processes: one here that writes to its own device memory, one here that
# writes to node 1's, and one there that writes to that of another one here.
begin() {
	"$BIN/slice" own >"$SCRATCH/own" 2>&1 &
	own=$!
	"$BIN/slice" server "$OURS" >"$SCRATCH/server" 2>&1 &
	server=$!
	./run on 1 "$BIN/slice" server "$THEIRS" &
	far_server=$!
	wait_until 30 listens 0 "$OURS" && wait_until 30 listens 1 "$THEIRS" ||
		return
	"$BIN/slice" hold "$SERVER_ADDRESS" "$THEIRS" >"$SCRATCH/hold" 2>&1 &
	hold=$!
	./run on 1 "$BIN/slice" hold "$CLIENT_ADDRESS" "$OURS" \
		>"$SCRATCH/far" 2>&1 &
	far=$!
	wait_until 60 grep -q mapped "$SCRATCH/hold" &&
		wait_until 60 grep -q mapped "$SCRATCH/far" &&
		wait_until 60 grep -q writes "$SCRATCH/own" && return
	cat "$SCRATCH"/{own,server,hold,far}
	return 1
}

# is_over FILE PID: the process has seen that its mapping is not valid any more.
is_over() {
	local status=0

	wait_until 60 grep -q '^ok .*it is over' "$SCRATCH/$1" || status=1
	[ "$status" -eq 0 ] || cat "$SCRATCH/$1"
	return "$status"
}

# What it writes goes nowhere; that, and that it has not ended, is all it sees.
still_writes() {
	kill -0 "$own" || {
		wait "$own"
		echo "it has ended with $?"
		return 1
	}
}

# The same pages in other hands, while it goes on writing.
new_memory() {
	local status=0 new

	"$BIN/slice" server "$OURS" &
	new=$!
	wait_until 30 listens 0 "$OURS" || return
	./run on 1 "$BIN/slice" client "$CLIENT_ADDRESS" "$OURS" || status=1
	wait "$new"
	still_writes || status=1
	return "$status"
}

end_all() {
	kill "$own" "$server" 2>/dev/null
	wait "$own" "$server" "$hold" "$far" "$far_server"
	return 0
}
