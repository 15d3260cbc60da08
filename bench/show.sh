#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# In the VM: what ./run demo shows there. The figures go to $MIC_OUT.
set -u

show() {
	printf '\n# %s\n' "$*"
	"$@"
}

status=0
show uname -sr
show rdma link show
show ibv_devices || status=1
show ibv_devinfo -d mic0 || status=1
printf '\n# perftest from mic0 to mic1, and from rxe0 to rxe1\n'
"$MIC_TREE/bench/measure.sh" demo mic rxe || status=1
exit "$status"
