# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# A server of NFS over RDMA, on this machine.

# In memory.
NFS_EXPORT=/dev/shm/mic-nfs
NFS_PORT=20049

see_nfsd() {
	mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
}

# serve_nfs NETWORK: a file system in memory, for machines with such an address.
serve_nfs() {
	mkdir -p "$NFS_EXPORT" /var/lib/nfs/v4recovery &&
		touch /var/lib/nfs/etab /var/lib/nfs/rmtab &&
		modprobe -a nfsd rpcrdma && see_nfsd || return
	# who was here before the server may come back so long
	echo 10 >/proc/fs/nfsd/nfsv4leasetime &&
		echo 10 >/proc/fs/nfsd/nfsv4gracetime &&
		exportfs -o rw,no_root_squash,fsid=0,insecure "$1:$NFS_EXPORT" &&
		rpc.mountd -N 2 -N 3 -u </dev/null >/dev/null 2>&1 &&
		rpc.nfsd -N 3 -V 4.2 "--rdma=$NFS_PORT" 2 &&
		grep "rdma $NFS_PORT" /proc/fs/nfsd/portlist
}

end_nfs() {
	local pid

	see_nfsd && rpc.nfsd 0 && exportfs -au && pid=$(pidof rpc.mountd) &&
		kill "$pid" && rm -r "$NFS_EXPORT"
}
