# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# MPI and OpenSHMEM programs whose ranks are on node0 and node1 in turn. After
# lib/nodes.sh, or lib/vms.sh, and lib/suites.sh.

# mpi_compiler KIND: Open MPI has OpenSHMEM, too.
mpi_compiler() {
	case $1 in
	openshmem) echo oshcc ;;
	*) echo "mpicc.$1" ;;
	esac
}

# mpi_compile KIND PROGRAM: tests/mpi/PROGRAM.c for openmpi, mpich or openshmem, into
# $SCRATCH/PROGRAM.KIND.
mpi_compile() {
	"$(mpi_compiler "$1")" -O2 -Wall -Wextra -Werror -o "$SCRATCH/$2.$1" \
		"$MIC_TREE/tests/mpi/$2.c" &&
		give_to_nodes "$SCRATCH/$2.$1"
}

# mpi_hosts WAY RANKS: each rank's node.
mpi_hosts() {
	local hosts='' i

	for ((i = 0; i < $2; i++)); do
		if [ "$1" = shm ]; then
			hosts+=,node0
		else
			hosts+=,node$((i % 2))
		fi
	done
	echo "${hosts#,}"
}

# openmpi_options WAY: pml ucx and mtl ofi have to be asked for, Debian turns them off.
openmpi_options() {
	case $1 in
	tcp) echo --mca pml ob1 --mca btl tcp,self --mca osc rdma ;;
	shm) echo --mca pml ob1 --mca btl vader,self --mca osc rdma ;;
	ofi) echo --mca pml cm --mca mtl ofi --mca osc pt2pt -x FI_PROVIDER=verbs ;;
	*) echo --mca pml ucx --mca osc ucx --mca spml ucx -x "UCX_TLS=$1,self" ;;
	esac
}

# mpich_tls WAY: Debian's MPICH is made for UCX.
mpich_tls() {
	case $1 in
	tcp) echo tcp,self ;;
	shm) echo posix,cma,self ;;
	*) echo "$1,self" ;;
	esac
}

# mpi_run KIND WAY RANKS PROGRAM...: WAY is UCX's word for a transport, or ofi (Open
# MPI's, by libfabric), tcp, or shm (which has all ranks on one node).
mpi_run() {
	local kind=$1 way=$2 ranks=$3 command=() hosts

	shift 3
	[ -e "$SCRATCH/agent" ] || make_agent
	hosts=$(mpi_hosts "$way" "$ranks")
	case $kind in
	openmpi | openshmem)
		# shellcheck disable=SC2207 # A list of words.
		command=(mpirun.openmpi --host "$hosts" -np "$ranks"
			--oversubscribe --bind-to none
			--mca plm_rsh_agent "$SCRATCH/agent"
			--mca btl_tcp_if_include 10.80.0.0/24
			--mca oob_tcp_if_include 10.80.0.0/24
			-x UCX_WARN_UNUSED_ENV_VARS=n -x RDMAV_DRIVERS
			$(openmpi_options "$way"))
		;;
	mpich)
		command=(env UCX_TLS="$(mpich_tls "$way")"
			UCX_WARN_UNUSED_ENV_VARS=n
			mpirun.mpich -hosts "$hosts" -n "$ranks"
			-launcher rsh -launcher-exec "$SCRATCH/agent")
		;;
	esac
	on_node 0 env OMPI_ALLOW_RUN_AS_ROOT=1 \
		OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		timeout $((180 * SLOW)) "${command[@]}" "$@"
}

# requests_on I: what the queue pairs of a node's device have carried out.
requests_on() {
	on_node "$1" rdma statistic show | sum_requests
}
