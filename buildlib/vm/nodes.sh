# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ./run vm --nodes N: the nodes beside node 0, and what joins them. They are
# started and ended by buildlib/nodes/host.py, which also serves the region and
# carries what ./run on says.

host_pid='' sockets=''

check_nodes() {
	case $nodes in
	[1-8]) ;;
	*) die "--nodes $nodes is no number of nodes" "give 1 to 8" ;;
	esac
	case $regions in
	[1-4]) ;;
	*) die "--regions $regions is no number of regions" "give 1 to 4" ;;
	esac
	[ -z "$plain" ] || [ "$plain" -lt "$nodes" ] ||
		die "--no-doorbell-on $plain is no node" "give 0 to $((nodes - 1))"
	# QEMU (7.2) ends itself when a device with interrupts is unplugged.
	[ -z "$hotplug" ] || [ -z "$doorbell" ] ||
		die "--hot-plug is for devices without interrupts" \
			"give --no-doorbell, too"
	[ -z "$hotplug" ] || [ "$nodes" -gt 1 ] ||
		die "--hot-plug is of what nodes share" "give --nodes 2"
	[ -z "$network" ] || [ "$nodes" -eq 2 ] ||
		die "--network is a cable between two nodes" "give --nodes 2"
	if [ -n "$icount" ]; then
		cpus=${cpus:-1}
		[ "$nodes $cpus" = "1 1" ] ||
			die "--icount is for one machine with one processor" \
				"leave --nodes and --cpus out"
	fi
	if [ "$nodes" -eq 1 ]; then
		mem=${mem:-4G} cpus=${cpus:-2}
	else
		mem=${mem:-2G} cpus=${cpus:-1}
	fi
	check_aperture
}

check_aperture() {
	local bytes

	[ -n "$aperture" ] || return 0
	[ "$nodes" -gt 1 ] ||
		die "--aperture is between nodes" "give --nodes 2"
	bytes=$(numfmt --from=iec "$mem")
	[ $((bytes & (bytes - 1))) -eq 0 ] ||
		die "--mem $mem is no power of two" "give one with --aperture"
}

# apertures NODE: their PCI addresses in that node.
apertures() {
	local i list=()

	[ -n "$aperture" ] || return 0
	for ((i = 0; i < nodes; i++)); do
		[ "$i" -eq "$1" ] || list+=("$(printf '0000:00:%02x.0' $((16 + i)))")
	done
	(IFS=, && echo "${list[*]}")
}

# aperture_words NODE: its memory is a file, and others' files are devices of it.
aperture_words() {
	local i file=memory-backend-file,share=on,size=$mem

	words+=(-object "$file,id=ram,mem-path=$sockets/ram-$1"
		-machine memory-backend=ram)
	for ((i = 0; i < nodes; i++)); do
		[ "$i" -ne "$1" ] || continue
		words+=(-object "$file,id=ram$i,mem-path=$sockets/ram-$i"
			-device "ivshmem-plain,memdev=ram$i,addr=$(printf '%02x.0' $((16 + i)))")
	done
}

# node_words NODE: what a node of several has more than a VM alone.
node_words() {
	local i place

	words+=(-chardev "socket,id=rig,path=$sockets/port-$1"
		-device "virtserialport,chardev=rig,name=rig")
	if [ -n "$network" ]; then
		words+=(-netdev "dgram,id=net,local.type=unix,local.path=$sockets/net-$1,remote.type=unix,remote.path=$sockets/net-$((1 - $1))"
			-device "virtio-net-pci,netdev=net,mac=02:00:00:00:78:0$(($1 + 1)),romfile=")
	fi
	[ -z "$aperture" ] || aperture_words "$1"
	[ -z "$hotplug" ] ||
		words+=(-qmp "unix:$sockets/qmp-$1,server=on,wait=off"
			-device "pcie-pci-bridge,id=bridge")
	for ((i = 0; i < regions; i++)); do
		place=id=shared$i
		[ -z "$hotplug" ] || place+=,bus=bridge,addr=$(printf %02x $((i + 1)))
		if [ -n "$doorbell" ] && [ "$1" != "$plain" ]; then
			words+=(-chardev "socket,id=region$i,path=$sockets/ivshmem-$i"
				-device "ivshmem-doorbell,vectors=8,chardev=region$i")
		else
			words+=(-object "memory-backend-file,id=region$i,share=on,mem-path=$sockets/region-$i,size=$region"
				-device "ivshmem-plain,memdev=region$i,$place")
		fi
	done
}

# ram_bytes: of each node's memory, if it is a file.
ram_bytes() {
	if [ -n "$aperture" ]; then
		numfmt --from=iec "$mem"
	else
		echo 0
	fi
}

# start_nodes: returns when node 0 can be started too.
start_nodes() {
	local i words folders=("$run_dir")

	[ "$nodes" -gt 1 ] || return 0
	# In /tmp: the path of a socket must be short.
	sockets=$(mktemp -d "${TMPDIR:-/tmp}/mic-rig-XXXXXX")
	for ((i = 1; i < nodes; i++)); do
		folders+=("$run_dir/node-$i")
		mkdir "$run_dir/node-$i"
		write_config "$i" "$run_dir/node-$i" >"$run_dir/node-$i/config"
		vm_words "$i" "$run_dir/node-$i"
		printf '%s\0' "${words[@]}" \
			-chardev "file,id=console,path=$run_dir/node-$i/console,append=on" \
			-serial chardev:console \
			>"$run_dir/node-$i/argv"
	done
	MIC_SLOW=$slow python3 "$TREE/buildlib/nodes/host.py" "$sockets" "$regions" \
		"$(numfmt --from=iec "$region")" "$(ram_bytes)" "${folders[@]}" \
		2>"$run_dir/nodes" &
	host_pid=$!
	until [ -e "$sockets/ready" ]; do
		kill -0 "$host_pid" 2>/dev/null || {
			cat "$run_dir/nodes" >&2
			die "the other nodes cannot be started" "read the lines above"
		}
		sleep 0.1
	done
}

# end_nodes: they shut down when node 0 has.
end_nodes() {
	[ -n "$host_pid" ] || return 0
	kill -TERM "$host_pid" 2>/dev/null || true
	wait "$host_pid" 2>/dev/null || true
	host_pid=''
	cat "$run_dir/nodes" >&2
	rm -rf "$sockets"
}

# The way out when things went wrong: at once.
kill_nodes() {
	[ -n "$sockets" ] || return 0
	[ -z "$host_pid" ] || kill -KILL "$host_pid" 2>/dev/null || true
	rm -rf "$sockets"
}
