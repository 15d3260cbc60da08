# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# For programs of others: did they really use the device? After lib/tap.sh.

# sum_counters REGEX: those of the names in what rdma statistic says, which is the
# input. As a process may say any number of what it has executed by itself: modulo
# 2^64, as the kernel sums, and only differences mean something.
sum_counters() {
	local words word name='' sum=0

	read -rd '' -a words # all of it, to the end
	for word in "${words[@]}"; do
		[[ ! $name =~ ^($1)$ ]] || sum=$((sum + word))
		name=$word
	done
	echo "$sum"
}

# sum_requests: likewise, those carried out, by mic (also directly by the process
# that posts) or by rxe.
sum_requests() {
	sum_counters 'sends|(rdma|direct)_(writes|reads)|sent_pkts'
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
	[ $((after - before)) -gt 0 ] || {
		echo "not a request went over the devices"
		return 1
	}
}
