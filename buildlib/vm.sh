#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# ---
# usage: ./run vm [OPTION...] [-- COMMAND...]
#
# Boots a virtual machine with this machine's files, loads the modules of
# this tree, makes mic0 and mic1, runs COMMAND in the tree's folder as root,
# and returns its exit status. Without a COMMAND: an interactive shell.
#
#   --kernel 6.1|6.12|debug   which kernel to boot (6.1)
#   --mem SIZE                the VM's memory (4G)
#   --cpus N                  its processors (2)
#   --nodes N                 boot N VMs on one shared PCI memory region and run
#                             COMMAND on the first, node 0; each has one
#                             processor and 2G unless told otherwise
#   --regions N               that many regions, each of them a device (1)
#   --region BYTES            a region's size, a power of two (256M)
#   --no-doorbell             the region comes without interrupts
#   --no-doorbell-on K        for node K only
#   --hot-plug                with --no-doorbell: the regions' devices are on a
#                             bridge, from which "./run on K --unplug" takes them
#   --aperture                each node's memory is a device of the others; --mem is
#                             a power of two
#   --network                 two nodes have a network card each, with a cable
#                             between them; see make_rxe_node
#   --icount                  one processor, always emulated, whose clock counts
#                             instructions: a nanosecond is one
#   --timeout SECONDS         end the VM after so long (600; a shell: never)
#   --out DIR                 the folder that COMMAND can leave results in
#   --verdict FILE            where to put what was wrong, in words for a script
#   --no-modules              load no modules and make no devices
#   --no-build                use the modules and programs as they are
#
# Devices: mic0 on mic-eth0 (10.77.0.1, fd77::1), mic1 on mic-eth1
# (10.77.0.2, fd77::2); make_rxe of buildlib/guest.sh adds rxe0 on rxe-eth0
# (10.78.0.1) and rxe1 on rxe-eth1 (10.78.0.2). Each pair of netdevs is a
# veth pair whose two addresses reach each other over it, not over lo.
#
# With --nodes, "./run on K COMMAND..." in a VM runs COMMAND on node K: its
# output and exit status come back, and it is killed with its caller. "./run on
# K --kill", --start, --stop and --cont act on the VM of node K (not 0), --unplug and
# --plug on its regions, if there is --hot-plug. No node has a network but what it makes
# of the region, and with --network its card.
#
# The host's files are there, but changes to them stay in the VM, except in
# the folder --out (in the VM: $MIC_OUT). COMMAND has the variables MIC_TEST_* of
# this process. Afterwards the kernel log is
# read: a warning, an Oops, a lockdep or KASAN report, a hung task, or a
# module that can't be unloaded is a failure, with exit status 125. A VM
# that hangs or is over its time is ended; its exit status is 124.
# ---
set -eu

# shellcheck source=buildlib/common.sh
. "$(dirname "$(readlink -f "$0")")/common.sh"
# shellcheck source=buildlib/kernel.sh
. "$TREE/buildlib/kernel.sh"
# shellcheck source=buildlib/initramfs.sh
. "$TREE/buildlib/initramfs.sh"
# shellcheck source=buildlib/logscan.sh
. "$TREE/buildlib/logscan.sh"
# shellcheck source=buildlib/vm-packages.sh
. "$TREE/buildlib/vm-packages.sh"
# shellcheck source=buildlib/vm/start.sh
. "$TREE/buildlib/vm/start.sh"
# shellcheck source=buildlib/vm/nodes.sh
. "$TREE/buildlib/vm/nodes.sh"
# shellcheck source=buildlib/vm/watch.sh
. "$TREE/buildlib/vm/watch.sh"
# shellcheck source=buildlib/vm/judge.sh
. "$TREE/buildlib/vm/judge.sh"

kernel=6.1 mem='' cpus='' timeout='' out='' verdict='' modules=1 build=1
nodes=1 regions=1 region=256M doorbell=1 plain='' aperture='' network=''
hotplug='' icount=''
while [ $# -gt 0 ]; do
	case $1 in
	--kernel | --mem | --cpus | --timeout | --out | --verdict | --nodes | \
		--regions | --region)
		need_value "$@"
		declare "${1#--}=$2"
		shift
		;;
	--no-modules) modules='' ;;
	--no-build) build='' ;;
	--no-doorbell) doorbell='' ;;
	--no-doorbell-on)
		need_value "$@"
		plain=$2
		shift
		;;
	--hot-plug) hotplug=1 ;;
	--aperture) aperture=1 ;;
	--network) network=1 ;;
	--icount) icount=1 ;;
	-h | --help)
		show_help
		exit 0
		;;
	--)
		shift
		break
		;;
	-*) die "unknown option $1" "see ./run vm --help" ;;
	*) break ;;
	esac
	shift
done
kernel_check_name "$kernel"
for option in cpus timeout; do
	[[ ${!option:-0} =~ ^[0-9]+$ ]] ||
		die "--$option ${!option}: not a number" "see ./run vm --help"
done
usable_folder "$out" "--out"
usable_folder "${TMPDIR:-/tmp}" "the folder for what is short-lived, \$TMPDIR,"
check_nodes
if [ $# -eq 0 ] && { [ ! -t 0 ] || [ ! -t 1 ]; }; then
	die "an interactive shell needs a terminal" "give a command: ./run vm -- COMMAND"
fi

need_packages qemu-system-x86 busybox-static cpio kmod xz-utils iproute2 \
	procps iputils-ping rdma-core ibverbs-utils ibverbs-providers rdmacm-utils perftest
if [ -n "$build" ] && [ -n "$modules" ]; then
	"$TREE/buildlib/build.sh" --kernel "$kernel"
fi
kernel_select "$kernel"
# In braces: read as a whole, so that editing this file while a VM runs
# does no harm.
{
	prepare_run "$@"
	trap 'end_vm; kill_nodes; rm -f "$run_dir/initramfs"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	take_slot
	start_nodes
	boot_vm
	wait_vm
	end_nodes
	judge_run
}
