# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# rdma-core's pyverbs tests, unpacked and run. After tests/lib/perftest.sh and
# buildlib/guest.sh.

SUITE=/usr/share/doc/rdma-core/tests

# All that are not for one vendor's devices.
MODULES=(test_addr test_atomic test_cq test_cq_events test_cqex
	test_cuda_dmabuf test_device test_flow test_fork test_mr test_odp
	test_parent_domain test_pd test_qp test_qpex test_rdmacm
	test_relaxed_ordering test_rss_traffic test_shared_pd
	test_tag_matching)

# prepare_suite: into $SCRATCH/tests, with huge pages for those who ask.
prepare_suite() {
	[ -e "$SUITE/run_tests.py" ] || {
		echo "Bail out! $SUITE is not there: the package rdma-core" \
			"is installed without its documentation"
		exit 1
	}
	mkdir "$SCRATCH/tests"
	cp "$SUITE"/* "$SCRATCH/tests"
	gunzip -f "$SCRATCH"/tests/*.gz
	echo 16 >/proc/sys/vm/nr_hugepages
}

# device_on_card NAME TYPE CARD: an RDMA device on a network card.
device_on_card() {
	rdma link add "$1" type "$2" netdev "$3" && wait_active "$1"
}

# run_suite DEVICE [MODULE...]: TAP.
run_suite() {
	local device=$1

	shift
	[ $# -gt 0 ] || set -- "${MODULES[@]}"
	python3 pyverbs-tests/run_rdma_core.py "$SCRATCH/tests" \
		$((60 * SLOW)) "$@" -- \
		--dev "$device" --port 1 --gid "$(gid_index "$device")"
}
