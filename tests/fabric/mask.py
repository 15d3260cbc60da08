#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Masks all MSI-X interrupts of a PCI device, or lets them through again.

  mask.py DEVICE on|off     DEVICE is its folder in sysfs
"""

import os
import sys

CAPABILITIES = 0x34
MSIX = 0x11
CONTROL = 2
MASK_ALL = 1 << 14


def read(config, offset, size):
    return int.from_bytes(os.pread(config, size, offset), "little")


def find_msix(config):
    at = read(config, CAPABILITIES, 1)
    while at:
        if read(config, at, 1) == MSIX:
            return at
        at = read(config, at + 1, 1)
    sys.exit("the device has no MSI-X")


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("on", "off"):
        sys.exit(__doc__)
    config = os.open(f"{sys.argv[1]}/config", os.O_RDWR)
    at = find_msix(config) + CONTROL
    control = read(config, at, 2) & ~MASK_ALL
    if sys.argv[2] == "on":
        control |= MASK_ALL
    os.pwrite(config, control.to_bytes(2, "little"), at)


main()
