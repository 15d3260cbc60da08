# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# What tests/sequence.c can't see: what the other side has dropped. After tap.sh;
# sequence_drops is the script's.

# What the program sends by UC that the other side can't take.
SEQUENCE_DROPS=2

# sequence COMMAND...: its cases, and one more.
sequence() {
	local before

	before=$(settled sequence_drops)
	cases_of "$@"
	expect "each message that is dropped is counted once" \
		[ "$(settled sequence_drops)" -eq $((before + SEQUENCE_DROPS)) ]
}
