# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# A machine that has memory of another one mapped and says nothing any more. Needs
# machines.sh.

listens_here() {
	ss -Hltn "sport = :$1" | grep -q .
}

# stopped_holder PORT [KIND-OF-MEMORY WHAT-BLANK-LOOKS-AT]: node 1 has memory of this
# node mapped and writes to it, and is stopped: its owner is not kept, and when it runs
# again it writes to nobody's memory. The caller has set dead_ms.
stopped_holder() {
	local server holder status=0

	"$BIN/slice" server "$1" "${@:2:1}" &
	server=$!
	wait_until 30 listens_here "$1" || return
	./run on 1 "$BIN/slice" hold "$CLIENT_ADDRESS" "$1" \
		>"$SCRATCH/hold" &
	holder=$!
	wait_until 60 grep -q mapped "$SCRATCH/hold" || return
	./run on 1 --stop || return
	kill "$server"
	ends "$server" 30 || {
		echo "the owner is kept"
		status=1
	}
	"$BIN/blank" "${@:3}" >"$SCRATCH/blank" &
	server=$!
	wait_until 30 grep -q "it is blank" "$SCRATCH/blank" || status=1
	./run on 1 --cont || return
	ends "$holder" 60 || status=1
	kill "$server"
	wait "$server" || {
		cat "$SCRATCH/blank"
		status=1
	}
	meet && return "$status"
}
