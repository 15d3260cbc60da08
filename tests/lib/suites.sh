# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For programs of others: did they really use the device? After lib/tap.sh.

# sum_requests: those that rdma statistic, which is the input, says were carried
# out, by mic (also directly by the process that posts) or by rxe.
sum_requests() {
	awk '{ for (i = 1; i < NF; i++)
			if ($i ~ /^(sends|(rdma|direct)_(writes|reads)|sent_pkts)$/)
				sum += $(i + 1) }
		END { printf "%.0f\n", sum }'
}

# requests DEVICE: how many its queue pairs have carried out.
requests() {
	rdma statistic show link "$1/1" | sum_requests
}

# uses COMMAND...: it succeeds, and the devices had something to do.
uses() {
	local before after

	before=$(($(requests "$DEVICE") + $(requests "$PEER")))
	"$@" || return
	after=$(($(requests "$DEVICE") + $(requests "$PEER")))
	[ "$after" -gt "$before" ] || {
		echo "not a request went over the devices"
		return 1
	}
}
