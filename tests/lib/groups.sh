# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Multicast through rdma_cm, with rdma-core's own program. After lib/tap.sh.

# multicast GROUP SENDER-ADDRESS ADDRESS...: two members on each, and one sender.
multicast() {
	local group=$1 from=$2 address pids=() i ended status=0

	shift 2
	for address in "$@"; do
		for i in 0 1; do
			timeout $((60 * SLOW)) stdbuf -oL \
				mckey -m "$group" -b "$address" -C 20 \
				>"$SCRATCH/member${#pids[@]}" 2>&1 &
			pids+=($!)
		done
	done
	for i in "${!pids[@]}"; do
		wait_until 20 grep -q 'joined' "$SCRATCH/member$i" ||
			echo "member $i has not joined"
	done
	timeout $((30 * SLOW)) mckey -m "$group" -b "$from" -s -C 20 \
		>"$SCRATCH/sender" 2>&1 || {
		status=1
		cat "$SCRATCH/sender"
	}
	for i in "${!pids[@]}"; do
		ended=0
		wait "${pids[i]}" || ended=$?
		[ "$ended" -ne 0 ] || continue
		status=1
		echo "member $i ends with $ended:"
		cat "$SCRATCH/member$i"
	done
	return "$status"
}
