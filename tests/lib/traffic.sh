# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Verified traffic in the background, and what may be left of it afterwards.
# After lib/tap.sh and buildlib/guest.sh; among several nodes, where the responder is
# on node 1, after lib/machines.sh.

# Exit status of the traffic program whose device or other side is gone.
GONE=3

# Among several nodes: where "traffic serve" listens on node 1.
TRAFFIC_PORT=7323
responder_side=()
# Whether what is left is looked for on node 1, too.
BOTH=
[ "${MIC_NODES:-1}" -eq 1 ] || responder_side=(./run on 1)

# traffic ARGUMENT...: between the two devices.
traffic() {
	local responder=$PEER

	[ ${#responder_side[@]} -eq 0 ] ||
		responder=$SERVER_ADDRESS:$TRAFFIC_PORT
	exec "$BIN/traffic" --device "$DEVICE" --peer "$responder" "$@"
}

# on_node_1 FUNCTION: of this file, there.
on_node_1() {
	./run on 1 bash -c ". tests/lib/tap.sh; . tests/lib/traffic.sh; $1"
}

responder_gone() {
	if [ ${#responder_side[@]} -eq 0 ]; then
		process_gone "$responder"
	else
		"${responder_side[@]}" [ ! -e "/proc/$responder" ]
	fi
}

kill_responder() {
	"${responder_side[@]}" kill -KILL "$responder"
}

# start_traffic ARGUMENT...: returns when it runs; $requester, $responder.
start_traffic() {
	local log=$SCRATCH/traffic

	: >"$log"
	traffic "$@" >"$log" 2>&1 &
	requester=$!
	if ! wait_until 30 grep -q ^running "$log"; then
		note "the traffic does not start"
		note_file "$log"
		return 1
	fi
	responder=$(awk '$1 == "responder" { print $2 }' "$log")
}

# stop_traffic: it must end well.
stop_traffic() {
	kill -TERM "$requester"
	traffic_ends 0
}

# traffic_ends STATUS: both processes end in time, the requester so.
traffic_ends() {
	if ! ends "$requester" 60 || ! wait_until 60 responder_gone; then
		note "the traffic does not end"
		note_file "$SCRATCH/traffic"
		kill -KILL "$requester"
		kill_responder
		return 1
	fi
	[ "$ended" -eq "$1" ] || {
		note "the requester ended with $ended instead of $1"
		note_file "$SCRATCH/traffic"
		return 1
	}
}

# pinned_pages: how many are pinned now.
pinned_pages() {
	awk '$1 == "nr_foll_pin_acquired" { acquired = $2 }
		$1 == "nr_foll_pin_released" { released = $2 }
		END { print acquired - released }' /proc/vmstat
}

# rdma_objects: every RDMA object there is, by device.
rdma_objects() {
	rdma resource show | sed 's/^[0-9]*: //' | sort
}

# driver_state: what the driver itself counts, by device.
driver_state() {
	local folder

	for folder in /sys/kernel/debug/ib_mic/*/; do
		[ -e "$folder/mkeys" ] || continue
		echo "$(basename "$folder"):" \
			"$(grep -c '^qp' "$folder/qps") queue pairs"
		cat "$folder/mkeys" "$folder/windows"
	done
}

# nothing_left STATE: objects and pinned pages are back at that.
nothing_left() {
	wait_until 30 state_is "$1" || {
		note "left over, before:"
		note "$1"
		note "and now:"
		note "$(resource_state)"
		return 1
	}
}

# resource_state: of this machine; with BOTH also of node 1.
resource_state() {
	rdma_objects
	driver_state
	echo "pinned pages: $(pinned_pages)"
	[ -z "$BOTH" ] || on_node_1 resource_state | sed 's/^/node 1: /'
}

state_is() {
	[ "$(resource_state)" = "$1" ]
}

# What the driver allocates itself, and what it holds of others: address spaces, pids,
# files, and with a file or a credential whatever these hold.
SLAB_CACHES="kmalloc-* radix_tree_node mm_struct pid filp inode_cache
	sock_inode_cache cred cred_jar task_struct"

# Queues, mappings and pinned memory are pages, of which many are gone before it shows:
# a unit is so many KiB of free memory, and of memory of the processors.
FREE_UNIT=64
PERCPU_UNIT=4

# slab_counts: objects in use by cache, and memory in units, each in a line; with BOTH
# of node 1, too. What can be dropped is dropped before.
slab_counts() {
	local cache objects

	echo 3 >/proc/sys/vm/drop_caches
	sleep 0.4
	# shellcheck disable=SC2086 # patterns
	for cache in $(cd /sys/kernel/slab && echo $SLAB_CACHES); do
		cache=/sys/kernel/slab/$cache
		[ -e "$cache/shrink" ] || continue
		echo 1 >"$cache/shrink"
		read -r objects _ <"$cache/objects"
		echo "${cache##*/} $objects"
	done
	awk -v unit="$FREE_UNIT" -v percpu="$PERCPU_UNIT" '
		$1 == "MemTotal:" { total = $2 }
		$1 == "MemFree:" { free += $2 }
		# what each CPU keeps at hand
		$1 == "count:" { free += $2 * 4 }
		$1 == "Percpu:" { print "percpu", int($2 / percpu) }
		END { print "memory", int((total - free) / unit) }' \
		/proc/meminfo /proc/zoneinfo
	[ -z "$BOTH" ] || on_node_1 slab_counts | sed 's/^/1:/'
}

# slab_snapshot FILE: objects in use by cache, and what memory is not free. What a
# CPU keeps at hand counts as in use, so each cache is shrunk first, and the lowest
# of five counts is taken; and before, whatever is freed later gets its time: work
# queues, and kfree_rcu(), which lets objects wait for seconds unless memory is
# asked back.
slab_snapshot() {
	local cache objects i
	local -A lowest=()

	sleep 1
	for ((i = 0; i < 5; i++)); do
		while read -r cache objects; do
			[ "${lowest[$cache]:-$objects}" -lt "$objects" ] ||
				lowest[$cache]=$objects
		done < <(slab_counts)
	done
	for cache in "${!lowest[@]}"; do
		echo "$cache ${lowest[$cache]}"
	done | sort >"$1"
}

# slab_growth BEFORE AFTER LIMIT: caches, or memory, that grew by more than LIMIT.
slab_growth() {
	join "$1" "$2" | awk -v limit="$3" '$3 - $2 > limit {
		print $1, "grew from", $2, "to", $3 }'
}

# slabs_stay LIMIT COMMAND...: no kernel memory is left by what was done since
# the snapshot in $SCRATCH/before was taken, and is done again by COMMAND. A leak
# shows each time, a cache that a running system lets grow once does not: only one
# that grows by more than LIMIT in each of three goes counts.
slabs_stay() {
	local limit=$1 go grown

	shift
	for go in 1 2 3; do
		[ "$go" -eq 1 ] || "$@" || return 1
		slab_snapshot "$SCRATCH/after"
		slab_growth "$SCRATCH/before" "$SCRATCH/after" "$limit" \
			>"$SCRATCH/growth"
		grown=$(cut -d ' ' -f 1 "$SCRATCH/growth")
		[ "$go" -eq 1 ] ||
			grown=$(grep -Fxf "$SCRATCH/grown" <<<"$grown")
		[ -n "$grown" ] || return 0
		sed "s/^/go $go: /" "$SCRATCH/growth"
		echo "$grown" >"$SCRATCH/grown"
		mv "$SCRATCH/after" "$SCRATCH/before"
	done
	return 1
}

# devices_anew: deleted, which the driver refuses to do quietly if it has anything
# left, and made again.
devices_anew() {
	timeout $((60 * SLOW)) rdma link delete "$DEVICE" &&
		timeout $((60 * SLOW)) rdma link delete "$PEER" &&
		rdma link add "$DEVICE" type mic netdev mic-eth0 &&
		rdma link add "$PEER" type mic netdev mic-eth1 &&
		wait_active "$DEVICE" && wait_active "$PEER"
}
