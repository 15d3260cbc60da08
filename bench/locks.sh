#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usage: ./run vm -- bench/locks.sh [QPS]
#
# In the VM: which locks are contended while many queue pairs are busy on two
# processors. The kernel's own tracepoint of contended locks is counted by call
# chain; it costs nothing where there is no contention, so the load is not
# slowed down as it is by lock_stat. What is printed last, if anything, is the
# profile: chains with the number of times that a lock was waited for.
set -u

# shellcheck source=buildlib/guest.sh
. "$MIC_TREE/buildlib/guest.sh"
# shellcheck source=bench/perftest.sh
. "$MIC_TREE/bench/perftest.sh"

tracing=/sys/kernel/tracing
event=$tracing/events/lock/contention_begin
count=${1:-64}

mountpoint -q $tracing || mount -t tracefs none $tracing
echo 'hist:keys=stacktrace:vals=hitcount:sort=hitcount.descending' \
	>$event/trigger || exit
# the engine's; executed directly, requests take none
MIC_DIRECT=0 "$MIC_TREE/build/user/bin/bench-busy" mic mic0 "$(gid_index mic0)" \
	mic1 "$(gid_index mic1)" "$count" 5000
cat $event/hist >"$MIC_OUT/locks"
echo '!hist:keys=stacktrace' >$event/trigger
grep -E 'Hits|Entries' "$MIC_OUT/locks"
echo "chains through this device's modules:"
awk 'BEGIN { RS = "}\n\n?{?" } /mic_/' "$MIC_OUT/locks" | head -n 120
