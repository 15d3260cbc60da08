# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# NFS over RDMA, the kernel's client and server. After lib/traffic.sh. Who uses it
# says where the server is: SERVER_ADDRESS, CLIENTS, and server_side, which runs a
# command there.

NFS_PORT=20049
EXPORT=/dev/shm/mic-nfs # in memory
FOLDER=$SCRATCH/folder

# at_server FUNCTION ARGUMENT...: one of those here, there.
at_server() {
	"${server_side[@]}" bash -c "$(declare -f "$1"); EXPORT=$EXPORT
		NFS_PORT=$NFS_PORT; \"\$@\"" - "$@"
}

prepare_server() {
	mkdir -p "$EXPORT" /var/lib/nfs/v4recovery &&
		touch /var/lib/nfs/etab /var/lib/nfs/rmtab /etc/exports &&
		modprobe -a nfsd rpcrdma &&
		mount -t nfsd nfsd /proc/fs/nfsd || return
	# who was here before the server may come back so long
	echo 10 >/proc/fs/nfsd/nfsv4leasetime &&
		echo 10 >/proc/fs/nfsd/nfsv4gracetime &&
		exportfs -o rw,no_root_squash,fsid=0,insecure "$1:$EXPORT"
}

# mountd, which the kernel asks who may mount what, whenever somebody connects.
mountd_answers() {
	find "/proc/$(pidof rpc.mountd)/fd" -lname '*/auth.unix.ip/channel' |
		grep -q .
}

start_server() {
	rpc.nfsd -N 3 -V 4.2 "--rdma=$NFS_PORT" 2 &&
		grep "rdma $NFS_PORT" /proc/fs/nfsd/portlist
}

serve_files() {
	at_server prepare_server "$CLIENTS" || return
	"${server_side[@]}" rpc.mountd -F -N 2 -N 3 -u >"$SCRATCH/mountd" 2>&1 &
	mountd=$!
	wait_until 20 at_server mountd_answers && at_server start_server
}

mount_folder() {
	mkdir -p "$FOLDER" &&
		timeout $((60 * SLOW)) mount -t nfs4 \
			-o "rdma,port=$NFS_PORT,vers=4.2" \
			"$SERVER_ADDRESS:/" "$FOLDER" &&
		grep "$FOLDER nfs4 .*proto=rdma" /proc/mounts
}

digest_there() {
	sha256sum <"$EXPORT/$1"
}

# stored NAME: the server has the data, and so has who reads it anew.
stored() {
	local digest

	digest=$(sha256sum <"$SCRATCH/data")
	echo 3 >/proc/sys/vm/drop_caches
	[ "$(timeout $((120 * SLOW)) sha256sum <"$FOLDER/$1")" = "$digest" ] &&
		[ "$(at_server digest_there "$1")" = "$digest" ]
}

# copy NAME OPTION...: with those of dd.
copy() {
	local name=$1

	shift
	timeout $((120 * SLOW)) dd if="$SCRATCH/data" of="$FOLDER/$name" \
		status=none "$@"
}

# whole SIZE: through the cache of pages, and then past it, in blocks of SIZE.
whole() {
	copy "cached-$1" bs="$1" conv=fsync && stored "cached-$1" &&
		copy "direct-$1" bs="$1" oflag=direct && stored "direct-$1" &&
		timeout $((120 * SLOW)) dd if="$FOLDER/direct-$1" bs="$1" \
			iflag=direct status=none | cmp - "$SCRATCH/data"
}

many_files() {
	local i

	for ((i = 0; i < 200; i++)); do
		echo "$i" >"$FOLDER/file$i" || return
	done
	echo 3 >/proc/sys/vm/drop_caches
	for ((i = 0; i < 200; i++)); do
		[ "$(<"$FOLDER/file$i")" = "$i" ] || return
	done
	rm "$FOLDER"/file*
}

bytes_read() {
	"${server_side[@]}" cat \
		"/sys/class/infiniband/$DEVICE/ports/1/hw_counters/rdma_read_bytes"
}

# by_verbs: the server reads this machine's memory.
by_verbs() {
	local read

	read=$(bytes_read)
	copy verbs bs=1M oflag=direct || return
	read=$(($(bytes_read) - read))
	echo "$read bytes were read"
	[ "$read" -ge $((32 << 20)) ]
}

begun() {
	[ "$(stat -c %s "$FOLDER/$1")" -gt 0 ]
}

# still_writes WRITER
still_writes() {
	! process_gone "$1" || {
		echo "everything had been written"
		return 1
	}
}

# while_writing NAME COMMAND...: in the middle of it; what was written is right in
# the end.
while_writing() {
	local name=$1 writer status=0

	shift
	copy "$name" bs=4K oflag=direct &
	writer=$!
	wait_until 20 begun "$name"
	"$@" "$writer" || status=1
	ends_well "$writer" 180 && stored "$name" && return "$status"
	rdma resource show cm_id
	rdma resource show qp
	return 1
}

stop_server() {
	rpc.nfsd 0 && exportfs -au && umount /proc/fs/nfsd && rm -r "$EXPORT"
}

leave() {
	timeout $((60 * SLOW)) umount "$FOLDER" && at_server stop_server &&
		kill "$mountd" && wait_until 10 process_gone "$mountd"
}
