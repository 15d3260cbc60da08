#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What another machine's beacon says, as it is found in an aperture.

  beacon.py DEVICE show           start, end and its own address
  beacon.py DEVICE start ADDRESS  as if the memory began at another address
  beacon.py DEVICE end ADDRESS    as if it ended at another address
  beacon.py DEVICE forge ADDRESS  one where there is none, with NAME as its id, of
                                  memory from 0 on that the aperture begins with

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
NAME = b"a forged beacon!"


def open_aperture(path):
    file = os.open(path, os.O_RDWR)
    return mmap.mmap(file, os.stat(path).st_size)


def find(memory):
    """The beacon's offset."""
    for offset in range(0, len(memory), PAGE):
        if memory[offset:offset + 8] == MAGIC:
            return offset
    sys.exit("there is no beacon")


def main():
    device, order, *number = sys.argv[1:]
    memory = open_aperture(f"/sys/bus/pci/devices/{device}/resource2")
    if order == "forge":
        addr = int(number[0])
        BEACON.pack_into(memory, addr, MAGIC, NAME, addr, 0, len(memory))
        return
    offset = find(memory)
    magic, name, addr, start, end = BEACON.unpack_from(memory, offset)
    if order == "start":
        start = int(number[0])
    elif order == "end":
        end = int(number[0])
    if order != "show":
        BEACON.pack_into(memory, offset, magic, name, addr, start, end)
    print(start, end, addr)


main()
