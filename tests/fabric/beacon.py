#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What another machine's beacon says, as it is found in an aperture.

  beacon.py DEVICE show           start, end and its own address
  beacon.py DEVICE start ADDRESS  as if the memory began at another address
  beacon.py DEVICE end ADDRESS    as if it ended at another address

DEVICE is the aperture's PCI address; no driver may have it. What a beacon is:
Documentation/fabric.md.
"""

import mmap
import os
import struct
import sys

PAGE = 4096
MAGIC = b"mic-beac"
BEACON = struct.Struct("<8s16sQQQ")  # magic, id, addr, start, end


def find(path):
    """The aperture, and the beacon's offset."""
    file = os.open(path, os.O_RDWR)
    size = os.stat(path).st_size
    memory = mmap.mmap(file, size)
    for offset in range(0, size, PAGE):
        if memory[offset:offset + 8] == MAGIC:
            return memory, offset
    sys.exit("there is no beacon")


def main():
    device, order, *number = sys.argv[1:]
    memory, offset = find(f"/sys/bus/pci/devices/{device}/resource2")
    magic, name, addr, start, end = BEACON.unpack_from(memory, offset)
    if order == "start":
        start = int(number[0])
    elif order == "end":
        end = int(number[0])
    if order != "show":
        BEACON.pack_into(memory, offset, magic, name, addr, start, end)
    print(start, end, addr)


main()
