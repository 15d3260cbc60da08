# shellcheck shell=bash
# SPDX-License-Identifier: LGPL-2.1-only OR Linux-OpenIB
# For the scif-clean*.test scripts: programs with a sanitizer inside. After
# programs.sh.

# What has no sanitizer inside, libibverbs for one, is not looked at; some cases
# make children that go on with one thread.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 die_after_fork=0"
# With more randomness in the addresses, gcc's thread sanitizer does not start.
sysctl -qw vm.mmap_rnd_bits=28
export MIC_SLOW=$((${MIC_SLOW:-1} * 4))
SLOW=$MIC_SLOW

# no_complaint WHERE: in that program's output, what its peer wrote included.
no_complaint() {
	! grep -E 'Sanitizer|runtime error' "$SCRATCH/$1.out"
}

# sanitized WHERE SANITIZER PROGRAM ARGUMENT...
sanitized() {
	local where=$1 sanitizer=$2 name=$3

	shift 3
	program "$where, $sanitizer" "scif_${name}_$sanitizer" "$@"
	expect "$where: $sanitizer does not complain of $name" \
		no_complaint "$where, $sanitizer"
}
