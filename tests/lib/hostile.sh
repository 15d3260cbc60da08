# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# A node that has left the region, and writes there. After lib/machines.sh.

# becomes_hostile NODE: nothing of ours runs there; it had the entry $hostile_slot, and
# was told of $hostile_apertures.
becomes_hostile() {
	hostile_slot=$(slot_on "$1") || return
	hostile_apertures=$(./run on "$1" \
		cat /sys/module/mic_ivshmem/parameters/apertures) || return
	./run on "$1" bash -c 'rdma link delete mic0; rmmod mic_ivshmem'
}

# makes_peace NODE
makes_peace() {
	./run on "$1" bash -c "insmod build/kmod-$MIC_KERNEL/mic_ivshmem.ko \
			${hostile_apertures:+apertures=$hostile_apertures} &&
		. buildlib/guest.sh && make_mic" || return
	wait_until 60 ping -c 1 -W 1 "10.80.0.$(($1 + 1))"
}

# The nodes that are attacked.
WITNESSES=(0)

# said_since MARK NODE: how many lines the driver has in the log behind it, or others
# have about what the driver has given them.
said_since() {
	on_machine "$2" dmesg >"$SCRATCH/dmesg"
	grep -q -- "$1\$" "$SCRATCH/dmesg" || {
		echo "node $2: the log no longer has its beginning" >&2
		return 1
	}
	sed "1,/$1\$/d" "$SCRATCH/dmesg" | grep -c -E 'mic_|micnet|MAD ' || true
}

# quietly COMMAND...: what the driver says meanwhile is bounded. Of each session
# there are three messages, and the kernel lets each through ten times in five
# seconds, then says how many it did not.
quietly() {
	local mark="mic-test: quietly $SECONDS.$RANDOM" start=$SECONDS lines most
	local status=0 node

	for node in "${WITNESSES[@]}"; do
		on_machine "$node" bash -c "echo '$mark' >/dev/kmsg" || return
	done
	"$@" || status=$?
	most=$((33 * ((SECONDS - start) / 5 + 2)))
	for node in "${WITNESSES[@]}"; do
		lines=$(said_since "$mark" "$node") || return
		echo "node $node: $lines lines of $most"
		[ "$lines" -le "$most" ] || status=1
	done
	return "$status"
}
